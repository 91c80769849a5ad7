"""The least that must move

kind: predict
level: 1
minutes: 3
teaches: the bytes below which no softmax kernel comes

A matrix has 1,000 × 1,000 elements in bfloat16. How many bytes does its softmax move between memory
and the chip, at the least?

hint: Each input must be read once, each output written once.

hint: A bfloat16 has 2 bytes.
"""

# start
ANSWER = ...
# solved
ANSWER = 4000000
# end

# ---- check ----
from softmax_playground.checker.judge import number


def check(names, lab):
    right = 2 * 1000 * 1000 * 2
    return number(names, right, f"Right: 2MN elements of 2 bytes, {right:,} bytes.")


WRONG = [
    (2000000, "That is 2MN *elements*, or the bytes of x alone: both tensors move, 2 bytes each."),
    (1000000, "That is the number of elements of one matrix. Count bytes, of input and output."),
    (8000000, "That is for float32: a bfloat16 has 2 bytes."),
    (16000000, "A bfloat16 has 2 bytes, and each element is read once and written once."),
    (6000000, "That reads x twice; a row that fits on the chip is read once."),
    (4, "Megabytes; the question is about bytes."),
    (32000000, "That is bits; 8 bits are a byte."),
]
