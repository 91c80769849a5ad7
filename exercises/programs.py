"""How many programs

kind: predict
level: 1
minutes: 2
teaches: programs are whole, so their number is rounded up

A program takes 16 rows. How many programs does a matrix of 1,000 rows need?

hint: 62 programs take 992 rows.

hint: `triton.cdiv(a, b)` is a / b rounded up.
"""

# start
ANSWER = ...
# solved
ANSWER = 63
# end

# ---- check ----
from softmax_playground.checker.judge import number


def check(names, lab):
    count = -(-1000 // 16)
    said = f"Right: {count} programs, and {count * 16 - 1000} rows of the last one are masked."
    return number(names, count, said)


WRONG = [
    (62, "62 programs leave 8 rows that nobody computes: round up."),
    (62.5, "There is no half program: round up, and mask the rows past the end."),
    (64, "The number of programs need not be a power of two; only the sides of a tile must."),
    (1000, "That is a program for each row; here each takes 16."),
    (16000, "Divide: each program takes 16 rows."),
    (8, "8 is how many rows are left for the last program."),
]
