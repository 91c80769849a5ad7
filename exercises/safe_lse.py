"""Log-sum-exp from nothing

kind: blank page
level: 2
minutes: 10
teaches: a log-sum-exp that no row can break

Write log-sum-exp of a list, ln(Σ exp(x)), in plain Python. Rows may hold −∞, and may hold nothing
else; then the result is −∞. No exponential may overflow.

hint: Subtract the maximum before exp, and add it after log.

hint: If the maximum is −∞, then x − m is NaN: answer −∞ before that.
"""

import math


def logsumexp(row):
    """A list of finite numbers and -inf, not empty; one number."""
    # start
    return ...
    # solved
    m = max(row)
    if m == -math.inf:
        return m
    return m + math.log(sum([math.exp(x - m) for x in row]))
    # end


# ---- check ----
from softmax_playground.checker.judge import compare_calls, needs
from softmax_playground.checker.rows import hostile
from softmax_playground.small_triton.right import INF, logsumexp


def check(names, lab):
    function = needs(names, "logsumexp")
    rows, why = hostile(6)
    rows, why = rows + [[-INF] * 3], why + [""]
    calls = [
        (f"logsumexp({row})", lambda row=row: function(row[:]), logsumexp(row), each)
        for row, each in zip(rows, why)
    ]
    compare_calls(calls)
    return "Right, for every row: large, small, or nothing but −∞."


LSE = "m + math.log(sum([math.exp(x - m) for x in row]))"
GUARD = "    m = max(row)\n    if m == -math.inf:\n        return m\n"
NAIVE = "math.log(sum([math.exp(x) for x in row]))"
NO_SHIFT = "Without the maximum exp underflows for this row, and overflows for others."
WRONG = [
    (LSE, NAIVE, NO_SHIFT),
    (GUARD + f"    return {LSE}", f"    return {NAIVE}", NO_SHIFT),
    (
        GUARD + f"    return {LSE}",
        f"    try:\n        return {NAIVE}\n    except (ValueError, OverflowError):\n"
        "        return max(row)",
        "The maximum alone is too small: log of the sum comes on top, in every row.",
    ),
    (LSE, "m", "The maximum alone is too small: log of the sum comes on top."),
    (LSE, LSE.replace("m +", "m -"), "Log-sum-exp is at least the maximum: add the logarithm."),
    (LSE, LSE.replace("m +", "m *"), "exp(m) times a sum becomes m plus its logarithm."),
    (LSE, LSE.replace("log(", "log2("), "exp needs the natural logarithm, math.log."),
    (LSE, LSE.replace("log(", "log10("), "exp needs the natural logarithm, math.log."),
    (LSE, LSE.replace("log(", "log1p("), "log1p adds 1 once more: the sum has the maximum's 1."),
    ("return m\n", "return 0.0\n", "The logarithm of no sum is −∞, not 0."),
    ("return m + math.log", "return math.log", "The maximum that was subtracted has to come back."),
    ("m + math.log(sum", "m + (sum", "The logarithm of the sum is missing."),
    (
        "    if m == -math.inf:\n        return m\n",
        "",
        "A row of −∞ alone: −∞ − (−∞) is NaN, so this row needs an answer of its own.",
    ),
    ("m = max(row)", "m = max(row + [0.0])", "0 is larger than every element of negative rows."),
    ("m = max(row)", "m = max(row + [-1e6])", "Some rows' maximum is lower than that."),
    ("m = max(row)", "m = min(row)", "Relative to the minimum the exponentials overflow."),
    ("m = max(row)", "m = row[0]", "The first element may be far below the others."),
]
