"""Two parts become one

kind: fill in
level: 2
minutes: 6
teaches: the merge of two summaries (m, d), and its neutral element

Each of two programs holds half a row, and has its maximum, m, and the sum of exp(x − m) over it, d.
[Merge](../math/monoid.md) the two pairs. An empty part, (−∞, 0), must change nothing, even if both
are empty; `shifted` sees to that.

hint: Take the larger maximum, and make both sums relative to it.

hint: `shifted(m_a, m)` is the factor for `d_a`. It is 0 for an empty part, and never NaN.
"""

import math


def shifted(x, m):
    """exp(x - m), and 0 for x = -inf whatever m is."""
    return 0.0 if x == -math.inf else math.exp(x - m)


def merge(a, b):
    """(m, d) of two parts in; (m, d) of the whole out. A part may be empty: (-inf, 0)."""
    m_a, d_a = a
    m_b, d_b = b
    # start
    m = ...
    d = ...
    # solved
    m = max(m_a, m_b)
    d = d_a * shifted(m_a, m) + d_b * shifted(m_b, m)
    # end
    return m, d


# ---- check ----
import math

from softmax_playground.checker.judge import compare_calls, needs
from softmax_playground.small_triton.right import INF


def check(names, lab):
    function = needs(names, "merge")
    parts = [(2.0, 1.5), (5.0, 1.0), (-1000.0, 2.0), (3000.0, 1.25), (-2.0e6, 3.0), (-INF, 0.0)]
    calls = []
    for a in parts:
        for b in parts:
            m = max(a[0], b[0])
            d = sum([d * math.exp(part - m) for part, d in (a, b) if part > -INF])
            empty = "A part is empty here." if -INF in (a[0], b[0]) else ""
            call = lambda a=a, b=b: function(a, b)  # noqa: E731
            calls.append((f"merge({a}, {b})", call, (m, d), empty))
    compare_calls(calls)
    return "Right, and (-inf, 0) is its neutral element."


SUM = "d_a * shifted(m_a, m) + d_b * shifted(m_b, m)"
WRONG = [
    (
        SUM,
        "d_a + d_b",
        "The two sums are relative to different maxima: rescale both to m, then add.",
    ),
    (SUM, "d_a * shifted(m_a, m) + d_b", "d_b must be rescaled too: a may have the maximum."),
    (SUM, "d_a + d_b * shifted(m_b, m)", "d_a must be rescaled too: b may have the maximum."),
    (SUM, "d_a * shifted(m, m_a) + d_b * shifted(m, m_b)", "The factors are upside down."),
    (SUM, "max(d_a, d_b)", "Maxima are merged by a maximum; sums are added."),
    ("max(m_a, m_b)", "m_a + m_b", "The maximum of both parts is the larger one, not their sum."),
    ("max(m_a, m_b)", "max(m_a, m_b, 0.0)", "0 is larger than both maxima of negative parts."),
    ("max(m_a, m_b)", "max(m_a, m_b, -1e6)", "Some rows' maximum is lower than that."),
]
