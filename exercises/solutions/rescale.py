"""Find the bug. One line of the online recurrence is wrong; rows in descending order hide it."""

import math


def online(row):
    """The maximum m of a row, and d, the sum of exp(x - m), in one pass."""
    m, d = -math.inf, 0.0
    for x in row:
        m_new = max(m, x)
        d = d * math.exp(m - m_new) + math.exp(x - m_new)
        m = m_new
    return m, d
