"""Which constants will do

kind: predict
level: 1
minutes: 3
teaches: why softmax subtracts the maximum, where other constants would do on paper

On paper, softmax may subtract any constant c from a row. In float32 each exponential has to stay
finite, and exp(x) is finite up to x = 88.72. What is the smallest whole number c that will do for
the row (0, 60, 120)?

hint: The largest exponential is that of the largest number: exp(120 − c).

hint: 120 − c must be at most 88.72.
"""

# start
ANSWER = ...
# solved
ANSWER = 32
# end

# ---- check ----
import math

from softmax_playground.checker.judge import number


def check(names, lab):
    largest = (2 - 2**-23) * 2.0**127
    c = 0
    while math.exp(120 - c) > largest:
        c += 1
    return number(
        names,
        c,
        f"Right: exp({120 - c}) is {math.exp(120 - c):.3g}, and float32 ends at {largest:.3g}. The "
        "maximum, 120, is the constant that will do for this row without a calculation.",
    )


WRONG = [
    (0, "exp(120) is infinite in float32: something must be subtracted."),
    (31, "exp(120 − 31) is exp(89), which is infinite in float32."),
    (31.28, "The question asks for a whole number: round it up."),
    (33, "It will do, but a smaller one will, too: exp(88) is finite."),
    (60, "It will do, as exp(60) is finite; but a smaller one will, too."),
    (88, "exp(88) is finite. What must be subtracted from 120 to get there?"),
    (89, "exp(120 − 89) is finite, but so is exp(88): subtract less."),
    (120, "That is the maximum, which always will do; for this row less is enough."),
]
