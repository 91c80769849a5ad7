"""Log-probabilities of tokens and entropies of rows, as reinforcement learning needs them.

The entropy H = log d − a/d takes a second sum, a = Σ exp(x − m)·(x − m), next to the denominator. A
sum over x instead of x − m would cancel for large logits.
"""

from dataclasses import replace

import triton
import triton.language as tl

from ..kernels.device.monoid import LOWEST
from .operation import Operation, product
from .softmax import SOFTMAX, exponentials, to_maximum


@triton.jit
def _weighted(e, distance, EXACT: tl.constexpr):
    """exp(x − m)·(x − m), and 0 where exp(x − m) is 0, since 0·log 0 counts as 0."""
    safe = tl.where(e == 0.0, 0.0, distance)
    return product(e, safe, EXACT)


@triton.jit
def distances(x, m):
    """x − m, or a finite number where exp(x − m) is 0, since 0·log 0 counts as 0."""
    # Any finite number would do; a maximum takes one instruction.
    return tl.maximum(x - tl.where(m == float("-inf"), 0.0, m), LOWEST)


@triton.jit
def _exponentials_and_weighted(values, m, EXACT: tl.constexpr):
    """exp(x − m) and exp(x − m)·(x − m)."""
    # eq: entropy-terms
    e = exponentials(values, m, EXACT)[0]
    return e, product(e, distances(values[0], m), EXACT)


@triton.jit
def _both_to_maximum(totals, m_part, m):
    """Rescale the sums of a partial to another maximum; x − m also shifts by m_part − m."""
    # eq: entropy-merge
    d = to_maximum(totals, m_part, m)[0]
    a = to_maximum((totals[1],), m_part, m)[0]
    return d, a + _weighted(d, m_part - m, False)


@triton.jit
def _entropy(m, totals, numbers):
    """m, log d, and the entropy log d − a/d."""
    # eq: entropy-from-summary
    log_d = tl.log(totals[0])
    return m, log_d, log_d - totals[1] / totals[0]


ENTROPY = Operation(
    "entropy",
    inputs=1,
    padding=float("-inf"),
    shifted=True,
    terms=_exponentials_and_weighted,
    rescale=_both_to_maximum,
    finish_row=_entropy,
    sums=2,
    row_results=3,
)
"""The maximum, the logarithm of the denominator, and the entropy of a row."""


@triton.jit
def _given_gradient(values, terms, m, totals):
    """f·exp(x − m) − h·exp(x − m)·(x − m), plus `at_target` at the token."""
    target, at_target, f, h = totals
    here = tl.where(values[-1] == target, at_target, 0.0)
    return terms[0] * f - terms[0] * distances(values[0], m) * h + here


GIVEN_TOKENS_GRADIENT = replace(
    SOFTMAX, name="given_tokens_gradient", finish=_given_gradient, placed=True
)
"""The gradient of log-probabilities and entropies from given row summaries, for
`finish_rows_kernel`. Its totals are the token's column, what to add there, and the factors of
exp(x − m) and exp(x − m)·(x − m)."""
