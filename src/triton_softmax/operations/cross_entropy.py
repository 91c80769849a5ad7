"""Cross-entropy with a class as target: the loss of a row, and its gradient in the same pass.

The loss takes the summary of softmax, and its gradient is softmax with another finish: it needs
nothing that is not there when the loss is. So it is written while the row is in registers.

The numbers of a row: its target, −1 where the row is ignored; the element there; the factor r of
its loss; that of its squared log-sum-exp; and, with label smoothing, the share b of r that the
target has and the share c that every class has.
"""

from __future__ import annotations

from dataclasses import replace

import triton
import triton.language as tl

from .operation import Operation
from .softmax import SOFTMAX, exponentials, to_maximum


# --8<-- [start:forward]
@triton.jit
def _loss(m, totals, numbers):
    """(loss, lse) of a row: r·(lse − x_t) + z·lse², and 0 for both where it is ignored."""
    # eq: cross-entropy-from-summary
    target, picked, r, z = numbers
    kept = target >= 0
    log_d = tl.log(totals[0])
    lse = m + log_d
    loss = r.to(m.dtype) * ((m - picked.to(m.dtype)) + log_d) + z.to(m.dtype) * lse * lse
    return tl.where(kept, loss, 0.0), tl.where(kept, lse, 0.0)


CROSS_ENTROPY = replace(
    SOFTMAX,
    name="cross_entropy",
    finish=None,
    finish_terms=None,
    finish_row=_loss,
    row_results=2,
    numbers=4,
)
"""The loss and log-sum-exp of a row."""
# --8<-- [end:forward]


# --8<-- [start:gradient]
@triton.jit
def _of_gradient(m, totals, numbers):
    """What an element of the gradient needs of its row: the factor of exp(x − m), the target, and
    what is taken away there."""
    target, _, r, z = numbers
    r = r.to(m.dtype)
    lse = m + tl.log(totals[0])
    return (r + 2.0 * z.to(m.dtype) * lse) / totals[0], target, r


@triton.jit
def _gradient(values, terms, m, totals):
    """r·(y − 1 at the target) + 2·z·lse·y, and 0 where the row is ignored, whatever it holds."""
    # eq: cross-entropy-gradient
    factor, target, r = totals
    dx = terms[0] * factor - tl.where(values[-1] == target, r, 0.0)
    return tl.where(target >= 0, dx, 0.0)


CROSS_ENTROPY_GRADIENT = replace(
    CROSS_ENTROPY,
    name="cross_entropy_gradient",
    finish=_gradient,
    adjust=_of_gradient,
    placed=True,
)
"""The gradient of the loss, and the loss and log-sum-exp of the row."""
# --8<-- [end:gradient]


# --8<-- [start:smoothing]
@triton.jit
def _exponentials_and_elements(values, m, EXACT: tl.constexpr):
    """exp(x − m), and x itself inside the row."""
    return exponentials(values, m, EXACT)[0], tl.where(values[-1] >= 0, values[0], 0.0)


@triton.jit
def _first_to_maximum(totals, m_part, m):
    """The denominator relative to another maximum. The plain sum is relative to none."""
    return to_maximum(totals, m_part, m)[0], totals[1]


@triton.jit
def _smoothed_loss(m, totals, numbers):
    """(loss, lse) of a row: r·lse − b·x_t − c·Σx + z·lse². Where nothing large is left, nothing
    large is subtracted: r is b and c times the number of classes."""
    # eq: cross-entropy-smoothed
    target, picked, r, z, b, c = numbers
    r, b, c = r.to(m.dtype), b.to(m.dtype), c.to(m.dtype)
    kept = target >= 0
    log_d = tl.log(totals[0])
    lse = m + log_d
    elsewhere = (r - b) * m - c * totals[1]
    loss = r * log_d + b * (m - picked.to(m.dtype)) + elsewhere + z.to(m.dtype) * lse * lse
    return tl.where(kept, loss, 0.0), tl.where(kept, lse, 0.0)


@triton.jit
def _of_smoothed_gradient(m, totals, numbers):
    """As without smoothing, and what is taken away from every element."""
    target, _, r, z, b, c = numbers
    factor, _, _ = _of_gradient(m, totals, (target, _, r, z))
    return factor, target, b.to(m.dtype), c.to(m.dtype)


@triton.jit
def _smoothed_gradient(values, terms, m, totals):
    """(r + 2·z·lse)·y − c, less b at the target, and 0 where the row is ignored."""
    factor, target, b, c = totals
    dx = terms[0] * factor - tl.where(values[-1] == target, b + c, c)
    return tl.where(target >= 0, dx, 0.0)


CROSS_ENTROPY_SMOOTHED = replace(
    CROSS_ENTROPY,
    name="cross_entropy_smoothed",
    terms=_exponentials_and_elements,
    rescale=_first_to_maximum,
    finish_row=_smoothed_loss,
    sums=2,
    numbers=6,
    placed=True,
)
"""The same with label smoothing, for which the elements are summed as well."""

CROSS_ENTROPY_SMOOTHED_GRADIENT: Operation = replace(
    CROSS_ENTROPY_SMOOTHED,
    name="cross_entropy_smoothed_gradient",
    finish=_smoothed_gradient,
    adjust=_of_smoothed_gradient,
)
# --8<-- [end:smoothing]
