"""Softmax along a row, and its vector-Jacobian product."""

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
