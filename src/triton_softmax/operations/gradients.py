"""Gradients whose summary is known: of cross-entropy, log-sum-exp, log-probabilities and entropies.

The forward pass, or the other ranks of a group, have said what a row has one of. So these are the
ends of operations, for `finish_rows_kernel`.
"""

from __future__ import annotations

from dataclasses import replace

import triton
import triton.language as tl

from .softmax import SOFTMAX
from .token_statistics import distances


@triton.jit
def _gradient(values, terms, m, totals):
    """f·exp(x − m) − c, and less where the target is. A factor of 0 is one whatever the row
    holds."""
    target, at_target, f, c = totals
    here = tl.where(values[-1] == target, at_target, 0.0)
    return tl.where(f == 0.0, 0.0, terms[0] * f) - c - here


@triton.jit
def _gradient_of_tokens(values, terms, m, totals):
    """f·exp(x − m) − h·exp(x − m)·(x − m), and more where the token is."""
    target, at_target, f, h = totals
    here = tl.where(values[-1] == target, at_target, 0.0)
    return terms[0] * f - terms[0] * distances(values[0], m) * h + here


GRADIENT = replace(SOFTMAX, name="given_gradient", finish=_gradient, placed=True)
"""Of cross-entropy and log-sum-exp. The totals are the column of the target, −1 if it is not among
those here; what that element loses; a factor of exp(x − m), and what every element loses."""

TOKENS_GRADIENT = replace(
    SOFTMAX, name="given_tokens_gradient", finish=_gradient_of_tokens, placed=True
)
"""Of log-probabilities and entropies; the totals likewise, with the factor of the second term."""
