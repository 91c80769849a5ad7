"""What is computed for a row; `kernels` says where the row lies.

| module | operations | equations |
| --- | --- | --- |
| `operation` | the form: what one is made of | |
| `softmax` | `SOFTMAX`, `SOFTMAX_VJP` | softmax-safe, softmax-vjp |
| `log_softmax` | `LOG_SOFTMAX`, `LOG_SOFTMAX_VJP` | log-softmax-definition, log-softmax-vjp |
| `logsumexp` | `LOGSUMEXP`, `LOGSUMEXP_VJP` | lse-from-summary, logsumexp-gradient |
| `cross_entropy` | `CROSS_ENTROPY`, … | cross-entropy-from-summary, cross-entropy-gradient |
| `distribution` | `DISTRIBUTION`, … | cross-entropy-distribution |
| `tokens` | `STATISTICS`, `ENTROPY`, … | entropy-from-summary, entropy-gradient |
| `gradients` | `GRADIENT`, `TOKENS_GRADIENT` | entropy-gradient, cross-entropy-gradient |

An operation is a small file: a handful of jitted functions, and the value that joins them. Every
geometry takes every operation. Those of `gradients` begin where a summary is known, and have a
kernel for that.
"""
