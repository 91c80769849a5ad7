"""What is computed for a row; `kernels` says where the row lies.

| module | operations | equations |
| --- | --- | --- |
| `operation` | the form: what one is made of | |
| `softmax` | `SOFTMAX`, `SOFTMAX_VJP` | softmax-safe, softmax-vjp |
| `log_softmax` | `LOG_SOFTMAX`, `LOG_SOFTMAX_VJP` | log-softmax-definition, log-softmax-vjp |
| `logsumexp` | `LOGSUMEXP`, `LOGSUMEXP_VJP` | lse-from-summary, logsumexp-gradient |
| `cross_entropy` | `CROSS_ENTROPY`, `DISTRIBUTION`, … | cross-entropy-from-summary, … |
| `token_statistics` | `STATISTICS`, `ENTROPY`, … | entropy-from-summary, entropy-gradient |
| `gradients` | `GRADIENT`, `TOKENS_GRADIENT` | entropy-gradient, cross-entropy-gradient |

An operation is a small file: a handful of jitted functions, and the value that joins them. Every
geometry takes every operation. Those of `gradients` begin where a summary is known, and have a
kernel for that.
"""

from .cross_entropy import PLAIN, SMOOTHED
from .log_softmax import LOG_SOFTMAX, LOG_SOFTMAX_VJP
from .logsumexp import LOGSUMEXP, LOGSUMEXP_VJP
from .softmax import SOFTMAX, SOFTMAX_VJP
from .token_statistics import ENTROPY, STATISTICS

OPERATIONS = {
    "softmax": SOFTMAX,
    "softmax_backward": SOFTMAX_VJP,
    "log_softmax": LOG_SOFTMAX,
    "log_softmax_backward": LOG_SOFTMAX_VJP,
    "logsumexp": LOGSUMEXP,
    "logsumexp_backward": LOGSUMEXP_VJP,
}
"""The operations of softmax and its relatives, by the names that benchmarks and tests give them."""

LOSSES = {op.name: op for op in (*PLAIN, *SMOOTHED, STATISTICS, ENTROPY)}
"""What stands around a softmax: operations with numbers of the row, among the inputs or the
results."""
