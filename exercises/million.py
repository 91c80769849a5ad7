"""A million is not infinity

kind: find the bug
level: 1
minutes: 4
teaches: why a stand-in for −∞ fails, silently

Tests with usual logits pass. For a row of three numbers, all −2·10⁶, every share should be a third,
and is 0. Change one word.

hint: The tile has four lanes. Which of them holds the maximum?
"""

import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    """Program i computes row i."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    # start
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=-1e6)
    # solved
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=-float("inf"))
    # end
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * n_cols + cols, e / tl.sum(e, axis=0), mask=mask)


# ---- check ----
from softmax_playground.checker.judge import needs
from softmax_playground.checker.rows import one_block


def check(names, lab):
    one_block(lab, needs(names, "softmax_kernel"), widths=((8, 8), (5, 8), (2, 8), (11, 16)))
    return "Right: −∞ is below every number, and costs no more than −10⁶."


OTHER = 'other=-float("inf")'
WRONG = [
    (OTHER, "other=-1e6", "Some rows' maximum is lower than that."),
    (
        OTHER,
        "other=-1e7",
        "A larger number only moves the rows that fail: this one is the smallest.",
    ),
    (OTHER, "other=-3.4028234663852886e38", "The row may hold the smallest float32 itself."),
    (OTHER, "other=0.0", "0 is larger still than negative rows' maximum."),
]
