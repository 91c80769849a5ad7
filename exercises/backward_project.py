"""The project: a backward kernel of your own

kind: project
level: 3
minutes: 60
teaches: everything above, in a kernel that a library could ship

Write the backward pass of softmax that recomputes y from x. Program i takes row i of x and dy, of
any length, and the row's log-sum-exp `lse[i]` in float32; with y = exp(x − lse) it writes row i of
dx = y · (dy − Σ y · dy). Rows begin `x_row_stride`, `dy_row_stride` and `dx_row_stride` elements
apart. BLOCK is a power of two, and may be smaller than `n_cols`.

x, dy and dx are float32, float16, bfloat16 or float64; compute in float32 and round once. x may
hold −∞. Read x and dy at most twice, write dx once, and touch nothing between rows. The check
compares with the derivative of the loss, taken numerically.

hint: Two loops: the first adds up s = Σ y · dy, the second computes y again and writes.

hint: lse is float32, and so is whatever meets it: x − lse, y, y · dy and its sum. Where two 16-bit
numbers meet, `.to(tl.float32)` right after the load keeps their digits.

hint: Masked lanes of x hold −∞, so their y is 0; those of dy hold 0.

hint: `tl.store` rounds to the type of dx by itself.
"""

import triton
import triton.language as tl


@triton.jit
def softmax_backward_kernel(
    x_ptr,
    lse_ptr,
    dy_ptr,
    dx_ptr,
    x_row_stride,
    dy_row_stride,
    dx_row_stride,
    n_cols,
    BLOCK: tl.constexpr,
):
    # start
    ...
    # solved
    row = tl.program_id(0)
    lse = tl.load(lse_ptr + row)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        x = tl.load(x_ptr + row * x_row_stride + cols, mask=mask, other=-float("inf"))
        dy = tl.load(dy_ptr + row * dy_row_stride + cols, mask=mask, other=0.0)
        s += tl.sum(tl.exp(x.to(tl.float32) - lse) * dy.to(tl.float32), axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        x = tl.load(x_ptr + row * x_row_stride + cols, mask=mask, other=-float("inf"))
        dy = tl.load(dy_ptr + row * dy_row_stride + cols, mask=mask, other=0.0)
        dx = tl.exp(x.to(tl.float32) - lse) * (dy.to(tl.float32) - s)
        tl.store(dx_ptr + row * dx_row_stride + cols, dx, mask=mask)
    # end


# ---- check ----
import math

from softmax_playground.checker.judge import needs
from softmax_playground.checker.rows import GAP, at_most, gradients, hostile
from softmax_playground.small_triton.right import INF, logsumexp, softmax, softmax_backward

DIGITS = {"float32": 2e-4, "float16": 2e-3, "bfloat16": 1e-2, "float64": 2e-4}
RUNS = (
    (11, 4, "float32", (0, 0, 0)),
    (13, 16, "float32", (3, 1, 2)),
    (9, 4, "float16", (0, 2, 0)),
    (12, 4, "bfloat16", (0, 0, 1)),
    (5, 4, "float64", (1, 0, 0)),
    (1, 2, "float32", (0, 3, 1)),
)
"""(n_cols, BLOCK, the type, elements between the rows of x, dy and dx)"""


def derivative(x, dy):
    """Of the sum of dy · softmax(x), by differences."""
    found, h = [], 2.0**-14
    for j in range(len(x)):
        above = softmax([v + h * (i == j) for i, v in enumerate(x)])
        below = softmax([v - h * (i == j) for i, v in enumerate(x)])
        found.append(sum([g * (a - b) for g, a, b in zip(dy, above, below)]) / (2 * h))
    return found


def formula(x, dy, lse):
    """The same where lse is so large that its rounding counts."""
    y = [math.exp(v - lse) if v > -INF else 0.0 for v in x]
    return softmax_backward(y, dy)


def check(names, lab):
    kernel = needs(names, "softmax_backward_kernel")
    for n, block, dtype, gaps in RUNS:
        lowest = {"float16": -1e4, "bfloat16": -1e30}.get(dtype, -INF)
        rows, why = hostile(n)
        keep = [i for i in range(len(rows)) if max(rows[i]) > lowest]
        why = [why[i] or (GAP if sum(gaps) else None) for i in keep]
        x = lab.tensor([rows[i] for i in keep], "x", gap=gaps[0], dtype=dtype)
        rows = lab.values(x)
        dy = lab.tensor(gradients(rows), "dy", gap=gaps[1], dtype=dtype)
        lse = lab.tensor([logsumexp(row) for row in rows], "lse")
        height = len(rows)
        dx = lab.empty((height, n), "dx", gap=gaps[2], dtype=dtype)
        steps = [n + gap for gap in gaps]
        lab.launch(kernel, (height,), x, lse, dy, dx, *steps, n, BLOCK=block)
        right = [
            derivative(*each[:2]) if abs(each[2]) < 50 else formula(*each)
            for each in zip(rows, lab.values(dy), lab.values(lse))
        ]
        of = None if dtype == "float32" else f"x, dy and dx are {dtype} here."
        why = [of or each for each in why]
        lab.compare(dx, right, why, digits=DIGITS[dtype], least=5e-5)
        at_most(lab, "x", 2 * n * height, times=2)
        at_most(lab, "dy", 2 * n * height, times=2)
        at_most(lab, "dx", n * height, "store")
        at_most(lab, "dx", 0)
    return (
        "Right, against the derivative, in four types, with gaps, −∞ and any length. This kernel"
        " runs on a GPU as it stands."
    )


DX = "tl.exp(x.to(tl.float32) - lse) * (dy.to(tl.float32) - s)"
SUM = "s += tl.sum(tl.exp(x.to(tl.float32) - lse) * dy.to(tl.float32), axis=0)"
LOAD = 'x = tl.load(x_ptr + row * x_row_stride + cols, mask=mask, other=-float("inf"))'
FIRST = (
    LOAD
    + "\n        dy = tl.load(dy_ptr + row * dy_row_stride + cols, mask=mask, other=0.0)\n        s"
)
WRONG = [
    (SUM, "s += tl.sum(dy.to(tl.float32), axis=0)", "s weights every dy with its y."),
    (SUM, SUM.replace("+=", "="), "That is the sum of the last tile: add it to s."),
    (SUM, SUM.replace(" - lse", ""), "y is exp(x − lse): without lse the sum has no scale."),
    (
        SUM,
        "s += tl.sum((tl.exp(x.to(tl.float32) - lse) * dy.to(tl.float32)).to(dy.dtype), axis=0)"
        ".to(tl.float32)",
        "A sum in 16 bits loses its digits: add in float32, and round once.",
    ),
    (
        DX,
        DX.replace("dy.to(tl.float32) - s", "dy.to(tl.float32)"),
        "s is missing: dx does not add up to 0.",
    ),
    (DX, DX.replace(" - s", " + s"), "The sign: s is subtracted."),
    (DX, "dy.to(tl.float32) - s", "The factor y is missing."),
    (DX, DX.replace(" - lse", ""), "y is exp(x − lse)."),
    ("dx_ptr + row * dx_row_stride", "dx_ptr + row * x_row_stride", "dx has a stride of its own."),
    ("dx_ptr + row * dx_row_stride", "dx_ptr + row * n_cols", "dx has a stride of its own."),
    (
        FIRST,
        FIRST.replace('-float("inf")', "0.0"),
        "A masked lane of 0 has the y exp(−lse), which"
        " overflows in rows far below 0; and ∞ · 0 is NaN.",
    ),
    (
        FIRST,
        FIRST.replace('-float("inf")', "-1e6"),
        "Some rows' lse is lower than that: there a masked lane's y overflows.",
    ),
    (
        FIRST,
        FIRST.replace("row * dy_row_stride", "row * x_row_stride"),
        "dy has a stride of its own.",
    ),
    ("lse_ptr + row)", "lse_ptr)", "Every row has its own lse: lse_ptr + row."),
]
