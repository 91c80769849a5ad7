"""Fully masked rows are 0, as wanted. Where did the NaN in the input go?

Replacing every NaN of the result also hides one that came in (robertknight/rten#1321). Test for a maximum of −∞ instead.
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
