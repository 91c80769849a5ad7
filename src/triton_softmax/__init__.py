"""Softmax in Triton: `softmax`, `log_softmax` and `logsumexp` with PyTorch's meaning, and a ladder
of kernels.

The modules, in the order in which a call passes them:

- `functional`: `softmax`, `log_softmax`, `logsumexp`; `maps`: the first two with scale, masks and
  sinks, and `mapped`, the calls of their kernel; `losses`: `cross_entropy`; `linear`:
  `linear_cross_entropy`; `tokens`: log-probabilities and entropies; `nn`: the modules
- `invariance`: the context in which a row has the same bits in every batch
- `eager`: the short cut of plain eager calls, past PyTorch's dispatcher
- `registration`: the operators for all other calls, with rules for autograd, vmap, autocast and
  tracing; `derivatives`: their derivatives of any order
- `dispatch`: from a call to its plan
- `checks`: what is refused; `plan`: what a call does, decided once; `layout`: how its tensors lie
- `choose`: from shape, strides, dtype and device to a geometry and its constants
- `operations`: what is computed for a row
- `kernels`: where the row lies; the ladder of rungs, then a geometry each, for all operations
- `launch`: Triton's launch and the workspace; `cpu`: PyTorch's operators where there is no GPU
- `distributed`: the same on rows of which each of several ranks has a part

Beside them stands `reference`, the mathematics in NumPy and PyTorch. Importing the package
registers the operators.
"""

from __future__ import annotations

from .checks import IMPLEMENTATIONS
from .functional import log_softmax, logsumexp, softmax
from .invariance import batch_invariant
from .linear import linear_cross_entropy
from .losses import cross_entropy
from .nn import CrossEntropyLoss, LogSoftmax, Softmax
from .tokens import entropy_from_logits, selective_log_softmax, token_logprobs

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
