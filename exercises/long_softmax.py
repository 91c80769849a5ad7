"""Long softmax, in three loops

kind: fill in
level: 2
minutes: 10
teaches: tiles of two axes, and a row longer than a tile

A program takes several rows, so its tiles have two axes. You write the whole third loop. After
puzzle 8 of the [Triton Puzzles](../reference/sources.md#triton-puzzles).

hint: Reduce along `axis=1`: the result has `ROWS` numbers, as `m` has.

hint: To combine `m` with a tile again, give it a second axis: `m[:, None]`.

hint: The third loop begins like the others, and ends with a `tl.store` to the same addresses with
the same mask.
"""

import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    """A program takes ROWS rows and walks along them in tiles of ROWS × COLS."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    m = tl.full((ROWS,), -float("inf"), tl.float32)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
        at = rows[:, None] * n_cols + cols[None, :]
        x = tl.load(x_ptr + at, mask=mask, other=-float("inf"))
        # start
        m = ...
        # solved
        m = tl.maximum(m, tl.max(x, axis=1))
        # end
    m = tl.where(rows < n_rows, m, 0.0)  # rows past the end, where -inf minus -inf would be NaN
    d = tl.zeros((ROWS,), tl.float32)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
        at = rows[:, None] * n_cols + cols[None, :]
        x = tl.load(x_ptr + at, mask=mask, other=-float("inf"))
        # start
        d = ...
        # solved
        d += tl.sum(tl.exp(x - m[:, None]), axis=1)
        # end
    for start in range(0, n_cols, COLS):
        # start
        ...
        # solved
        cols = start + tl.arange(0, COLS)
        mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
        at = rows[:, None] * n_cols + cols[None, :]
        x = tl.load(x_ptr + at, mask=mask, other=-float("inf"))
        tl.store(y_ptr + at, tl.exp(x - m[:, None]) / d[:, None], mask=mask)
        # end


# ---- check ----
from softmax_playground.checker.judge import needs
from softmax_playground.checker.rows import in_tiles


def check(names, lab):
    in_tiles(lab, needs(names, "softmax_kernel"), 3)
    return "Right: three reads and one write, for rows of any length."


M, D, Y = "tl.maximum(m, tl.max(x, axis=1))", "d += tl.sum", "tl.exp(x - m[:, None]) / d[:, None]"
WRONG = [
    (M, "tl.max(x, axis=1)", "That is the maximum of the last tile: keep the larger of it and m."),
    (M, "m + tl.max(x, axis=1)", "Maxima of tiles are not added: take the larger one."),
    (M, "tl.maximum(m, tl.max(x))", "Each row has its own maximum: reduce along axis=1."),
    (D, "d = tl.sum", "That is the sum of the last tile: add it to d."),
    (
        "tl.sum(tl.exp(x - m[:, None]), axis=1)",
        "tl.sum(tl.exp(x), axis=1)",
        "Relative to m, or exp overflows, and the third loop has another scale.",
    ),
    (Y, "tl.exp(x - m[:, None])", "Divide by d, the sum of the exponentials."),
    (Y, "tl.exp(x) / d[:, None]", "The numerator must be relative to m too, as d is."),
]
