"""Between two vectors

kind: predict
level: 2
minutes: 4
teaches: where the vectors of 16 bytes begin in a row

Rows of 33 float32 numbers lie one after the other, and row 0 starts on a multiple of 16 bytes,
where a vector begins. Most of the other rows [do not](../kernels/aligned-rows.md). How many numbers
of row 3 come before its first whole vector?

hint: How many numbers come before row 3, and how many fit a vector?

hint: Count on from there to the next multiple of 4.
"""

# start
ANSWER = ...
# solved
ANSWER = 1
# end

# ---- check ----
from softmax_playground.checker.judge import number


def check(names, lab):
    first, width = 3 * 33, 16 // 4
    right = -first % width
    said = f"Right: row 3 starts at element {first}, and the next multiple of {width} is "
    return number(names, right, f"{said}{first + right}.")


WRONG = [
    (3, "Element 99 is the fourth of its vector, so only one number is left of it."),
    (0, "Row 3 begins at element 99, which is no multiple of 4."),
    (2, "Row 2 begins at element 66 and has 2; rows count from 0, so row 3 begins at 99."),
    (4, "A whole vector has 4 numbers; fewer than that come before it."),
    (13, "16 bytes are 4 float32 numbers, not 16."),
    (99, "That is where row 3 begins. How far is the next multiple of 4?"),
    (8, "Whole vectors are 4 numbers apart: 100 follows 99."),
]
