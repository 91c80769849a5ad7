"""A first kernel

kind: fill in
level: 1
minutes: 5
teaches: programs, lanes, masks and pointers

Program i copies row i of x to y, and doubles it on the way. Rows begin `n_cols` elements apart. Say
which lanes are on, and load the row.

hint: A lane is on if its number, in `cols`, is that of a column.

hint: A pointer plus a tile of offsets is a tile of pointers. The load needs the offsets and the
mask of the store below it.
"""

import triton
import triton.language as tl


@triton.jit
def double_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    """Rows lie one after the other; BLOCK is a power of two, at least n_cols."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    # start
    mask = ...
    x = tl.load(...)
    # solved
    mask = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask)
    # end
    tl.store(y_ptr + row * n_cols + cols, 2 * x, mask=mask)


# ---- check ----
from softmax_playground.checker.judge import needs
from softmax_playground.checker.rows import at_most, random_row


def check(names, lab):
    kernel = needs(names, "double_kernel")
    for height, n, block in ((5, 5, 8), (1, 1, 1), (4, 8, 8), (3, 9, 16), (1, 7, 8)):
        rows = [random_row(n, i) for i in range(height)]
        x, y = lab.tensor(rows, "x"), lab.empty((height, n), "y")
        lab.launch(kernel, (height,), x, y, n, BLOCK=block)
        lab.compare(y, [[2 * each for each in row] for row in rows])
        at_most(lab, "x", height * n)
    return "Right: a program per row, a lane per element, and those past the end are masked."


MASK, LOAD = "mask = cols < n_cols", "x_ptr + row * n_cols + cols, mask=mask)\n    tl.store"
PAST = "A lane past the row is on: its load needs the mask, and columns end at n_cols − 1."
WRONG = [
    (MASK, "mask = cols < BLOCK", PAST),
    (MASK, "mask = cols <= n_cols", PAST),
    (MASK, "mask = cols < n_cols - 1", "The last column, n_cols − 1, belongs to the row."),
    (MASK, "mask = cols > n_cols", "The lanes of the row are those below n_cols."),
    (LOAD, LOAD.replace("row * n_cols + ", ""), "Every program reads row 0: add row * n_cols."),
    (LOAD, LOAD.replace("row * n_cols", "row"), "Rows begin n_cols elements apart, not one."),
    (
        LOAD,
        LOAD.replace("row * n_cols", "row * BLOCK"),
        "Rows begin n_cols elements apart: BLOCK is the size of the tile.",
    ),
    (LOAD, LOAD.replace(", mask=mask", ""), PAST),
    (LOAD, LOAD.replace("x_ptr", "y_ptr"), "That reads y, which nobody has written yet."),
]
