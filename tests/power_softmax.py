"""Softmax with base 10 in the place of e: a new operation, in a file of its own."""

from dataclasses import replace

import triton
import triton.language as tl

from triton_softmax.operations.operation import Operation
from triton_softmax.operations.softmax import SOFTMAX_VJP

LOG2_BASE = tl.constexpr(3.321928094887362)
"""log2 of the base, by which base ** t = 2 ** (t * LOG2_BASE)."""

LOG_BASE = tl.constexpr(2.302585092994046)
"""The natural logarithm of the base."""


@triton.jit
def power(x, m):
    """base ** (x − m), and 0 where x = m = −∞."""
    m_safe = tl.where(m == float("-inf"), 0.0, m)
    return tl.exp2((x - m_safe) * LOG2_BASE)


@triton.jit
def _powers(values, m, EXACT: tl.constexpr):
    """The term of an element, relative to m."""
    return (power(values[0], m),)


@triton.jit
def _to_maximum(totals, m_part, m):
    """A sum of terms relative to m_part, as one relative to m."""
    return (totals[0] * power(m_part, m),)


@triton.jit
def _quotient(values, terms, m, totals):
    """An element of the result."""
    return terms[0] * (1.0 / totals[0])


@triton.jit
def _quotient_of_terms(terms, m_part, m, totals):
    """The same from terms relative to m_part."""
    return terms[0] * (power(m_part, m) * (1.0 / totals[0]))


POWER_SOFTMAX = Operation(
    "power_softmax",
    inputs=1,
    padding=float("-inf"),
    shifted=True,
    terms=_powers,
    rescale=_to_maximum,
    finish=_quotient,
    finish_terms=_quotient_of_terms,
)
"""y = base ** (x − m) / d."""


@triton.jit
def _vjp(values, terms, m, totals):
    """log(base)·y·(dy − s)."""
    return values[0] * (values[1] - totals[0]) * LOG_BASE


POWER_SOFTMAX_VJP = replace(SOFTMAX_VJP, name="power_softmax_vjp", finish=_vjp)
"""dx = log(base)·y·(dy − s), of the same sum as softmax: s = sum(y·dy)."""
