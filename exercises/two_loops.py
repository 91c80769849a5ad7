"""Two loops, from nothing

kind: blank page
level: 3
minutes: 20
teaches: write the online softmax without a model

Softmax of one row per program, of any length, in two loops: the first finds m and d together, the
second writes. x may be read twice. A row may begin with a whole tile of −∞.

hint: Carry m and d; for each tile, m_new is the larger of m and the tile's maximum.

hint: d becomes d · exp(m − m_new) plus the tile's sum of exp(x − m_new). Take care of m_new = −∞.

hint: `shift = tl.where(m_new > -float("inf"), m_new, 0.0)`, and shift instead of m_new in both.
"""

import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    # start
    ...
    # solved
    row = tl.program_id(0)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=-float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new > -float("inf"), m_new, 0.0)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols)
        tl.store(y_ptr + row * n_cols + cols, tl.exp(x - m) / d, mask=cols < n_cols)
    # end


# ---- check ----
from softmax_playground.checker.judge import needs
from softmax_playground.checker.rows import at_most, hostile, one_block

WIDTHS = ((12, 4), (11, 4), (13, 4), (3, 4), (1, 2), (8, 8))


def check(names, lab):
    one_block(lab, needs(names, "softmax_kernel"), widths=WIDTHS)
    at_most(lab, "x", 2 * 8 * len(hostile(8)[0]), times=2)
    return "Right: this is the online softmax, and it holds for every row."


WRONG = [
    (
        "tl.maximum(m, tl.max(x, axis=0))",
        "tl.max(x, axis=0)",
        "m must not fall: keep the larger of m and the tile's.",
    ),
    ("        m = m_new\n", "", "The next tile needs the maximum so far: m = m_new."),
    (
        'm = -float("inf")\n',
        "m = 0.0\n",
        "A maximum that starts at 0 is larger than negative rows.",
    ),
    ('m = -float("inf")\n', "m = -1e6\n", "Some rows' maximum is lower than that: start at −∞."),
    (
        'tl.where(m_new > -float("inf"), m_new, 0.0)',
        "m_new",
        "A tile with nothing but −∞: −∞ − (−∞) is NaN.",
    ),
    ("d * tl.exp(m - shift)", "d", "The old sum is relative to the old maximum: rescale it."),
    (
        "d * tl.exp(m - shift)",
        "d * tl.exp(shift - m)",
        "The factor is upside down: it is at most 1.",
    ),
    ("d * tl.exp(m - shift) + ", "", "The old sum is missing."),
    (
        "tl.sum(tl.exp(x - shift), axis=0)",
        "tl.sum(tl.exp(x - m), axis=0)",
        "The new terms are relative to the new maximum, not to the old.",
    ),
    ("tl.exp(x - m) / d", "tl.exp(x - m)", "Divide by d, the sum of the exponentials."),
]
