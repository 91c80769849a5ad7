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


def online(row):
    """The maximum m of a row of finite numbers, and d, the sum of exp(x - m), in one pass."""
    m, d = -math.inf, 0.0
    for x in row:
        m_new = max(m, x)
        # start
        d = d + math.exp(x - m_new)
        # solved
        d = d * math.exp(m - m_new) + math.exp(x - m_new)
        # end
        m = m_new
    return m, d


# ---- check ----
from softmax_playground.checker.judge import Wrong, compare_calls, needs
from softmax_playground.checker.rows import Counted, hostile
from softmax_playground.small_triton.right import INF, statistics


def check(names, lab):
    function = needs(names, "online")
    calls = []
    for row, why in zip(*hostile(6)):
        if -INF not in row:
            calls.append((f"online({row})", lambda row=row: function(row[:]), statistics(row), why))
    compare_calls(calls)
    row = Counted([1.0, 3.0, 2.0])
    function(row)
    if row.reads > 3:
        raise Wrong("The result is right, but it reads the row more than once.")
    return "Right: an old sum is relative to an old maximum, and has to move with it."


OLD, START = "d * math.exp(m - m_new)", "m, d = -math.inf, 0.0"
WRONG = [
    (OLD, "d", "The old sum is still relative to the old maximum: multiply it by exp(m − m_new)."),
    (OLD, "d * math.exp(m_new - m)", "The factor is upside down: exp(m − m_new) is at most 1."),
    (OLD, "d * math.exp(m - x)", "Relative to x the sum is wrong as soon as x is not the maximum."),
    ("math.exp(x - m_new)\n", "math.exp(x - m)\n", "The new term must be relative to m_new too."),
    (START, "m, d = 0.0, 0.0", "A maximum that starts at 0 is larger than every negative row."),
    (START, "m, d = -1e6, 0.0", "Some rows' maximum is lower than that: start at −∞."),
    (OLD, "d * math.exp(m - m_new) ** 2", "One factor is enough: exp(m − m_new)."),
    (
        START,
        "m, d = max(row), 0.0",
        "max(row) is a pass of its own; the recurrence finds m and d in one.",
    ),
]
