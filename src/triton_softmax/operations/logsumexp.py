"""log(sum(exp(x))) of a row: the summary of softmax, of which one number is written."""

from __future__ import annotations

import triton
import triton.language as tl

from ..kernels.device.monoid import LOG2E
from .operation import Operation


# --8<-- [start:forward]
@triton.jit
def _finite(m):
    """m, or 0 where it is infinite: terms of a row with +inf are then +inf, 0, or NaN as x is."""
    return tl.where((m == float("inf")) | (m == float("-inf")), 0.0, m)


@triton.jit
def _fma(x, z):
    """x·log2(e) + z, rounded once."""
    return tl.fma(x, tl.full(x.shape, LOG2E, x.dtype), z)


@triton.jit
def _exponentials(values, m, EXACT: tl.constexpr):
    """exp(x − m), whose sum over the row is d, up to a factor that all terms have in common.

    Scaling before the subtraction takes one instruction instead of two. What m·log2(e) was rounded
    by is that factor, and `_logsumexp` removes it.
    """
    return tl.exp2(_fma(values[0], -(_finite(m) * LOG2E)))


@triton.jit
def _to_maximum(d, m_part, m):
    """The denominator of a part, relative to another maximum."""
    # eq: merge
    return tl.where(d == 0, 0.0, d * tl.exp2(_finite(m_part) * LOG2E - _finite(m) * LOG2E))


@triton.jit
def _logsumexp(m, d):
    """m + log(d). An infinite m is itself the result, unless a NaN in the row has made d one."""
    d = d * tl.exp2(-_fma(_finite(m), -(_finite(m) * LOG2E)))
    # eq: lse-from-summary
    return tl.where(((m == float("-inf")) | (m == float("inf"))) & (d == d), m, m + tl.log(d))


LOGSUMEXP = Operation(
    "logsumexp",
    inputs=1,
    padding=float("-inf"),
    shifted=True,
    terms=_exponentials,
    rescale=_to_maximum,
    finish_row=_logsumexp,
)
"""lse = m + log(d)."""
# --8<-- [end:forward]
