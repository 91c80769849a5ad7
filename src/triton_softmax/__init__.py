"""Softmax in Triton: `softmax`, `log_softmax`, `logsumexp` and related losses, as drop-in
replacements of PyTorch's functions.

The modules, in the order in which a call reaches them:

- `functional`: `softmax`, `log_softmax`, `logsumexp`; `losses`: `cross_entropy`; `linear`:
  `linear_cross_entropy`; `logprobs`: log-probabilities and entropies; `nn`: the modules
- `arguments`: checks, and the `batch_invariant` context
- `modes`: what PyTorch is doing around a call
- `operators`: the operators registered with PyTorch, with their rules for autograd, vmap, autocast
  and tracing; plain eager calls bypass the dispatcher
- `composite`: every operation in PyTorch's own operators, for CPUs, transforms and derivatives
  beyond the first
- `plan`: how to run a kind of call, decided once and cached; for rows, score modifiers, losses and
  tokens; with `layout`, memory layouts, and `launch`, prepared launches and their workspace
- `config`: from shape, strides, dtype and device to a kernel and its constants
- `operations`: what is computed for a row
- `kernels`: one per memory layout, for all operations
- `distributed`: rows sharded over several ranks

Importing the package registers the operators. The names in `__all__` and the functions of
`integrations` are public. Every other module is private, though its name has no underscore: it may
change in any release.
"""

from .arguments import batch_invariant
from .functional import log_softmax, logsumexp, softmax
from .linear import linear_cross_entropy
from .logprobs import (
    entropy_from_logits,
    selective_log_softmax,
    selective_log_softmax_and_entropy,
    token_logprobs,
)
from .losses import cross_entropy
from .nn import CrossEntropyLoss, LogSoftmax, Softmax

__version__ = "0.1.0"

__all__ = [
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
    "selective_log_softmax_and_entropy",
    "softmax",
    "token_logprobs",
]
