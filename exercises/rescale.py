"""A sum that forgets to move

kind: find the bug
level: 1
minutes: 5
teaches: the online recurrence: an old sum moves with the maximum

One line of this [online recurrence](../math/online.md) is wrong; rows in descending order hide it.
Change one line.

hint: Go through (1, 2) by hand. After the first number d = 1, relative to which maximum?

hint: When the maximum rises from m to m_new, every old term exp(x − m) must become exp(x − m_new).
All change by the same factor.
"""

import math


def step(m, d, x):
    """m and d of a row that goes on with x: its maximum, and the sum of exp(x - m) over it."""
    m_new = max(m, x)
    # start
    d = d + math.exp(x - m_new)
    # solved
    d = d * math.exp(m - m_new) + math.exp(x - m_new)
    # end
    return m_new, d


# ---- check ----
from softmax_playground.checker.judge import compare_calls, needs
from softmax_playground.checker.rows import hostile
from softmax_playground.small_triton.right import INF, statistics


def check(names, lab):
    function = needs(names, "step")

    def pair(row):
        m, d = -INF, 0.0
        for x in row:
            m, d = function(m, d, x)
        return m, d

    calls, (rows, reasons) = [], hostile(6)
    for row, why in zip([[1.0, 2.0], [2.0, 1.0]] + rows, [None, None] + reasons):
        for i in (0, 1) if -INF not in row else ():
            call = lambda i=i, row=row: pair(row)[i]  # noqa: E731
            calls.append((f"{'md'[i]} of {row}", call, statistics(row)[i], why))
    compare_calls(calls)
    return "Right: an old sum is relative to an old maximum, and has to move with it."


OLD = "d * math.exp(m - m_new)"
WRONG = [
    (OLD, "d", "The old sum is still relative to the old maximum: multiply it by exp(m − m_new)."),
    (OLD, "d * math.exp(m_new - m)", "The factor is upside down: exp(m − m_new) is at most 1."),
    (OLD, "d * math.exp(m - x)", "Relative to x the sum is wrong as soon as x is not the maximum."),
    ("math.exp(x - m_new)\n", "math.exp(x - m)\n", "The new term must be relative to m_new too."),
    ("max(m, x)", "max(m, x, 0.0)", "0 is larger than every number of a negative row."),
    ("max(m, x)", "x", "m_new is the larger of the two: x is not always the maximum."),
    (OLD, "d * math.exp(m - m_new) ** 2", "One factor is enough: exp(m − m_new)."),
]
