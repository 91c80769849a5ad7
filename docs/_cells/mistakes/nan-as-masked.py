"""A NaN that passes for a masked row

"Fully masked rows are 0" is a rule about −∞. Whoever tests for NaN after the division also hides the NaN that came in.
"""
from math import exp


def safe_softmax(x):
    m = max(x) if x == x else nan
    e = [exp(x_j - m) if x_j > -inf or x_j != x_j else 0.0 for x_j in x]
    d = sum(e)
    y = [e_j / d if d else nan for e_j in e]
    return [0.0 if y_j != y_j else y_j for y_j in y]  # wrong
    return [0.0] * len(x) if m == -inf else y  # right


expect(safe_softmax([-inf, -inf]), [0.0, 0.0])
expect(safe_softmax([1.0, nan]), [nan, nan])
