"""The merged denominator is right, the merged entropy is not

Under another maximum a term e · (x − m) changes in both factors: by exp(m − m′), and by m − m′ for each e. The program is ours.
"""
from math import exp, log


def summary(row):
    m = max(row)
    e = [exp(x - m) for x in row]
    return m, sum(e), sum(e_j * (x - m) for e_j, x in zip(e, row))


def moved(m, d, a, new):
    f = exp(m - new)
    return d * f, a * f  # wrong
    return d * f, (a + (m - new) * d) * f  # right


left, right = summary([1.0, 2.0]), summary([3.0, 0.0])
m = max(left[0], right[0])
parts = [moved(*left, m), moved(*right, m)]
d, a = sum(d for d, _ in parts), sum(a for _, a in parts)
expect(log(d) - a / d, 0.9475)
