"""One row, two programs

kind: blank page
level: 3
minutes: 20
teaches: split a row and merge its parts, from nothing

Write two kernels. A program of `publish_kernel` has a row and a part of it, 0 or 1. Part p begins
at column p · BLOCK; the program writes its log-sum-exp to `lse[row, part]`, which is −∞ if the part
has nothing but −∞. A program of `write_kernel` has a row and a part, too: it merges the two
log-sum-exps of its row, and writes its part of y. `n_cols` is more than BLOCK and at most
2 · BLOCK. Rows lie one after the other.

hint: `tl.program_id(1)` is the part; `lse_ptr + 2 * row + part` its place.

hint: In publish, shift by 0 where the maximum is −∞: then log(0) = −∞ by itself.

hint: The merged log-sum-exp is M + log(exp(a − M) + exp(b − M)) with M the larger of a and b, and y
is exp(x − lse).
"""

import triton
import triton.language as tl


@triton.jit
def publish_kernel(x_ptr, lse_ptr, n_cols, BLOCK: tl.constexpr):
    # start
    ...
    # solved
    row, part = tl.program_id(0), tl.program_id(1)
    cols = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=-float("inf"))
    m = tl.max(x, axis=0)
    shift = tl.where(m > -float("inf"), m, 0.0)
    d = tl.sum(tl.exp(x - shift), axis=0)
    tl.store(lse_ptr + 2 * row + part, shift + tl.log(d))
    # end


@triton.jit
def write_kernel(x_ptr, lse_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    # start
    ...
    # solved
    row, part = tl.program_id(0), tl.program_id(1)
    a = tl.load(lse_ptr + 2 * row)
    b = tl.load(lse_ptr + 2 * row + 1)
    larger = tl.maximum(a, b)
    lse = larger + tl.log(tl.exp(a - larger) + tl.exp(b - larger))
    cols = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols)
    tl.store(y_ptr + row * n_cols + cols, tl.exp(x - lse), mask=cols < n_cols)
    # end


# ---- check ----
from softmax_playground.checker.judge import needs
from softmax_playground.checker.rows import at_most, hostile
from softmax_playground.small_triton.right import logsumexp, softmax


def check(names, lab):
    publish, write = needs(names, "publish_kernel"), needs(names, "write_kernel")
    for n, block in ((11, 8), (16, 8), (9, 8), (2, 1)):
        rows, why = hostile(n)
        keep = [i for i in range(len(rows)) if -1e5 < max(rows[i])]
        rows, why = [rows[i] for i in keep], [why[i] for i in keep]
        height = len(rows)
        x, y = lab.tensor(rows, "x"), lab.empty((height, n), "y")
        lse = lab.empty((height, 2), "lse")
        lab.launch(publish, (height, 2), x, lse, n, BLOCK=block)
        at_most(lab, "x", n * height)
        right = [[logsumexp(row[:block]), logsumexp(row[block:])] for row in rows]
        lab.compare(lse, right, why, least=1e-3)
        lab.launch(write, (height, 2), x, lse, y, n, BLOCK=block)
        lab.compare(y, softmax(rows), why, digits=1e-3)
        at_most(lab, "x", n * height)
    return "Right: two programs share a row, and each needs only one number of the other."


READ = """tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, """
WRONG = [
    (
        "tl.program_id(0), tl.program_id(1)",
        "tl.program_id(1), tl.program_id(0)",
        "program_id(0) is the row, program_id(1) the part.",
    ),
    (
        f"part * BLOCK + {READ}other",
        f"{READ}other",
        "Both parts read the first columns: part p begins at p · BLOCK.",
    ),
    ('tl.where(m > -float("inf"), m, 0.0)', "m", "A part of −∞ alone: −∞ − (−∞) is NaN."),
    ("shift + tl.log(d)", "shift + d", "The logarithm of the sum is missing."),
    ("shift + tl.log(d)", "tl.log(d)", "The maximum that was subtracted comes back."),
    ("lse_ptr + 2 * row + part, ", "lse_ptr + row + part, ", "Each row has two numbers: 2 · row."),
    (
        "larger + tl.log(tl.exp(a - larger) + tl.exp(b - larger))",
        "a + b",
        "Log-sum-exps are merged by log(exp(a) + exp(b)), relative to the larger.",
    ),
    (
        "larger + tl.log(tl.exp(a - larger) + tl.exp(b - larger))",
        "larger",
        "The smaller part counts too: log(exp(a − M) + exp(b − M)).",
    ),
    (
        "larger + tl.log(tl.exp(a - larger) + tl.exp(b - larger))",
        "tl.log(tl.exp(a) + tl.exp(b))",
        "exp(a) overflows: relative to the larger of the two.",
    ),
    (
        "tl.exp(x - lse)",
        "tl.exp(x - a)",
        "a is the first part's; y is relative to both parts' lse.",
    ),
]
