"""Define what is computed for a row, independent of its memory layout, which `kernels` handle.

| module | operations | equations |
| --- | --- | --- |
| `operation` | the parts of an operation | |
| `softmax` | `SOFTMAX`, `SOFTMAX_VJP` | softmax-safe, softmax-vjp |
| | `LOG_SOFTMAX`, `LOG_SOFTMAX_VJP` | log-softmax-definition, log-softmax-vjp |
| `logsumexp` | `LOGSUMEXP`, `LOGSUMEXP_VJP` | lse-from-summary, logsumexp-gradient |
| `cross_entropy` | `CROSS_ENTROPY`, `DISTRIBUTION`, … | cross-entropy-from-summary, … |

An operation is a small file: a few jitted functions, and an `Operation` that combines them. Every
geometry runs every operation, but for `DISTRIBUTION`.
"""

from .logsumexp import LOGSUMEXP, LOGSUMEXP_VJP
from .softmax import LOG_SOFTMAX, LOG_SOFTMAX_VJP, SOFTMAX, SOFTMAX_VJP

OPERATIONS = {
    "softmax": SOFTMAX,
    "softmax_backward": SOFTMAX_VJP,
    "log_softmax": LOG_SOFTMAX,
    "log_softmax_backward": LOG_SOFTMAX_VJP,
    "logsumexp": LOGSUMEXP,
    "logsumexp_backward": LOGSUMEXP_VJP,
}
"""Softmax, its relatives and their backward passes, by the names in benchmarks and tests."""
