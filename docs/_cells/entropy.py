"""The entropy of a row in two parts

Move the cut, add 100 to all numbers, or leave (m_b - m) * d_b out of the merge: then cuts matter.
"""
# right: triples = [summary(row)] * 2  # the same with and without the cut
from math import exp, log


def summary(row):
    m = max(row)
    e = [exp(x - m) for x in row]
    return [m, sum(e), sum(e_j * (x - m) for e_j, x in zip(e, row))]


def merge(parts):
    m = max(m_b for m_b, d_b, a_b in parts)
    d = sum(exp(m_b - m) * d_b for m_b, d_b, a_b in parts)
    a = sum(exp(m_b - m) * (a_b + (m_b - m) * d_b) for m_b, d_b, a_b in parts)
    return [m, d, a]


row, cut = [1.0, 2.0, 3.0, 0.5, 2.5], 2
triples = [merge([summary(row[:cut]), summary(row[cut:])]), summary(row)]
show(triples, "m, d, a: merged, then of the whole row")
for m, d, a in triples:
    print("entropy", round(log(d) - a / d, 4))
