"""The gradient of a logarithm

kind: find the bug
level: 2
minutes: 6
teaches: log-softmax has a Jacobian of its own

This kernel computes the gradient of log-softmax, y = x − lse. It passes as long as dy adds up to 0,
and fails otherwise. Change one line.

hint: Which term is left out, and when is it 0?

hint: Every x[j] also moves the log-sum-exp of its row, which all outputs subtract.
"""

import triton
import triton.language as tl


@triton.jit
def backward_kernel(y_ptr, dy_ptr, dx_ptr, n_cols, BLOCK: tl.constexpr):
    """Program i computes row i; y is log-softmax(x)."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    y = tl.load(y_ptr + row * n_cols + cols, mask=mask, other=-float("inf"))
    dy = tl.load(dy_ptr + row * n_cols + cols, mask=mask, other=0.0)
    # start
    dx = dy
    # solved
    dx = dy - tl.exp(y) * tl.sum(dy, axis=0)
    # end
    tl.store(dx_ptr + row * n_cols + cols, dx, mask=mask)


# ---- check ----
from softmax_playground.checker.judge import needs
from softmax_playground.checker.rows import at_most, gradients, hostile
from softmax_playground.small_triton.right import log_softmax, softmax


def check(names, lab):
    kernel = needs(names, "backward_kernel")
    for n, block in ((11, 16), (8, 8), (9, 16), (1, 1)):
        rows = hostile(n)[0]
        rows = [row for row in rows if row[0] > -1e30]
        y, p, dy = log_softmax(rows), softmax(rows), gradients(rows)
        dx = lab.empty((len(y), n), "dx")
        lab.launch(kernel, (len(y),), lab.tensor(y, "y"), lab.tensor(dy, "dy"), dx, n, BLOCK=block)
        right = [[b - a * sum(g) for a, b in zip(q, g)] for q, g in zip(p, dy)]
        lab.compare(dx, right, least=2e-4)
        at_most(lab, "y", n * len(y))
        at_most(lab, "dy", n * len(y))
    return "Right: dy for the element itself, and its share of what the log-sum-exp moves."


DX = "dy - tl.exp(y) * tl.sum(dy, axis=0)"
WRONG = [
    (DX, "dy", "That is the identity: it leaves out that x moves the log-sum-exp as well."),
    (DX, "dy - y * tl.sum(dy, axis=0)", "y is the logarithm here: the share is exp(y)."),
    (DX, "dy - tl.exp(y)", "The sum of dy is missing beside exp(y)."),
    (DX, "dy + tl.exp(y) * tl.sum(dy, axis=0)", "The sign: the log-sum-exp is subtracted."),
    (
        DX,
        "tl.exp(y) * (dy - tl.sum(tl.exp(y) * dy, axis=0))",
        "That is softmax's gradient, and y is log-softmax here.",
    ),
    (DX, "dy - tl.sum(dy, axis=0)", "Each x[j] moves the log-sum-exp by its share, exp(y[j])."),
    (DX, "dy - tl.exp(y) * tl.sum(tl.exp(y) * dy, axis=0)", "The sum is of dy alone."),
]
