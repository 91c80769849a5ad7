"""Softmax and log-softmax along a row, and their vector-Jacobian products."""

from dataclasses import replace

import triton
import triton.language as tl

from ..kernels.device.monoid import exp_shifted
from .operation import Operation, product, same


@triton.jit
def exponentials(values, m, EXACT: tl.constexpr):
    """exp(x − m), whose sum over the row is d."""
    return (exp_shifted(values[0], m),)


@triton.jit
def to_maximum(totals, m_part, m):
    """Rescale the denominator of a partial to another maximum."""
    # eq: merge
    return (totals[0] * exp_shifted(m_part, m),)


@triton.jit
def _softmax(values, terms, m, totals):
    """exp(x − m) / d, with one division per row instead of one per element."""
    # eq: softmax-safe
    return terms[0] * (1.0 / totals[0])


@triton.jit
def _softmax_of_terms(terms, m_part, m, totals):
    """exp(x − m) / d from exp(x − m_part)."""
    return terms[0] * (exp_shifted(m_part, m) * (1.0 / totals[0]))


SOFTMAX = Operation(
    "softmax",
    inputs=1,
    padding=float("-inf"),
    shifted=True,
    terms=exponentials,
    rescale=to_maximum,
    finish=_softmax,
    finish_terms=_softmax_of_terms,
)
"""y = exp(x − m) / d."""


@triton.jit
def _products(values, m, EXACT: tl.constexpr):
    """y·dy, whose sum over the row is s."""
    return (product(values[1], values[0], EXACT),)


@triton.jit
def _softmax_vjp(values, terms, m, totals):
    """y·(dy − s)."""
    # eq: softmax-vjp
    return values[0] * (values[1] - totals[0])


SOFTMAX_VJP = Operation(
    "softmax_vjp",
    inputs=2,
    padding=0.0,
    shifted=False,
    terms=_products,
    rescale=same,
    finish=_softmax_vjp,
)
"""dx = y·(dy − s), s = sum(y·dy)."""


@triton.jit
def _log_softmax(values, terms, m, totals):
    """x − m − log d, which never takes the logarithm of a probability that underflowed to 0."""
    # eq: log-softmax-definition
    return (values[0] - m) - tl.log(totals[0])


LOG_SOFTMAX = replace(SOFTMAX, name="log_softmax", finish=_log_softmax, finish_terms=None)
"""y = (x − m) − log(d), from the summary of softmax."""


@triton.jit
def _gradient(values, m, EXACT: tl.constexpr):
    """dy, whose sum over the row is s."""
    return (values[1],)


@triton.jit
def _log_softmax_vjp(values, terms, m, totals):
    """dy − exp(y)·s."""
    # eq: log-softmax-vjp
    return values[1] - exp_shifted(values[0], 0.0) * totals[0]


LOG_SOFTMAX_VJP = replace(
    SOFTMAX_VJP,
    name="log_softmax_vjp",
    terms=_gradient,
    finish=_log_softmax_vjp,
    exp_in_finish=True,
)
"""dx = dy − exp(y)·s, s = sum(dy)."""
