"""A logarithm of nothing

kind: find the bug
level: 1
minutes: 4
teaches: take the logarithm before anything underflows

Log-softmax of (0, −800) should be (0, −800), and fails here. Change one line.

hint: What is exp(−800), even in float64, and what is its logarithm?

hint: log(exp(x − m) / d) can be written without the exponential.
"""

from math import exp, log


def log_softmax(row):
    """The logarithms of softmax(row), for finite numbers."""
    m = max(row)
    d = sum([exp(x - m) for x in row])
    # start
    return [log(exp(x - m) / d) for x in row]
    # solved
    return [x - m - log(d) for x in row]
    # end


# ---- check ----
from softmax_playground.checker.judge import compare_calls, needs
from softmax_playground.checker.rows import hostile
from softmax_playground.small_triton.right import INF, log_softmax


def check(names, lab):
    function = needs(names, "log_softmax")
    rows, why = hostile(7)
    rows, why = [[0.0, -800.0]] + rows, ["exp(−800) underflows to 0, and 0 has no logarithm."] + why
    calls = [
        (f"log_softmax({row})", lambda row=row: function(row[:]), log_softmax(row), each)
        for row, each in zip(rows, why)
        if -INF not in row and row[0] > -1e30
    ]
    compare_calls(calls)
    return "Right: the logarithm and the exponential cancel, and nothing underflows."


LINE = "x - m - log(d)"
WRONG = [
    (LINE, "log(exp(x - m) / d)", "exp(−800) underflows to 0, and 0 has no logarithm."),
    (LINE, "log(exp(x - m) / d + 1e-30)", "1e-30 hides the failure: −800 becomes −69."),
    (LINE, "max(x - m - log(d), -700.0)", "Cutting off at some number is not right below it."),
    (LINE, "x - m", "The logarithm of the sum is missing, so the shares add up to more than 1."),
    (LINE, "x - log(d)", "d is relative to m: subtract m too."),
    (LINE, "x - m + log(d)", "The sign: to divide by d is to subtract log d."),
    (LINE, "x - m - d", "That subtracts d itself; a quotient's logarithm has log d."),
]
