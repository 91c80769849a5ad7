"""Log-sum-exp as a kernel

kind: blank page
level: 2
minutes: 10
teaches: one number per row, written by one lane

Write the log-sum-exp of each row: program i reads row i of x once, and writes element i of y. Rows
lie one after the other; BLOCK is a power of two, at least `n_cols`.

hint: `tl.max` and `tl.sum` of a tile are single numbers, and `y_ptr + row` points to one element.

hint: m + log(d), where d is the sum of exp(x − m) and masked lanes hold −∞.
"""

import triton
import triton.language as tl


@triton.jit
def lse_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    # start
    ...
    # solved
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=-float("inf"))
    m = tl.max(x, axis=0)
    d = tl.sum(tl.exp(x - m), axis=0)
    tl.store(y_ptr + row, m + tl.log(d))
    # end


# ---- check ----
from softmax_playground.checker.judge import needs
from softmax_playground.checker.rows import at_most, hostile, one_block
from softmax_playground.small_triton.right import logsumexp


def check(names, lab):
    one_block(lab, needs(names, "lse_kernel"), of=logsumexp, size=1)
    at_most(lab, "x", 9 * len(hostile(9)[0]))
    at_most(lab, "y", len(hostile(9)[0]), "store")
    return "Right: one number is all that a backward pass has to keep of a row."


WRONG = [
    ("m + tl.log(d)", "m + d", "The logarithm is missing: m + log d, not m + d."),
    ("m + tl.log(d)", "tl.log(d)", "The maximum that was subtracted has to be added again."),
    ("m + tl.log(d)", "m * tl.log(d)", "exp(m) · d becomes m + log d."),
    ("m + tl.log(d)", "m + tl.log2(d)", "exp needs the natural logarithm, tl.log."),
    (
        "m + tl.log(d)",
        "m + tl.log(d + 1e-6)",
        "d is at least 1, exp(m − m): an epsilon protects nothing.",
    ),
    ("m + tl.log(d)", "m - tl.log(d)", "Log-sum-exp is at least the maximum: add log d."),
    ("tl.exp(x - m)", "tl.exp(x)", "exp(x) is no longer relative to m, and overflows."),
    ('other=-float("inf")', "other=0.0", "A masked lane of 0 adds exp(0 − m) to the sum."),
    ('other=-float("inf")', "other=-1e6", "Some rows' maximum is lower than that: use −∞."),
    ("y_ptr + row", "y_ptr", "Every program writes element 0: add row."),
    ("y_ptr + row", "y_ptr + row * n_cols", "y has one number per row: they lie side by side."),
]
