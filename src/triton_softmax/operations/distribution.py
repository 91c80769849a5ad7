"""Cross-entropy with a distribution as target, or with class weights under label smoothing.

Every class counts in the loss, so a second input q is read beside x: the target's probabilities, or
the weights of the classes (the same for all rows: a stride of 0). Their sums are carried along with
the denominator, w = Σ q and a = Σ q·(x − m), and Σ q·(lse − x) = w·log d − a, in which nothing
large is subtracted.

The numbers of a row: its target, −1 where the row is ignored and −2 where no class counts more than
q says; the element there; its factor b; the factor c of q; and that of the squared log-sum-exp.
"""

from __future__ import annotations

from dataclasses import replace

import triton
import triton.language as tl

from .operation import Operation
from .softmax import exponentials, to_maximum


@triton.jit
def _terms(values, m, EXACT: tl.constexpr):
    """exp(x − m), q and q·(x − m)."""
    # eq: distribution-terms
    x, q, places = values
    distance = x - tl.where(m == float("-inf"), 0.0, m)
    return exponentials(values, m, EXACT)[0], q, tl.where(places >= 0, q * distance, 0.0)


@triton.jit
def _to_maximum(totals, m_part, m):
    """The sums of a part, relative to another maximum: x − m has changed by m_part − m."""
    # eq: distribution-merge
    w, a = totals[1], totals[2]
    moved = tl.where((m_part == float("-inf")) | (m_part == m), 0.0, w * (m_part - m))
    return to_maximum(totals, m_part, m)[0], w, a + moved


@triton.jit
def _loss(m, totals, numbers):
    """(loss, lse) of a row: b·(lse − x_t) + c·(w·log d − a) + z·lse²."""
    # eq: cross-entropy-distribution
    target, picked, b, c, z = numbers
    b, c, z = b.to(m.dtype), c.to(m.dtype), z.to(m.dtype)
    kept = target != -1
    log_d = tl.log(totals[0])
    lse = m + log_d
    of_target = tl.where(target >= 0, b * ((m - picked.to(m.dtype)) + log_d), 0.0)
    loss = of_target + c * (totals[1] * log_d - totals[2]) + z * lse * lse
    return tl.where(kept, loss, z), tl.where(kept, lse, 0.0)


DISTRIBUTION = Operation(
    "cross_entropy_distribution",
    inputs=2,
    padding=float("-inf"),
    shifted=True,
    terms=_terms,
    rescale=_to_maximum,
    finish_row=_loss,
    row_results=2,
    sums=3,
    numbers=5,
    placed=True,
)
"""The loss and log-sum-exp of a row."""


@triton.jit
def _of_gradient(m, totals, numbers):
    """The factors of exp(x − m) and of q, and of the target and where it is."""
    target, _, b, c, z = numbers
    b, c, z = b.to(m.dtype), c.to(m.dtype), z.to(m.dtype)
    lse = m + tl.log(totals[0])
    b = tl.where(target >= 0, b, 0.0)
    factor = (b + c * totals[1] + 2.0 * z * lse) / totals[0]
    return factor, c, b, target


@triton.jit
def _gradient(values, terms, m, totals):
    """(b + c·w + 2·z·lse)·y − c·q, b less at the target, and 0 where the row is ignored."""
    # eq: cross-entropy-distribution-gradient
    factor, c, b, target = totals
    dx = terms[0] * factor - c * values[1] - tl.where(values[-1] == target, b, 0.0)
    return tl.where(target != -1, dx, 0.0)


DISTRIBUTION_GRADIENT = replace(
    DISTRIBUTION,
    name="cross_entropy_distribution_gradient",
    finish=_gradient,
    adjust=_of_gradient,
)
"""The gradient of the loss, and the loss and log-sum-exp of the row."""
