"""Log-softmax along a row, and its vector-Jacobian product."""

from dataclasses import replace

import triton
import triton.language as tl

from ..kernels.device.monoid import exp_shifted
from .operation import Operation, same
from .softmax import SOFTMAX


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


LOG_SOFTMAX_VJP = Operation(
    "log_softmax_vjp",
    inputs=2,
    padding=0.0,
    shifted=False,
    terms=_gradient,
    rescale=same,
    finish=_log_softmax_vjp,
    exp_in_finish=True,
)
"""dx = dy − exp(y)·s, s = sum(dy)."""
