"""A row, or a part of one, that is −∞ throughout

Then x − m is −∞ − (−∞), which is not a number. A part like that contributes nothing, so its sum must be 0 and not NaN.
"""
from math import exp


def summary(row):
    m = max(row)
    return m, sum(exp(x - m) for x in row)  # wrong
    safe = m if m > -inf else 0.0  # right
    return m, sum(exp(x - safe) for x in row)  # right


expect(summary([-inf, -inf]), (-inf, 0.0))
