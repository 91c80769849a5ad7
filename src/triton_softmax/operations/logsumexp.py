"""Log-sum-exp of a row: the summary of softmax, written as one row scalar m + log(d).

Its vector-Jacobian product is softmax times the incoming gradient of the row. It recomputes m and d
from x instead of reusing the result, because rounding m + log(d) loses the last digits of log(d) if
m is large.
"""

from dataclasses import replace

import triton
import triton.language as tl

from ..kernels.device.monoid import exp_shifted
from .operation import Operation


@triton.jit
def _shift(m):
    """m, or the largest finite number if m is +inf: then the terms of the row are 0 for finite x,
    +inf for +inf, and NaN for NaN."""
    LARGEST: tl.constexpr = 1.7976931348623157e308 if m.dtype == tl.float64 else 3.4028234e38
    return tl.where(m == float("inf"), LARGEST, m)


@triton.jit
def _exponentials(values, m, EXACT: tl.constexpr):
    """exp(x − m), whose sum over the row is d."""
    return (exp_shifted(values[0], _shift(m)),)


@triton.jit
def _to_maximum(totals, m_part, m):
    """Rescale the denominator of a partial to another maximum."""
    # eq: merge
    return (totals[0] * exp_shifted(_shift(m_part), _shift(m)),)


@triton.jit
def log_of_sum(m, d):
    """m + log(d). An infinite m is itself the result, unless the row's d is NaN."""
    # eq: lse-from-summary
    return tl.where(((m == float("-inf")) | (m == float("inf"))) & (d == d), m, m + tl.log(d))


@triton.jit
def _logsumexp(m, totals, numbers):
    """The log-sum-exp of a row."""
    return (log_of_sum(m, totals[0]),)


LOGSUMEXP = Operation(
    "logsumexp",
    inputs=1,
    padding=float("-inf"),
    shifted=True,
    terms=_exponentials,
    rescale=_to_maximum,
    finish_row=_logsumexp,
    row_results=1,
)
"""lse = m + log(d)."""


@triton.jit
def _over_dl(m, totals, numbers):
    """d / dl, to divide by d and multiply by dl at once."""
    return (totals[0] / numbers[0].to(totals[0].dtype),)


@triton.jit
def _softmax(values, terms, m, totals):
    """exp(x − m) / d. If the row has +inf, d is infinite, and finite elements get 0."""
    # eq: logsumexp-gradient
    return terms[0] * (1.0 / totals[0])


LOGSUMEXP_VJP = replace(
    LOGSUMEXP,
    name="logsumexp_vjp",
    finish=_softmax,
    finish_row=None,
    row_results=0,
    numbers=1,
    adjust=_over_dl,
)
"""dx = dl·exp(x − m) / d."""
