"""No element twice

kind: budget
level: 2
minutes: 8
teaches: find the second read in a backward kernel

This backward kernel is right, and reads y and dy twice. Make it read no element twice; BLOCK is at
least `n_cols`.

hint: Which of the loads ask for what is in registers already?
"""

import triton
import triton.language as tl


@triton.jit
def backward_kernel(y_ptr, dy_ptr, dx_ptr, n_cols, BLOCK: tl.constexpr):
    """Program i computes row i of dx = y · (dy − s), where s is the sum of y · dy."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    # start
    at = row * n_cols + cols
    product = tl.load(y_ptr + at, mask=mask, other=0.0) * tl.load(dy_ptr + at, mask=mask, other=0.0)
    s = tl.sum(product, axis=0)
    dy = tl.load(dy_ptr + at, mask=mask, other=0.0)
    dx = tl.load(y_ptr + at, mask=mask, other=0.0) * (dy - s)
    tl.store(dx_ptr + at, dx, mask=mask)
    # solved
    at = row * n_cols + cols
    y = tl.load(y_ptr + at, mask=mask, other=0.0)
    dy = tl.load(dy_ptr + at, mask=mask, other=0.0)
    s = tl.sum(y * dy, axis=0)
    tl.store(dx_ptr + at, y * (dy - s), mask=mask)
    # end


# ---- check ----
from softmax_playground.checker.judge import Wrong, needs
from softmax_playground.checker.rows import gradients, hostile
from softmax_playground.small_triton.right import softmax, softmax_backward


def check(names, lab):
    kernel = needs(names, "backward_kernel")
    for n, block in ((11, 16), (8, 8), (9, 16), (1, 1)):
        y = softmax(hostile(n)[0])
        dy = gradients(y)
        dx = lab.empty((len(y), n), "dx")
        lab.launch(kernel, (len(y),), lab.tensor(y, "y"), lab.tensor(dy, "dy"), dx, n, BLOCK=block)
        lab.compare(dx, softmax_backward(y, dy), least=2e-5 if n > 1 else 1e-4)
        for name in ("y", "dy", "dx"):
            times = lab.most("load", name)
            if times > (name != "dx"):
                raise Wrong(f"The result is right, but an element of {name} is read {times} times.")
        if lab.most("store", "dx") > 1:
            raise Wrong("The result is right, but an element of dx is written twice.")
    return "Right: 2MN read, MN written, and no element twice."


DY = "    dy = tl.load(dy_ptr + at, mask=mask, other=0.0)\n"
WRONG = [
    (DY, 2 * DY, "dy is in registers after its first load."),
    (
        "tl.store(dx_ptr + at, y * (dy - s), mask=mask)",
        "tl.store(dx_ptr + at, y * dy, mask=mask)\n"
        "    tl.store(dx_ptr + at, y * (dy - s), mask=mask)",
        "Store only the result.",
    ),
    ("tl.sum(y * dy, axis=0)", "tl.sum(dy, axis=0)", "s is the sum of y · dy."),
    ("y * (dy - s)", "y * dy", "s is missing: without it dx does not add up to 0."),
]
