"""What a gradient adds up to

kind: predict
level: 1
minutes: 2
teaches: a check of softmax's gradient that needs no derivative

dx is the gradient of a loss through softmax, for one row. What is the sum of its elements, whatever
dy is?

hint: Adding the same number to every x changes no output, so it does not change the loss.

hint: dx[j] = y[j] (dy[j] − s), with s the sum of y · dy. Sum both terms.
"""

# start
ANSWER = ...
# solved
ANSWER = 0
# end

# ---- check ----
from softmax_playground.checker.judge import number
from softmax_playground.small_triton.right import softmax, softmax_backward


def check(names, lab):
    total = sum(softmax_backward(softmax([1.0, 2.0, 4.0]), [0.3, -5.0, 7.0]))
    said = "Right: s − s = 0. A kernel whose dx adds up to something else is wrong."
    return number(names, round(total, 9), said)


WRONG = [
    (1, "1 is the sum of y. A gradient says how the loss changes."),
    (-1, "The outputs add up to 1, their changes to 0."),
    (0.5, "It is the same number for every dy; take dy = 0."),
]
