"""Where an element lies

kind: predict
level: 1
minutes: 3
teaches: a stride, not a length, leads to the next row

x has rows of 33 numbers that begin 40 elements apart. `x_ptr` points to x[0, 0]. How many elements
further is x[2, 5]? Counting starts at 0.

hint: Row 2 begins two strides after row 0.
"""

# start
ANSWER = ...
# solved
ANSWER = 85
# end

# ---- check ----
from softmax_playground.checker.judge import number


def check(names, lab):
    right = 2 * 40 + 5
    return number(names, right, f"Right: 2 · 40 + 5 = {right}. The length, 33, is not needed.")


WRONG = [
    (71, "That takes the length, 33, for the stride. Rows begin 40 elements apart."),
    (340, "Pointers count elements in Triton, not bytes."),
    (284, "Rows begin 40 elements apart, and pointers count elements, not bytes."),
    (45, "Counting starts at 0: row 2 is the third row, two strides on."),
    (125, "Counting starts at 0: row 2 is the third row, two strides on, not three."),
    (84, "Counting starts at 0: column 5 is 5 elements after the row begins."),
    (202, "The row is multiplied by the stride: 2 · 40, and the column by 1."),
    (80, "There row 2 begins. Column 5 is 5 elements further."),
]
