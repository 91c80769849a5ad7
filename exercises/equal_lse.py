"""Eight equal numbers

kind: predict
level: 1
minutes: 3
teaches: what log-sum-exp is: the maximum and a little more

What is log-sum-exp of eight numbers that are all 3, to three digits?

hint: Log-sum-exp is m + ln d, with d the sum of exp(x − m).

hint: Each of the eight terms of d is exp(0) = 1.
"""

# start
ANSWER = ...
# solved
ANSWER = 5.079
# end

# ---- check ----
from softmax_playground.checker.judge import number
from softmax_playground.small_triton.right import logsumexp


def check(names, lab):
    right = logsumexp([3.0] * 8)
    said = f"Right: 3 + ln 8 = {right:.4f}. For n numbers it is at most ln n above the maximum."
    return number(names, right, said, 1e-3)


WRONG = [
    (11, "That is m + d. The sum still needs its logarithm: m + ln d."),
    (3, "3 is the maximum. The logarithm of the sum, ln 8, comes on top."),
    (2.079, "That is ln 8, relative to the maximum. Add the 3 that was subtracted."),
    (24, "Log-sum-exp adds exponentials, not the numbers."),
    (6, "That is the logarithm to base 2; exp needs the natural one, ln 8 = 2.079."),
    (3.903, "That is the logarithm to base 10; exp needs the natural one, ln 8 = 2.079."),
    (160.684, "That is the sum of the exponentials, without its logarithm."),
    (0.921, "ln d is added to the maximum, not subtracted."),
]
