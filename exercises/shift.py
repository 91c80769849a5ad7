"""Where exp overflows

kind: predict
level: 1
minutes: 3
teaches: why softmax subtracts the maximum

Softmax of (1000, 1001) is harmless, but exp(1000) overflows in float32. What is the largest whole
number n for which exp(n) is finite in float32?

hint: float32 ends a little below 2¹²⁸.

hint: exp(n) < 2¹²⁸ if and only if n < 128 · ln 2, and ln 2 is about 0.693.
"""

# start
ANSWER = ...
# solved
ANSWER = 88
# end

# ---- check ----
import math

from softmax_playground.checker.judge import number


def check(names, lab):
    largest = (2 - 2**-23) * 2.0**127
    n = 0
    while math.exp(n + 1) <= largest:
        n += 1
    return number(
        names, n, f"Right: exp({n}) is {math.exp(n):.3g}, and float32 ends at {largest:.3g}."
    )


WRONG = [
    (87, "exp(88) is finite too: 88 / ln 2 is 126.96, and float32 goes up to 2¹²⁸."),
    (
        89,
        "exp(88.72…) is the last; 89 is already beyond. Round it down.",
    ),
    (128, "128 is the exponent of 2. exp(n) is 2 to the power n / ln 2, so n must be smaller."),
    (127, "127 is the largest exponent of 2, and the question is about powers of e."),
    (709, "709 is where exp overflows in float64, as in Python's math.exp."),
    (710, "That is about float64, and one too far."),
    (11, "11 is float16's: it ends at 65,504, and exp(11) is 59,874."),
    (38, "float32 ends near 10³⁸: you took powers of 10 in place of powers of e."),
    (88.7, "The question asks for a whole number: round it down."),
    (104, "From −104 on exp is 0 in float32. Overflow comes earlier than underflow."),
]
