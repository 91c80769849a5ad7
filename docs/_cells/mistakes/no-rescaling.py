"""Two halves of a row are right, and their merged denominator is too large

The two sums are relative to different maxima. Rescale both to the larger one, then add. The program is ours.
"""
from math import exp


def merge(m1, d1, m2, d2):
    m = max(m1, m2)
    return m, d1 + d2  # wrong
    return m, d1 * exp(m1 - m) + d2 * exp(m2 - m)  # right


left = (2.0, 1.0 + exp(-1.0))  # of the numbers 1 and 2
right = (3.0, 1.0)  # of the number 3
expect(merge(*left, *right), (3.0, 1.5032))
