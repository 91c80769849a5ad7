"""The gradient at the target

kind: predict
level: 1
minutes: 3
teaches: cross-entropy's gradient, softmax minus one-hot

softmax(x) = (0.2, 0.3, 0.5), and the target is class 2, the last. The loss is the
[cross-entropy](../kernels/loss-head.md), −log of the target's probability. What is its derivative
with respect to x[2]?

hint: The loss is log-sum-exp(x) − x[2].

hint: The derivative of log-sum-exp is softmax.
"""

# start
ANSWER = ...
# solved
ANSWER = -0.5
# end

# ---- check ----
from softmax_playground.checker.judge import number


def check(names, lab):
    return number(names, 0.5 - 1.0, "Right: y − 1 at the target, y at the others.", 1e-6)


WRONG = [
    (0.5, "The sign: a larger x[2] makes the target more probable, so the loss falls. y − 1."),
    (-2, "That is the derivative with respect to y[2], −1/y[2]. Go on to x[2]."),
    (2, "The derivative with respect to y[2] is −1/y[2]; go on to x[2]."),
    (0.2, "Counting starts at 0: class 2 is the last."),
    (-0.8, "Counting starts at 0: class 2 is the last, with y = 0.5."),
    (-0.7, "Counting starts at 0: class 2 is the last, with y = 0.5."),
    (0.25, "That is y (1 − y), the Jacobian's entry. −1/y times it is the answer."),
    (0.693, "That is the loss, −log 0.5."),
    (-1, "The derivative of −x[2] is −1, and log-sum-exp adds its own: y[2]."),
]
