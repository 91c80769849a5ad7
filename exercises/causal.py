"""A query that may look at nothing

kind: find the bug
level: 2
minutes: 6
teaches: which keys a causal mask keeps

In causal attention query i sees the keys 0 to i. One row of this kernel's result is NaN, and the
others are slightly wrong. Change one line.

hint: Which keys does query 0 see here?
"""

import triton
import triton.language as tl


@triton.jit
def causal_kernel(scores_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Program i: softmax of row i of the n × n scores, over the keys that query i sees; 0 else."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(scores_ptr + row * n + cols, mask=mask, other=-float("inf"))
    # start
    x = tl.where(cols < row, x, -float("inf"))
    # solved
    x = tl.where(cols <= row, x, -float("inf"))
    # end
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * n + cols, e / tl.sum(e, axis=0), mask=mask)


# ---- check ----
from softmax_playground.checker.judge import needs
from softmax_playground.checker.rows import random_row
from softmax_playground.small_triton.right import INF, softmax


def check(names, lab):
    kernel = needs(names, "causal_kernel")
    for n, block, low in (
        (7, 8, -3.0),
        (8, 8, -9.0),
        (5, 8, -2.0e6),
        (6, 8, -3.0e38),
        (1, 1, -3.0),
    ):
        rows = [random_row(n, 10 + i, low, low + 4.0) for i in range(n)]
        scores = lab.tensor(rows, "scores")
        rows = lab.values(scores)
        right = [softmax([x if j <= i else -INF for j, x in enumerate(rows[i])]) for i in range(n)]
        y = lab.empty((n, n), "y")
        lab.launch(kernel, (n,), scores, y, n, BLOCK=block)
        lab.compare(y, right)
    return "Right: a query sees itself, so no row is empty."


SEEN = 'tl.where(cols <= row, x, -float("inf"))'
WRONG = [
    (SEEN, 'tl.where(cols < row, x, -float("inf"))', "Query i sees key i too: row 0 sees nothing."),
    (SEEN, 'tl.where(cols <= row + 1, x, -float("inf"))', "Query i must not see key i + 1."),
    (
        SEEN,
        'tl.where(cols >= row, x, -float("inf"))',
        "Those are the later keys: a causal mask keeps the earlier ones.",
    ),
    (SEEN, "tl.where(cols <= row, x, 0.0)", "A key with the score 0 is seen: it must be −∞."),
    (SEEN, "tl.where(cols <= row, x, -1e6)", "Some rows' maximum is lower than that: use −∞."),
    (SEEN, 'tl.where(cols == row, x, -float("inf"))', "A query sees the keys before it, too."),
    (SEEN, "x", "Without a causal mask every query sees every key."),
]
