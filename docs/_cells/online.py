"""The recurrence, step by step

Let m start at 0 and make all numbers very negative: d becomes 0, and softmax 0/0. Or let the row fall instead of rise.
"""
# right: m = statistics(row)[0]  # the maximum
# right: d = statistics(row)[1]  # the sum from there
# again: with negative numbers far apart
#   [1.0, 3.0, -inf, 2.0, 3.0]
#   [-inf, -1000.0, -1001.0, -inf, -999.0]
from math import exp


def shifted(x, m):
    """exp(x − m), but 0 where x and m are −∞, for −∞ − (−∞) is NaN."""
    return exp(x - (m if m > -inf else 0.0))


row = [1.0, 3.0, -inf, 2.0, 3.0]
m, d = -inf, 0.0
for x in row:
    m_before, m = m, max(m, x)
    d = d * shifted(m_before, m) + shifted(x, m)
    print("read", x, "  m =", m, "  d =", round(d, 4))
