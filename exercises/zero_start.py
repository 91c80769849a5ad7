"""Where a maximum starts

kind: find the bug
level: 1
minutes: 4
teaches: the neutral element of a maximum

It passes on random numbers, but returns NaN for the row (−1000, −1001). Change one line.

hint: What is `m` after the row (−1000, −1001), and what are then the exponentials?

hint: The maximum of no numbers is smaller than every number.
"""

import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    """Program i computes row i in two loops."""
    row = tl.program_id(0)
    # start
    m = 0.0
    # solved
    m = -float("inf")
    # end
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=-float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new > -float("inf"), m_new, 0.0)  # in a tile of -inf alone
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
    return "Right: before the first element the maximum is -inf, not 0."


LINE = '    m = -float("inf")\n'
WRONG = [
    (LINE, "    m = 0.0\n", "A maximum that starts at 0 is larger than every negative element."),
    (LINE, "    m = -1500.0\n", "Some rows' maximum is lower than that: only −∞ is below all."),
    (LINE, "    m = -1e6\n", "Some rows' maximum is lower than that: only −∞ is below all."),
    (
        LINE,
        "    m = -1e30\n",
        "Some rows' maximum is lower than that: float32 goes to −3.4·10³⁸.",
    ),
    (LINE, '    m = float("inf")\n', "The sign: +∞ is larger than every maximum."),
]
