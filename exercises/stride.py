"""Rows that lie apart

kind: find the bug
level: 1
minutes: 4
teaches: use a stride where a row begins

It works on a whole matrix, but not on a slice of a wider one: the rows of a slice have gaps between
them, and this kernel reads into the gaps. Change one line.

hint: Which tensor and which element does the message name? Element 11 comes right after row 0.

hint: The kernel is given two strides. Does it use both?
"""

import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_row_stride, y_row_stride, n_cols, BLOCK: tl.constexpr):
    """Program i computes row i; from row to row it is x_row_stride elements in x, y_row_stride in
    y."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    # start
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=-float("inf"))
    # solved
    x = tl.load(x_ptr + row * x_row_stride + cols, mask=mask, other=-float("inf"))
    # end
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)
    tl.store(y_ptr + row * y_row_stride + cols, y, mask=mask)


# ---- check ----
from softmax_playground.checker.judge import needs
from softmax_playground.checker.rows import hostile
from softmax_playground.small_triton.right import softmax


def check(names, lab):
    kernel = needs(names, "softmax_kernel")
    for n, x_gap, y_gap in ((11, 0, 0), (11, 3, 2), (11, 5, 0), (11, 0, 4), (1, 2, 1), (16, 1, 7)):
        rows, why = hostile(n)
        height = len(rows)
        x, y = lab.tensor(rows, "x", gap=x_gap), lab.empty((height, n), "y", gap=y_gap)
        lab.launch(kernel, (height,), x, y, n + x_gap, n + y_gap, n, BLOCK=16)
        lab.compare(y, softmax(rows), why, digits=1e-4 * (n > 1))
    return "Right: rows may lie further apart than they are long."


LINE = "x_ptr + row * x_row_stride + cols"
WRONG = [
    (
        LINE,
        "x_ptr + row * n_cols + cols",
        "The length says where a row ends, the stride where the next begins.",
    ),
    (LINE, "x_ptr + row * y_row_stride + cols", "That is the stride of y, which may be another."),
    (LINE, "x_ptr + row * BLOCK + cols", "BLOCK is the size of the tile, not the stride of x."),
    (LINE, "x_ptr + (row + cols) * x_row_stride", "From column to column it is one element."),
    ("y_ptr + row * y_row_stride", "y_ptr + row * x_row_stride", "y has a stride of its own."),
    ("y_ptr + row * y_row_stride", "y_ptr + row * n_cols", "The rows of y may lie apart too."),
]
