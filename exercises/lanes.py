"""Idle lanes

kind: predict
level: 1
minutes: 2
teaches: tiles are powers of two, and a mask switches lanes off

A row of 1,000 numbers is read by one tile, whose length is the smallest power of two that will do.
How many of its lanes does the [mask](../kernels/primer.md#programs-and-lanes) switch off?

hint: 512 lanes are too few.
"""

# start
ANSWER = ...
# solved
ANSWER = 24
# end

# ---- check ----
from softmax_playground.checker.judge import number


def check(names, lab):
    size = 1
    while size < 1000:
        size *= 2
    said = f"Right: the tile has {size} lanes, and {size - 1000} of them are idle."
    return number(names, size - 1000, said)


WRONG = [
    (1024, "1,024 is the size of the tile. How many of its lanes have no number?"),
    (1000, "1,000 lanes have a number. How many have none?"),
    (-24, "The tile is larger than the row, so the number of idle lanes is positive."),
    (488, "512 lanes would be too few: every number needs a lane of its own."),
    (23, "Count once more: 1,024 − 1,000."),
    (25, "Count once more: 1,024 − 1,000."),
    (0, "1,000 is no power of two, so some lanes are left over."),
    (96, "24 lanes of 4 bytes are 96 bytes; the question is about lanes."),
]
