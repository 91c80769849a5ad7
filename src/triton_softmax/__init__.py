"""Softmax in Triton: `softmax`, `log_softmax`, `logsumexp` and the losses that stand around them,
with PyTorch's meaning.

The modules, in the order in which a call passes them:

- `functional`: `softmax`, `log_softmax`, `logsumexp`; `score_modifiers`: the first two with scale,
  masks and sinks; `losses`: `cross_entropy`; `linear`: `linear_cross_entropy`; `logprobs`:
  log-probabilities and entropies; `nn`: the modules
- `arguments`: what is refused, and the context in which a row has the same bits in every batch
- `operators`: a table of the operators that PyTorch knows, with their rules for autograd, vmap,
  autocast and tracing; and the short cut of plain eager calls past PyTorch's dispatcher
- `composite`: every operation in PyTorch's own operators, for CPUs, transforms and derivatives
  beyond the first
- `plan`: what a call does, decided once and remembered; `layout`: how its tensors lie
- `config`: from shape, strides, dtype and device to a kernel and its constants
- `operations`: what is computed for a row
- `kernels`: one for each way that rows lie in memory, for all operations
- `launch`: Triton's launch and the workspace
- `distributed`: rows of which each of several ranks has a part

Importing the package registers the operators.
"""

from __future__ import annotations

from .arguments import IMPLEMENTATIONS, batch_invariant
from .functional import log_softmax, logsumexp, softmax
from .linear import linear_cross_entropy
from .logprobs import entropy_from_logits, selective_log_softmax, token_logprobs
from .losses import cross_entropy
from .nn import CrossEntropyLoss, LogSoftmax, Softmax

__version__ = "0.1.0"

__all__ = [
    "IMPLEMENTATIONS",
    "CrossEntropyLoss",
    "LogSoftmax",
    "Softmax",
    "__version__",
    "batch_invariant",
    "cross_entropy",
    "entropy_from_logits",
    "linear_cross_entropy",
    "log_softmax",
    "logsumexp",
    "selective_log_softmax",
    "softmax",
    "token_logprobs",
]
