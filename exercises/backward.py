"""The backward pass

kind: fill in
level: 2
minutes: 6
teaches: softmax's gradient as a kernel, with two reads and one write

dx = y · (dy − s), where s is the sum of y · dy along the row. Read each input once.

hint: Load `dy` as `y` is loaded. Its masked lanes must not add to the sum.

hint: `tl.sum` along `axis=0` gives the one number `s`.
"""

import triton
import triton.language as tl


@triton.jit
def backward_kernel(y_ptr, dy_ptr, dx_ptr, n_cols, BLOCK: tl.constexpr):
    """Program i computes row i, and reads each input once."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    y = tl.load(y_ptr + row * n_cols + cols, mask=mask, other=0.0)
    # start
    dy = ...
    s = ...
    # solved
    dy = tl.load(dy_ptr + row * n_cols + cols, mask=mask, other=0.0)
    s = tl.sum(y * dy, axis=0)
    # end
    tl.store(dx_ptr + row * n_cols + cols, y * (dy - s), mask=mask)


# ---- check ----
from softmax_playground.checker.judge import needs
from softmax_playground.checker.rows import at_most, gradients, hostile
from softmax_playground.small_triton.right import softmax, softmax_backward


def check(names, lab):
    kernel = needs(names, "backward_kernel")
    for n, block in ((11, 16), (8, 8), (9, 16), (1, 1)):
        y = softmax(hostile(n)[0])
        dy = gradients(y)
        dx = lab.empty((len(y), n), "dx")
        lab.launch(kernel, (len(y),), lab.tensor(y, "y"), lab.tensor(dy, "dy"), dx, n, BLOCK=block)
        lab.compare(dx, softmax_backward(y, dy), least=2e-5 if n > 1 else 1e-4)
        at_most(lab, "y", n * len(y))
        at_most(lab, "dy", n * len(y))
    return "Right: two reads and one write."


LOAD, S = (
    "dy = tl.load(dy_ptr + row * n_cols + cols, mask=mask, other=0.0)",
    "tl.sum(y * dy, axis=0)",
)
NO_S = "s = Σ y · dy is what all outputs have in common; without it dx does not add up to 0."
WRONG = [
    (S, "tl.sum(dy, axis=0)", "s weights every dy with its y: the sum of y · dy."),
    (S, "tl.sum(y, axis=0)", "The sum of y is 1; s is the sum of y · dy."),
    (S, "tl.max(y * dy, axis=0)", "s is a sum along the row, not a maximum."),
    (S, "0.0", NO_S),
    (S, S + " / n_cols", "s is the sum, not the mean: y is its weights already."),
    (S, "-" + S, "The sign: s is subtracted."),
    (LOAD, LOAD.replace("dy_ptr", "y_ptr"), "That reads y once more; dy has a pointer of its own."),
    (LOAD, LOAD.replace("row * n_cols + ", ""), "Every program reads row 0 of dy."),
    (
        LOAD,
        LOAD.replace("other=0.0", 'other=-float("inf")'),
        "Masked lanes of dy are NaN or infinite here, and 0 times that is NaN: `other=0.0`.",
    ),
    (LOAD, LOAD.replace(", mask=mask, other=0.0", ""), "The load of dy needs the mask too."),
    (
        LOAD,
        LOAD + "\n    dy = tl.load(dy_ptr + row * n_cols + cols, mask=mask, other=0.0)",
        "Once is enough: dy is in registers.",
    ),
]
