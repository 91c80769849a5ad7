"""One read, one write

kind: fill in
level: 1
minutes: 6
teaches: softmax of a row that one program holds

The row is in registers, so read it only once. Two lines will do. In some rows of the check exp(x)
overflows.

hint: `x - tl.max(x, axis=0)` is a tile again.

hint: Name the exponentials: sum and result both need them.
"""

import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    """Program i computes row i. Subtract the maximum first, or exp overflows."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=-float("inf"))
    # start
    y = ...
    # solved
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)
    # end
    tl.store(y_ptr + row * n_cols + cols, y, mask=mask)


# ---- check ----
from softmax_playground.checker.judge import WRITE_IT, needs
from softmax_playground.checker.rows import at_most, hostile, one_block


def check(names, lab):
    one_block(lab, needs(names, "softmax_kernel"))
    elements = 9 * len(hostile(9)[0])
    at_most(lab, "x", elements)
    at_most(lab, "y", elements, "store")
    at_most(lab, "y", 0)
    return "Right: each number is read once and written once."


E, Y = "tl.exp(x - tl.max(x, axis=0))", "e / tl.sum(e, axis=0)"
AGAIN = "    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=0.0)\n    y = "
WRONG = [
    (E, "tl.exp(x)", "Without the maximum exp(x) overflows for large x, and is 0 for very small."),
    (E, "tl.exp(x - 1000.0)", "A fixed shift is right for some rows only: subtract the maximum."),
    (
        E,
        "tl.exp(x - tl.min(x, axis=0))",
        "Relative to the minimum exp overflows; and −∞ is the minimum of a masked row.",
    ),
    (E, "tl.exp(tl.max(x, axis=0) - x)", "The sign: exp(x − m), which is at most 1."),
    (E, "x - tl.max(x, axis=0)", "The exponential is missing."),
    (E, "tl.exp2(x - tl.max(x, axis=0))", "exp2 is 2 to a power: its argument needs log2(e)."),
    (
        Y,
        "e / (tl.sum(e, axis=0) + 1e-6)",
        "The sum is at least 1, exp(m − m): an epsilon protects nothing, and makes shares smaller.",
    ),
    (f"e = {E}\n    y = {Y}", "y = tl.softmax(x)", WRITE_IT),
    (Y, "e", "The exponentials do not add up to one yet: divide by their sum."),
    (Y, "e / n_cols", "The sum of the exponentials is not their number."),
    ("    y = ", AGAIN, "The row is in registers already."),
]
