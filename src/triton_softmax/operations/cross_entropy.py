"""Cross-entropy of a row, with its gradient in the same pass.

The loss follows from the summary of softmax, and the gradient is softmax with another epilogue. It
needs nothing beyond the summary, so it is written while the row is still in registers.

The row scalars are the target t, −1 if the row is ignored; the target logit; its factor b; and the
factor z of the squared log-sum-exp.

With label smoothing, or a distribution as target, every class enters the loss. So the sums w = Σ q
and a = Σ q·(x − m) join the denominator, and Σ q·(lse − x) = w·log d − a subtracts nothing large,
however far the logits are from 0. Label smoothing has q = 1. Otherwise q is a second input, read
with x: the probabilities, or the class weights (broadcast to all rows, with stride 0). One more row
scalar is the factor c of q, and t is −2 if there is no target beyond q.
"""

from dataclasses import replace

import triton
import triton.language as tl

from ..kernels.device.monoid import exp_shifted
from .softmax import SOFTMAX, exponentials, to_maximum


@triton.jit
def _loss(m, totals, numbers):
    """(loss, lse) of a row: b·(lse − x_t) + z·lse², and c·(w·log d − a) with a distribution. An
    ignored row has the loss z: 0, or NaN in a mean of nothing."""
    # eq: cross-entropy-from-summary, cross-entropy-smoothed, cross-entropy-distribution
    target, picked, b, z = numbers[:4]
    kept = target >= 0 if len(numbers) == 4 else target != -1
    log_d = tl.log(totals[0])
    lse = m + log_d
    loss = b.to(m.dtype) * ((m - picked.to(m.dtype)) + log_d)
    if len(numbers) == 5:
        everywhere = numbers[4].to(m.dtype) * (totals[1] * log_d - totals[2])
        loss = tl.where(target >= 0, loss, 0.0) + everywhere
    z = z.to(m.dtype)
    return tl.where(kept, loss + z * lse * lse, z), tl.where(kept, lse, 0.0)


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


@triton.jit
def _of_gradient(m, totals, numbers):
    """The row scalars for the gradient: the factor of exp(x − m), and whether the row counts."""
    target, _, b, z = numbers
    lse = m + tl.log(totals[0])
    factor = (b.to(m.dtype) + 2.0 * z.to(m.dtype) * lse) / totals[0]
    return factor, target >= 0


@triton.jit
def _gradient(values, terms, m, totals):
    """(b + 2·z·lse)·y; 0 in an ignored row, whatever it holds."""
    return tl.where(totals[1], terms[0] * totals[0], 0.0)


@triton.jit
def _gradient_at_target(m, totals, numbers):
    """(b + 2·z·lse)·y − b, the gradient at the target."""
    # eq: cross-entropy-gradient
    target, picked, b, _ = numbers
    return target, exp_shifted(picked.to(m.dtype), m) * totals[0] - b.to(m.dtype)


CROSS_ENTROPY_GRADIENT = replace(
    CROSS_ENTROPY,
    name="cross_entropy_gradient",
    finish=_gradient,
    finish_at=_gradient_at_target,
    adjust=_of_gradient,
)
"""The gradient of the loss, and the loss and log-sum-exp of the row."""


@triton.jit
def _exponentials_and_distribution(values, m, EXACT: tl.constexpr):
    """exp(x − m), q and q·(x − m); without a second input q is 1 for every class."""
    # eq: distribution-terms
    distance = values[0] - tl.where(m == float("-inf"), 0.0, m)
    inside = values[-1] >= 0
    if len(values) == 3:
        q = values[1]
        distance = q * distance
    else:
        q = inside.to(distance.dtype)
    return exponentials(values, m, EXACT)[0], q, tl.where(inside, distance, 0.0)


@triton.jit
def _distribution_to_maximum(totals, m_part, m):
    """Rescale the sums of a partial to another maximum, which shifts x − m by m_part − m."""
    # eq: distribution-merge
    w, a = totals[1], totals[2]
    moved = tl.where((m_part == float("-inf")) | (m_part == m), 0.0, w * (m_part - m))
    return to_maximum(totals, m_part, m)[0], w, a + moved


@triton.jit
def _of_distribution_gradient(m, totals, numbers):
    """The factors of exp(x − m), of q and of the target; and the target."""
    target, _, b, z, c = numbers
    b, z, c = b.to(m.dtype), z.to(m.dtype), c.to(m.dtype)
    lse = m + tl.log(totals[0])
    b = tl.where(target >= 0, b, 0.0)
    factor = (b + c * totals[1] + 2.0 * z * lse) / totals[0]
    return factor, c, b, target


@triton.jit
def _distribution_gradient(values, terms, m, totals):
    """(b + c·w + 2·z·lse)·y − c·q, less b at the target; 0 in an ignored row."""
    # eq: cross-entropy-distribution-gradient
    factor, c, b, target = totals
    dx = terms[0] * factor - c * values[1] - tl.where(values[-1] == target, b, 0.0)
    return tl.where(target != -1, dx, 0.0)


DISTRIBUTION = replace(
    CROSS_ENTROPY,
    name="cross_entropy_distribution",
    inputs=2,
    terms=_exponentials_and_distribution,
    rescale=_distribution_to_maximum,
    sums=3,
    numbers=5,
    placed=True,
)
"""The loss and log-sum-exp of a row, with a distribution; by `modified_rows` alone."""

DISTRIBUTION_GRADIENT = replace(
    DISTRIBUTION,
    name="cross_entropy_distribution_gradient",
    finish=_distribution_gradient,
    adjust=_of_distribution_gradient,
)
"""The gradient of the loss with a distribution, and the loss and log-sum-exp."""

CROSS_ENTROPY_SMOOTHED = replace(DISTRIBUTION, name="cross_entropy_smoothed", inputs=1)
"""The loss and log-sum-exp with label smoothing."""


@triton.jit
def _of_smoothed_gradient(m, totals, numbers):
    """The row scalars for the gradient, of which c is taken everywhere."""
    target, picked, b, z, c = numbers
    return _of_gradient(m, totals, (target, picked, b + c * totals[1], z)) + (c.to(m.dtype),)


@triton.jit
def _smoothed_gradient(values, terms, m, totals):
    # eq: cross-entropy-smoothed-gradient
    return tl.where(totals[1], terms[0] * totals[0] - totals[2], 0.0)


@triton.jit
def _smoothed_gradient_at_target(m, totals, numbers):
    target, dx = _gradient_at_target(m, totals, numbers[:4])
    return target, dx - totals[2]


CROSS_ENTROPY_SMOOTHED_GRADIENT = replace(
    CROSS_ENTROPY_SMOOTHED,
    name="cross_entropy_smoothed_gradient",
    finish=_smoothed_gradient,
    finish_at=_smoothed_gradient_at_target,
    adjust=_of_smoothed_gradient,
)

PLAIN = CROSS_ENTROPY, CROSS_ENTROPY_GRADIENT
SMOOTHED = CROSS_ENTROPY_SMOOTHED, CROSS_ENTROPY_SMOOTHED_GRADIENT
OF_DISTRIBUTION = DISTRIBUTION, DISTRIBUTION_GRADIENT
"""Each a pair, without and with the gradient."""
