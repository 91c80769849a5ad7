"""One length of eleven

kind: find the shape
level: 2
minutes: 6
teaches: look for the length at which a loop ends too early

This kernel copies rows of any length, or so it seems. With BLOCK = 8 it is right for ten of the
eleven lengths from 20 to 30. For which `n_cols` does it fail?

hint: Where does the last iteration of the loop begin, for 24, 25 and 26 columns?

hint: `range(0, n_cols - 1, BLOCK)` ends before n_cols − 1.
"""

import triton
import triton.language as tl

# start
ANSWER = ...
# solved
ANSWER = 25
# end


@triton.jit
def copy_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, n_cols - 1, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols)
        tl.store(y_ptr + row * n_cols + cols, x, mask=cols < n_cols)


# ---- check ----
from softmax_playground.checker.judge import Wrong, needs, number


def check(names, lab):
    failing = []
    for n in range(20, 31):
        rows = [[float(j + 1) for j in range(n)]]
        x, y = lab.tensor(rows, "x"), lab.empty((1, n), "y")
        lab.launch(needs(names, "copy_kernel"), (1,), x, y, n, BLOCK=8)
        try:
            lab.compare(y, rows)
        except Wrong:
            failing.append(n)
    said = "Right: its last iteration would begin at column 24, and range ends before 24, so that"
    said += " no program writes the last column."
    return number(names, failing[0], said, among=list(range(20, 31)))


WRONG = [
    (24, "24 is three whole tiles: the last one begins at 16, which is before 23."),
    (26, "With 26 columns the last iteration begins at 24, which is before 25."),
    (20, "With 20 columns the last iteration begins at 16, and its mask keeps four lanes."),
    (23, "With 23 columns the last iteration begins at 16, and its mask keeps seven lanes."),
    (30, "With 30 columns the last iteration begins at 24, and its mask keeps six lanes."),
]
