"""Two large numbers

kind: predict
level: 1
minutes: 3
teaches: softmax sees only differences

What is the *first* output of softmax of (1000, 1001), to three digits?

hint: [Softmax](../math/softmax.md) does not change if the same number is subtracted from every
input.

hint: It is softmax of (−1, 0): exp(−1) / (exp(−1) + 1).
"""

# start
ANSWER = ...
# solved
ANSWER = 0.269
# end

# ---- check ----
from softmax_playground.checker.judge import number
from softmax_playground.small_triton.right import softmax


def check(names, lab):
    right = softmax([1000.0, 1001.0])[0]
    return number(names, right, f"Right: {right:.4f}, as for (−1, 0) or (7, 8).", 0.003)


WRONG = [
    (0.731, "That is the second output: the larger input has the larger share."),
    (0.5, "Softmax divides exponentials, not the numbers: those differ by a factor of e."),
    (0, "On paper nothing underflows: subtract 1001 from both first."),
    (1, "The first input is the smaller one."),
    (0.368, "exp(−1) is the ratio of the two outputs; divide by 1 + exp(−1) as well."),
]
