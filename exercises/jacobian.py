"""One entry of the Jacobian

kind: predict
level: 1
minutes: 4
teaches: the Jacobian needs only y, and its sign off the diagonal

y = softmax(x) = (0.2, 0.3, 0.5). What is the derivative of y[0] with respect to x[1]? The
[Jacobian](../math/jacobian.md) needs only y.

hint: What one output gains, the others lose: the sign is negative.

hint: The derivative of y[i] with respect to x[j] is y[i] · ((i = j) − y[j]), and here i ≠ j.
"""

# start
ANSWER = ...
# solved
ANSWER = -0.06
# end

# ---- check ----
from softmax_playground.checker.judge import number


def check(names, lab):
    y = [0.2, 0.3, 0.5]
    right = y[0] * (0.0 - y[1])
    said = f"Right: off the diagonal it is -y[i] * y[j], here {right:.2f}."
    return number(names, right, said, 1e-3)


WRONG = [
    (0.06, "Check the sign: if x[1] grows, y[1] takes its share from the others, so y[0] falls."),
    (0.16, "That is the derivative of y[0] with respect to x[0], on the diagonal."),
    (0.21, "That is the derivative of y[1] with respect to x[1], on the diagonal."),
    (-0.1, "That is -y[0] · y[2]. Counting starts at 0, so x[1] is the second input."),
    (-0.15, "That is -y[1] · y[2]. Counting starts at 0: y[0] is the first output."),
    (0.14, "The 1 of y[i] (1 − y[j]) stands only on the diagonal, where i = j."),
    (-0.3, "The factor y[0] is missing: -y[0] · y[1]."),
    (0, "Softmax is not applied element by element: every output depends on every input."),
]
