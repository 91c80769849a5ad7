"""Softmax along a row, and its vector-Jacobian product."""

from __future__ import annotations

import triton
import triton.language as tl

from ..kernels.device.monoid import exp_shifted
from .operation import Operation, same


# --8<-- [start:forward]
@triton.jit
def exponentials(values, m, EXACT: tl.constexpr):
    """exp(x − m), whose sum over the row is d."""
    return exp_shifted(values[0], m)


@triton.jit
def to_maximum(d, m_part, m):
    """The denominator of a part, relative to another maximum."""
    # eq: merge
    return d * exp_shifted(m_part, m)


@triton.jit
def _softmax(values, e, m, d):
    """exp(x − m) / d, with one division for a row and not for each element."""
    # eq: softmax-safe
    return e * (1.0 / d)


@triton.jit
def _softmax_of_terms(e, m_part, m, d):
    """exp(x − m) / d from exp(x − m_part)."""
    return e * (exp_shifted(m_part, m) * (1.0 / d))


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
# --8<-- [end:forward]


# --8<-- [start:backward]
@triton.jit
def _products(values, m, EXACT: tl.constexpr):
    """y·dy, whose sum over the row is s."""
    if EXACT:
        return tl.inline_asm_elementwise(
            "mul.rn.f32 $0, $1, $2;",
            "=f,f,f",
            [values[1], values[0]],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )
    else:
        return values[0] * values[1]


@triton.jit
def _softmax_vjp(values, terms, m, s):
    """y·(dy − s)."""
    # eq: softmax-vjp
    return values[0] * (values[1] - s)


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
# --8<-- [end:backward]
