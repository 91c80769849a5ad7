"""What a masked lane contributes

kind: find the bug
level: 1
minutes: 4
teaches: which value a masked lane must have

Rows whose length is a power of two are right. The others do not add up to one: masked lanes still
take part in `tl.max` and `tl.sum`, with the value `other`. Change one word.

hint: What does x = 0 add to the sum of exponentials, and what does it do to the maximum of negative
numbers?

hint: For which x is exp(x − m) zero, whatever m is?
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
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=0.0)
    # solved
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=-float("inf"))
    # end
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * n_cols + cols, e / tl.sum(e, axis=0), mask=mask)


# ---- check ----
from softmax_playground.checker.judge import KERNELS_NAMES, needs
from softmax_playground.checker.rows import one_block


def check(names, lab):
    one_block(lab, needs(names, "softmax_kernel"))
    return "Right: a lane past the end must not change the maximum, nor the sum."


OTHER = 'other=-float("inf")'
NAN = "Masked lanes are NaN or +∞ here, and spread to the sum; without `other` they hold anything."
WRONG = [
    (OTHER, "other=0.0", "exp(0 − m) of each masked lane is added to the sum."),
    (OTHER, "other=1.0", "Each masked lane adds exp(1 − m) to the sum."),
    (
        OTHER,
        "other=-1e6",
        "Some rows' maximum is lower than that: there a masked lane is the maximum.",
    ),
    (OTHER, "other=-1e9", "It is below these rows, but not below every float32: use −∞."),
    (OTHER, "other=-3.4028234663852886e38", "That float32 may be in the row itself: use −∞."),
    (OTHER, 'other=float("inf")', NAN),
    (OTHER, "other=-math.inf", KERNELS_NAMES),
    (OTHER, "other=-np.inf", KERNELS_NAMES),
    (", " + OTHER, "", NAN),
    (OTHER, 'other=float("nan")', NAN),
]
