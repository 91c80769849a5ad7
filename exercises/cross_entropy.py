"""Cross-entropy and its gradient in one read

kind: blank page
level: 3
minutes: 20
teaches: loss and gradient fused: the logits are read once

Program i takes row i of the logits x and its class `target[i]`. It writes the loss lse(x) −
x[target] to `loss[i]`, and the gradient softmax(x) − onehot(target) to row i of dx. A target of
−100 marks a row that does not count: its loss and gradient are 0. Read each element of x only once,
including the target's.

hint: `target = tl.load(target_ptr + row)` is one number. `cols == target` is the one-hot row.

hint: The row is in registers: the target's logit is the sum of `tl.where(cols == target, x, 0.0)`.

hint: `m - at_target` is exact and small; `m + log(d)` would be rounded where m is large.

hint: If the target is −100, `tl.where(target >= 0, …, 0.0)` makes both results 0.
"""

import triton
import triton.language as tl


@triton.jit
def cross_entropy_kernel(x_ptr, target_ptr, loss_ptr, dx_ptr, n_cols, BLOCK: tl.constexpr):
    # start
    ...
    # solved
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    target = tl.load(target_ptr + row)
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=-float("inf"))
    m = tl.max(x, axis=0)
    e = tl.exp(x - m)
    d = tl.sum(e, axis=0)
    at_target = tl.sum(tl.where(cols == target, x, 0.0), axis=0)
    kept = target >= 0
    tl.store(loss_ptr + row, tl.where(kept, m - at_target + tl.log(d), 0.0))
    dx = e / d - tl.where(cols == target, 1.0, 0.0)
    tl.store(dx_ptr + row * n_cols + cols, tl.where(kept, dx, 0.0), mask=mask)
    # end


# ---- check ----
import math

from softmax_playground.checker.judge import needs
from softmax_playground.checker.rows import at_most, hostile
from softmax_playground.small_triton.right import INF, softmax, statistics

FAR = "The target is far below the maximum here: its share underflows to 0, its loss is 200."
IGNORED = "The target of this row is −100: its loss and its gradient are 0."


def loss_of(row, target):
    m, d = statistics(row)
    return m - row[target] + math.log(d)


def check(names, lab):
    kernel = needs(names, "cross_entropy_kernel")
    for n, block in ((11, 16), (8, 8), (9, 16), (1, 1)):
        rows, why = hostile(n)
        rows, why = rows + [[0.0] + [-200.0] * (n - 1)], why + [FAR]
        height = len(rows)
        targets = [-100 if i % 5 == 3 else n - 1 - i % n for i in range(height - 1)] + [n - 1]
        targets = [
            t if t < 0 or rows[i][t] > -INF else rows[i].index(max(rows[i]))
            for i, t in enumerate(targets)
        ]
        why = [IGNORED if t < 0 else each for t, each in zip(targets, why)]
        x, target = lab.tensor(rows, "x"), lab.tensor(targets, "target", dtype="int64")
        loss, dx = lab.empty((height,), "loss"), lab.empty((height, n), "dx")
        lab.launch(kernel, (height,), x, target, loss, dx, n, BLOCK=block)
        losses = [loss_of(r, t) if t >= 0 else 0.0 for r, t in zip(rows, targets)]
        right = [
            [p - (j == t) for j, p in enumerate(softmax(r))] if t >= 0 else [0.0] * n
            for r, t in zip(rows, targets)
        ]
        lab.compare(dx, right, why, least=1e-6 * (n > 1))  # of one number nothing is rounded
        lab.compare(loss, losses, why, least=1e-4 * (n > 1))
        at_most(lab, "x", n * height)
    return "Right: loss and gradient of every row from one read of the logits."


SHARE = "tl.sum(tl.where(cols == target, e / d, 0.0), axis=0)"
WRONG = [
    (
        "m - at_target + tl.log(d)",
        f"-tl.log({SHARE})",
        "A share may underflow to 0, whose logarithm is −∞: the loss is lse − x[target].",
    ),
    (
        "tl.log(d)",
        "tl.log(d + 1e-6)",
        "d is at least 1, exp(m − m): an epsilon protects nothing, and makes the loss larger.",
    ),
    ("target >= 0", "target > 0", "Class 0 counts too: only a target below 0 does not."),
    ("e / d - tl.where(cols == target, 1.0, 0.0)", "e / d", "At the target 1 is subtracted."),
    ("e / d - tl.where", "e / d + tl.where", "The sign: softmax minus one-hot."),
    (
        "e / d - tl.where(cols == target, 1.0, 0.0)",
        "tl.where(cols == target, 1.0, 0.0) - e / d",
        "That is the gradient with its sign changed: softmax minus one-hot.",
    ),
    ("e / d", "e", "e is not softmax yet: divide by d."),
    ("m - at_target + tl.log(d)", "m + d - at_target", "The logarithm of d is missing."),
    ("m - at_target + tl.log(d)", "tl.log(d) - at_target", "lse is m + log d: m is missing."),
    ("m - at_target + tl.log(d)", "at_target - m - tl.log(d)", "The loss is positive: lse − x."),
    (
        "tl.where(kept, m - at_target + tl.log(d), 0.0)",
        "m - at_target + tl.log(d)",
        "The loss of a row whose target is −100 is 0.",
    ),
    ("tl.where(kept, dx, 0.0)", "dx", "The gradient of a row whose target is −100 is 0."),
    (
        "tl.sum(tl.where(cols == target, x, 0.0), axis=0)",
        "tl.load(x_ptr + row * n_cols + target)",
        "x[target] is in registers: select it there. A target of −100 would even lead outside.",
    ),
    (
        "tl.where(cols == target, x, 0.0)",
        "tl.where(cols == target, x, 0.0 * x)",
        "0 · (−∞) is NaN: put 0.0 there instead.",
    ),
    (
        "m - at_target + tl.log(d)",
        "m + tl.log(d) - at_target",
        "m + log d keeps only the digits that"
        " fit beside a large m: subtract the target's logit first.",
    ),
    ('other=-float("inf")', "other=-1e6", "Some rows' maximum is lower than that: use −∞."),
    ("tl.exp(x - m)", "tl.exp(x)", "Without the maximum exp(x) overflows."),
]
