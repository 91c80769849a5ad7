"""Cut a row anywhere

Both halves are summarised and merged. Change the cut, merge the halves in the other order, or merge with (-inf, 0), which changes nothing.
"""
# right: merged = statistics(row)  # m and d of the whole row
# again: with negative numbers far apart
#   [2.0, 1.0, 4.0, -1.0, 3.0, 5.0, 0.0]
#   [-inf, -inf, -inf, -1000.0, -2000.0]
# again: with an empty part
#   [2.0, 1.0, 4.0, -1.0, 3.0, 5.0, 0.0]
#   [-1.0, -2.0]
#   cut = 3
#   cut = 0
from math import exp


def shifted(x, m):
    """exp(x − m), but 0 where x and m are −∞, for −∞ − (−∞) is NaN."""
    return exp(x - (m if m > -inf else 0.0))


def summary(row):
    m = max(row) if row else -inf
    return m, sum(shifted(x, m) for x in row)


def merge(m1, d1, m2, d2):
    m = max(m1, m2)
    return m, d1 * shifted(m1, m) + d2 * shifted(m2, m)


row = [2.0, 1.0, 4.0, -1.0, 3.0, 5.0, 0.0]
cut = 3

left, right = summary(row[:cut]), summary(row[cut:])
print("left  ", left)
print("right ", right)
merged = merge(*left, *right)
print("merged", merged)
print("whole ", summary(row))
