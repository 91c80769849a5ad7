"""Epilogues that compute gradients from known row summaries, for `finish_rows_kernel`.

The summaries come from the forward pass, or from all ranks of a group.
"""

from dataclasses import replace

import triton
import triton.language as tl

from .softmax import SOFTMAX
from .token_statistics import distances


@triton.jit
def _gradient(values, terms, m, totals):
    """f·exp(x − m) − c, less `at_target` at the target. f = 0 cancels its term even for NaN."""
    target, at_target, f, c = totals
    here = tl.where(values[-1] == target, at_target, 0.0)
    return tl.where(f == 0.0, 0.0, terms[0] * f) - c - here


@triton.jit
def _gradient_of_tokens(values, terms, m, totals):
    """f·exp(x − m) − h·exp(x − m)·(x − m), plus `at_target` at the token."""
    target, at_target, f, h = totals
    here = tl.where(values[-1] == target, at_target, 0.0)
    return terms[0] * f - terms[0] * distances(values[0], m) * h + here


GRADIENT = replace(SOFTMAX, name="given_gradient", finish=_gradient, placed=True)
"""The gradient of cross-entropy and log-sum-exp. Its totals are the target's column (−1 if not
here), what to subtract there, the factor of exp(x − m), and what to subtract everywhere."""

TOKENS_GRADIENT = replace(
    SOFTMAX, name="given_tokens_gradient", finish=_gradient_of_tokens, placed=True
)
"""The gradient of log-probabilities and entropies. Its totals are the token's column, what to add
there, and the factors of exp(x − m) and exp(x − m)·(x − m)."""
