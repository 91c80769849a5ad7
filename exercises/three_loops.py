"""Three loops, from nothing

kind: blank page
level: 2
minutes: 15
teaches: write the loops themselves

Softmax of one row per program, for a row of any length: BLOCK is a power of two, and mostly smaller
than `n_cols`. Use three loops, for the maximum, the sum, and the result. Each may read x once.

hint: `for start in range(0, n_cols, BLOCK):`, then `cols = start + tl.arange(0, BLOCK)`.

hint: The maximum starts at −∞ and the sum at 0; masked lanes hold −∞.

hint: The third loop loads x again, and stores `tl.exp(x - m) / d` with the same mask.
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
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=-float("inf"))
        m = tl.maximum(m, tl.max(x, axis=0))
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=-float("inf"))
        d += tl.sum(tl.exp(x - m), axis=0)
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
    at_most(lab, "x", 3 * 8 * len(hostile(8)[0]), times=3)
    return "Right: three reads and one write, for rows of any length, from an empty page."


RANGE = "range(0, n_cols, BLOCK)"
FIRST, SECOND, THIRD = [
    f"{before}\n    for start in {RANGE}" for before in ('m = -float("inf")', "d = 0.0", "axis=0)")
]
THIRD = f"tl.sum(tl.exp(x - m), {THIRD}"
EARLY = [
    (loops, loops.replace("n_cols", f"n_cols - {less}"), remark)
    for less in ("1", "BLOCK")
    for loops, remark in (
        (FIRST, "The first loop ends too early: what it leaves out may hold the maximum."),
        (SECOND, "The second loop ends too early: the sum lacks the row's last columns."),
        (THIRD, "The third loop ends too early, and leaves out the row's last columns."),
        (RANGE, "The loops end too early: range(0, n_cols, BLOCK) stops before n_cols by itself."),
    )
]
WRONG = EARLY + [
    (
        RANGE,
        "range(0, n_cols)",
        "Without a step of BLOCK the tiles overlap, and columns count twice.",
    ),
    ("start + tl.arange", "tl.arange", "Every turn takes the first columns: add start."),
    (
        'm = -float("inf")\n',
        "m = 0.0\n",
        "A maximum that starts at 0 is larger than negative rows.",
    ),
    ('m = -float("inf")\n', "m = -1e6\n", "Some rows' maximum is lower than that: start at −∞."),
    (
        "tl.maximum(m, tl.max(x, axis=0))",
        "tl.max(x, axis=0)",
        "Keep the larger of m and the tile's.",
    ),
    ("d += tl.sum", "d = tl.sum", "That is the sum of the last tile: add it to d."),
    (
        "tl.sum(tl.exp(x - m), axis=0)",
        "tl.sum(tl.exp(x), axis=0)",
        "The sum must be relative to m.",
    ),
    ("tl.exp(x - m) / d", "tl.exp(x - m)", "Divide by d, the sum of the exponentials."),
    ("tl.exp(x - m) / d", "tl.exp(x) / d", "The numerator must be relative to m too."),
]
