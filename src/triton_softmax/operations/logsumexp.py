"""log(sum(exp(x))) of a row: the summary of softmax, of which one number is written."""

from __future__ import annotations

import triton
import triton.language as tl

from ..kernels.device.monoid import LOG2E
from .operation import Operation


# --8<-- [start:forward]
@triton.jit
def _is_result(m):
    """Whether log(d) is less than half the distance from m to the next number, so that the result
    is m itself. Infinity is such a number, and so are those whose m·log2(e) overflows."""
    LARGE: tl.constexpr = 2.0**59 if m.dtype == tl.float64 else 2.0**29
    return tl.abs(m) >= LARGE


@triton.jit
def _shift(m):
    """m, or 0 where it is the result anyway: terms of such a row are +inf, 0, or NaN as x is."""
    return tl.where(_is_result(m), 0.0, m)


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
    return tl.exp2(_fma(values[0], -(_shift(m) * LOG2E)))


@triton.jit
def _to_maximum(d, m_part, m):
    """The denominator of a part, relative to another maximum."""
    # eq: merge
    return tl.where(d == 0, 0.0, d * tl.exp2(_shift(m_part) * LOG2E - _shift(m) * LOG2E))


@triton.jit
def _logsumexp(m, d):
    """m + log(d), or m, unless a NaN in the row has made d one."""
    d = d * tl.exp2(-_fma(_shift(m), -(_shift(m) * LOG2E)))
    # eq: lse-from-summary
    return tl.where(_is_result(m) & (d == d), m, m + tl.log(d))


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
