"""Fill in. Two parts of a row, each summarised as (m, d), become the summary of both."""

import math


def shifted(x, m):
    """exp(x - m), and 0 for x = -inf whatever m is."""
    return 0.0 if x == -math.inf else math.exp(x - m)


def merge(a, b):
    """(m, d) of two parts in; (m, d) of the whole out. A part may be empty: (-inf, 0)."""
    m_a, d_a = a
    m_b, d_b = b
    m = ...
    d = ...
    return m, d
