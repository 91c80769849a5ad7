"""Softmax with any stride

kind: blank page
level: 2
minutes: 15
teaches: a whole kernel from an empty page, for rows, columns and slices

Write softmax of the rows of a matrix with any strides: x[i, j] lies at
`i * x_row_stride + j * x_col_stride`, and y likewise. Program i computes row i; BLOCK is a power of
two, at least `n_cols`. Read and write each element once.

hint: Six lines: row, columns, mask, load, exponentials, store.

hint: The mask is about column numbers, not about addresses: `cols < n_cols` with any stride.

hint: `x_ptr + row * x_row_stride + cols * x_col_stride` is the tile of pointers, and masked lanes
hold −∞.
"""

import triton
import triton.language as tl


@triton.jit
def softmax_kernel(
    x_ptr,
    y_ptr,
    x_row_stride,
    x_col_stride,
    y_row_stride,
    y_col_stride,
    n_cols,
    BLOCK: tl.constexpr,
):
    # start
    ...
    # solved
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x_at = row * x_row_stride + cols * x_col_stride
    y_at = row * y_row_stride + cols * y_col_stride
    x = tl.load(x_ptr + x_at, mask=mask, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + y_at, e / tl.sum(e, axis=0), mask=mask)
    # end


# ---- check ----
from softmax_playground.checker.judge import needs
from softmax_playground.checker.rows import at_most, hostile
from softmax_playground.small_triton.right import softmax


def turned(rows):
    return [list(each) for each in zip(*rows)]


def check(names, lab):
    kernel = needs(names, "softmax_kernel")
    for n, block, columns, gap, y_gap in (
        (7, 8, False, 0, 0),
        (9, 16, False, 3, 1),
        (8, 8, True, 0, 0),
        (5, 8, True, 2, 4),
        (1, 1, False, 1, 0),
    ):
        rows, why = hostile(n, n)
        right = softmax(rows)
        if columns:  # the rows are the columns of what lies there
            x, y = lab.tensor(turned(rows), "x", gap=gap), lab.empty((n, len(rows)), "y", gap=y_gap)
            strides = 1, len(rows) + gap, 1, len(rows) + y_gap
            right, why = turned(right), None
        else:
            x, y = lab.tensor(rows, "x", gap=gap), lab.empty((len(rows), n), "y", gap=y_gap)
            strides = n + gap, 1, n + y_gap, 1
        lab.launch(kernel, (len(rows),), x, y, *strides, n, BLOCK=block)
        lab.compare(y, right, why, digits=1e-4 * (n > 1))
        at_most(lab, "x", n * len(rows))
        at_most(lab, "y", n * len(rows), "store")
    return "Right, for rows, for columns, and for slices of either."


WRONG = [
    ("cols * x_col_stride", "cols", "x_col_stride may be more than 1: multiply cols by it."),
    ("cols * y_col_stride", "cols", "y_col_stride may be more than 1: multiply cols by it."),
    ("row * x_row_stride", "row * n_cols", "Rows of x begin x_row_stride elements apart."),
    ("row * y_row_stride", "row * x_row_stride", "y has a row stride of its own."),
    ("cols * y_col_stride", "cols * x_col_stride", "y has a column stride of its own."),
    (
        "x_at = row * x_row_stride + cols * x_col_stride",
        "x_at = row * x_col_stride + cols * x_row_stride",
        "The two strides of x are swapped.",
    ),
    ('other=-float("inf")', "other=-1e6", "Some rows' maximum is lower than that: use −∞."),
    ("x - tl.max(x, axis=0)", "x", "Without the maximum exp(x) overflows."),
]
