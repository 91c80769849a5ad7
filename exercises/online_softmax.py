"""Long softmax, in two loops

kind: fill in
level: 2
minutes: 8
teaches: the online recurrence on tiles: one read less

The first loop finds maximum and denominator together. The missing line adds a tile to the
denominators so far, relative to `shift`: the maximum so far, or 0 where that is −∞.

hint: In [the recurrence](../math/online.md) a tile takes the place of a number: rescale the old
sum, then add the sum of the new terms.

hint: The old part is `d * tl.exp(m - shift)`. At first `m` is −∞ and the factor 0.
"""

import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    """A program takes ROWS rows and walks along them in tiles of ROWS × COLS."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    m = tl.full((ROWS,), -float("inf"), tl.float32)
    d = tl.zeros((ROWS,), tl.float32)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
        at = rows[:, None] * n_cols + cols[None, :]
        x = tl.load(x_ptr + at, mask=mask, other=-float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new > -float("inf"), m_new, 0.0)
        # start
        d = ...
        # solved
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        # end
        m = m_new
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
        at = rows[:, None] * n_cols + cols[None, :]
        x = tl.load(x_ptr + at, mask=mask, other=-float("inf"))
        tl.store(y_ptr + at, tl.exp(x - m[:, None]) / d[:, None], mask=mask)


# ---- check ----
from softmax_playground.checker.judge import needs
from softmax_playground.checker.rows import in_tiles


def check(names, lab):
    in_tiles(lab, needs(names, "softmax_kernel"), 2)
    return "Right: two reads and one write; the first loop found both numbers."


OLD, NEW = "d * tl.exp(m - shift)", "tl.sum(tl.exp(x - shift[:, None]), axis=1)"
NAN = "After a tile of −∞ alone m_new is −∞, and −∞ − (−∞) is NaN: subtract shift instead."
WRONG = [
    (OLD, "d", "The old sum is relative to the old maximum: multiply it by exp(m − shift)."),
    (OLD, "d * tl.exp(m - m_new)", NAN),
    (OLD, "d * tl.exp(m_new - m)", "The factor is upside down: exp(m − shift) is at most 1."),
    (OLD + " + ", "", "That is the sum of the last tile alone: the old sum is missing."),
    (NEW, "tl.sum(tl.exp(x - m_new[:, None]), axis=1)", NAN),
    (
        NEW,
        "tl.sum(tl.exp(x - m[:, None]), axis=1)",
        "The new terms are relative to the new maximum.",
    ),
    (NEW, "tl.exp(tl.max(x, axis=1) - shift)", "Every element of the tile adds a term to the sum."),
    (NEW, "tl.sum(tl.exp(x), axis=1)", "The new terms must be relative to shift."),
]
