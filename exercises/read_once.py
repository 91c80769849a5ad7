"""The same in 2MN elements

kind: budget
level: 2
minutes: 8
teaches: what is in registers need not be read again

This kernel is right, and moves 4MN elements. BLOCK is at least `n_cols`, so a row fits. Make it
move 2MN: read each element once, and write each once.

hint: After the first load the row is in registers.

hint: One `tl.load`, then maximum, exponentials, sum and `tl.store`.
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
    m = tl.max(tl.load(x_ptr + row * n_cols + cols, mask=mask, other=-float("inf")), axis=0)
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=-float("inf"))
    d = tl.sum(tl.exp(x - m), axis=0)
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=-float("inf"))
    tl.store(y_ptr + row * n_cols + cols, tl.exp(x - m) / d, mask=mask)
    # solved
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=-float("inf"))
    m = tl.max(x, axis=0)
    e = tl.exp(x - m)
    tl.store(y_ptr + row * n_cols + cols, e / tl.sum(e, axis=0), mask=mask)
    # end


# ---- check ----
from softmax_playground.checker.judge import needs
from softmax_playground.checker.rows import at_most, hostile, one_block


def check(names, lab):
    for n, block in ((9, 16), (8, 8), (1, 1), (11, 16)):
        one_block(lab, needs(names, "softmax_kernel"), widths=((n, block),))
        elements = n * len(hostile(n)[0])
        at_most(lab, "x", elements)
        at_most(lab, "y", 0)
        at_most(lab, "y", elements, "store")
    return "Right: MN read and MN written. No softmax can do with fewer."


LOAD = '    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=-float("inf"))\n'
WRONG = [
    (LOAD, 2 * LOAD, "There are still two loads: one is enough, the row stays in registers."),
    (
        LOAD,
        3 * LOAD,
        "Three loads read the row three times: it stays in registers after the first.",
    ),
    (
        "    m = ",
        "    tl.store(y_ptr + row * n_cols + cols, x, mask=mask)\n    m = ",
        "The result is written twice: keep intermediate values in registers.",
    ),
    ("tl.exp(x - m)", "tl.exp(x)", "Without the maximum exp(x) overflows."),
    ("e / tl.sum(e, axis=0)", "e", "The exponentials still have to be divided by their sum."),
]
