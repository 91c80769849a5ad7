"""A tile with nothing in it

kind: find the bug
level: 2
minutes: 6
teaches: what a loop does while it has met nothing but −∞

Masks put −∞ into rows. This kernel is right until a row *begins* with a whole tile of −∞: then the
row is NaN. Change one line.

hint: After such a tile m_new is −∞. What is x − m_new?

hint: Shift by a finite number while there is none: `tl.where(m_new > -float("inf"), m_new, 0.0)`.
"""

import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    """Program i computes row i in two loops."""
    row = tl.program_id(0)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=-float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=0))
        # start
        shift = m_new
        # solved
        shift = tl.where(m_new > -float("inf"), m_new, 0.0)
        # end
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=-float("inf"))
        tl.store(y_ptr + row * n_cols + cols, tl.exp(x - m) / d, mask=cols < n_cols)


# ---- check ----
from softmax_playground.checker.judge import needs
from softmax_playground.checker.rows import one_block


def check(names, lab):
    one_block(lab, needs(names, "softmax_kernel"), widths=((8, 4), (11, 4), (5, 4), (1, 4)))
    return "Right: relative to 0, an exponential of −∞ is 0, and the row goes on."


SHIFT = 'tl.where(m_new > -float("inf"), m_new, 0.0)'
WRONG = [
    (SHIFT, "m_new", "A tile with nothing but −∞ has m_new = −∞, and −∞ − (−∞) is NaN."),
    (SHIFT, "0.0", "A shift of 0 is no shift: exp(x) overflows in other rows."),
    (
        SHIFT,
        "tl.maximum(m_new, 0.0)",
        "0 is larger than the maximum of negative rows: shift by m_new wherever it is finite.",
    ),
    (SHIFT, "tl.maximum(m_new, -1e6)", "Some rows' maximum is lower than that: test for −∞."),
    (SHIFT, 'tl.where(m_new > -float("inf"), 0.0, m_new)', "The two cases are swapped."),
    (SHIFT, 'tl.where(m > -float("inf"), m, 0.0)', "m is the old maximum; the tile may hold more."),
]
