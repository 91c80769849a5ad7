"""A tile of −∞ only turns its whole row into NaN

There x − m is −∞ − (−∞), which is NaN. Shift by 0, so that the tile contributes a sum of 0. Reported in tracel-ai/burn#4694 and flashinfer-ai/flashinfer#4401.
"""
from math import exp


def summary(row):
    m = max(row)
    return m, sum(exp(x - m) for x in row)  # wrong
    safe = m if m > -inf else 0.0  # right
    return m, sum(exp(x - safe) for x in row)  # right


expect(summary([-inf, -inf]), (-inf, 0.0))
