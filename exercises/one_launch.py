"""One launch in place of two

kind: budget
level: 2
minutes: 10
teaches: fuse a scale and the entropy into softmax

`softmax_kernel` writes softmax of `scale` · x; `entropy_kernel` reads it again and writes each
row's entropy, −Σ y · log y. Make `softmax_kernel` write both in one launch, and read only x, once.
Where y is 0, y · log y counts as 0. `entropy_ptr` has one number per row.

hint: −Σ y · log y is log(d) − Σ e · z / d, with z the scaled x minus its maximum, and e = exp(z).

hint: Where e is 0, z may be −∞, and 0 · (−∞) is NaN: `tl.where(e > 0, e * z, 0.0)`.
"""

import triton
import triton.language as tl


# start
@triton.jit
def entropy_kernel(y_ptr, entropy_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    y = tl.load(y_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    term = tl.where(y > 0, y * tl.log(tl.where(y > 0, y, 1.0)), 0.0)
    tl.store(entropy_ptr + row, -tl.sum(term, axis=0))


# solved
# end
@triton.jit
def softmax_kernel(x_ptr, y_ptr, entropy_ptr, scale, n_cols, BLOCK: tl.constexpr):
    """Program i computes row i; the scale is positive."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=-float("inf"))
    z = scale * (x - tl.max(x, axis=0))
    e = tl.exp(z)
    d = tl.sum(e, axis=0)
    tl.store(y_ptr + row * n_cols + cols, e / d, mask=mask)
    # start
    ...
    # solved
    term = tl.where(e > 0, e * z, 0.0)
    tl.store(entropy_ptr + row, tl.log(d) - tl.sum(term, axis=0) / d)
    # end


# ---- check ----
import math

from softmax_playground.checker.judge import compare, needs
from softmax_playground.checker.rows import at_most, hostile
from softmax_playground.small_triton.right import INF, softmax

TINY = "One element has nearly all of this row: the entropy is tiny, but not 0."


def check(names, lab):
    kernel = needs(names, "softmax_kernel")
    for n, block, scale in ((11, 16, 0.5), (8, 8, 1.0), (9, 16, 2.0), (1, 2, 0.25)):
        rows, why = hostile(n)
        rows, why = rows[:-1] + [[0.0] + [-60.0 / scale] * (n - 1)], why[:-1] + [TINY]
        scaled = [[scale * x if x > -INF else -INF for x in row] for row in rows]
        x, y = lab.tensor(rows, "x"), lab.empty((len(rows), n), "y")
        entropy = lab.empty((len(rows),), "entropy")
        lab.launch(kernel, (len(rows),), x, y, entropy, scale, n, BLOCK=block)
        shares = [softmax(row) for row in scaled]
        lab.compare(y, shares, why)
        right = [-sum([p * math.log(p) for p in row if p > 0]) for row in shares]
        lab.compare(entropy, right, why, least=1e-5)
        last = lab.values(entropy)[-1]
        compare([last], right[-1:], "the last entropy", why=[TINY], digits=0.1, least=0.0)
        at_most(lab, "x", n * len(rows))
        at_most(lab, "y", 0)
    return "Right: one launch, one read, and the second kernel has nothing left to do."


TERM, ALL = "tl.where(e > 0, e * z, 0.0)", "tl.log(d) - tl.sum(term, axis=0) / d"
STORE = f"    tl.store(entropy_ptr + row, {ALL})\n"
WRONG = [
    (TERM, "e * z", "0 · (−∞) is NaN: where e is 0 the term is 0."),
    (
        TERM,
        "tl.where(e > 0, e * x, 0.0)",
        "The terms are relative to the maximum, and scaled: e · z.",
    ),
    (
        STORE,
        "    y = e / d\n    tl.store(entropy_ptr + row, -tl.sum(y * tl.log(y + 1e-10), axis=0))\n",
        "log(y + 1e-10) is never below −23, though log y may be: leave out the terms with y = 0.",
    ),
    (ALL, "tl.log(d) + tl.sum(term, axis=0) / d", "The sign: z is negative, and −Σ y · z is not."),
    (ALL, "tl.log(d) - tl.sum(term, axis=0)", "The sum of e · z must be divided by d, as e is."),
    (ALL, "-tl.sum(term, axis=0) / d", "log y is z − log d: log d is missing."),
    (ALL, "tl.sum(term, axis=0) / d - tl.log(d)", "Entropy is never negative: check the sign."),
    (
        STORE,
        "",
        "`softmax_kernel` has to write the entropy itself: the check launches no other kernel.",
    ),
]
