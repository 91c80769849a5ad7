"""Softmax in Triton: `softmax`, `log_softmax` and `logsumexp` with PyTorch's meaning, and a ladder
of kernels.

The modules, in the order in which a call passes them:

- `functional`: `softmax`, `log_softmax`, `logsumexp`; `nn`: `Softmax`, `LogSoftmax`
- `eager`: the short cut of plain eager calls, past PyTorch's dispatcher
- `registration`: the operators for all other calls, with rules for autograd, vmap, autocast and
  tracing; `derivatives`: their derivatives of any order
- `dispatch`: from a call to its plan
- `checks`: what is refused; `plan`: what a call does, decided once; `heuristics`: (shape, strides,
  dtype, device) to a frozen configuration
- `launch`: Triton's launch and the workspace
- `kernels`: one idea per file: device functions, kernel, thin launcher

Beside them stand `reference`, the mathematics in NumPy and PyTorch, `worked`, the 2x3 example, and
`traffic`, the bytes each rung moves. Importing the package registers the operators.
"""

from __future__ import annotations

import contextlib

__version__ = "0.1.0"

with contextlib.suppress(ImportError):  # the site, a part of this package, is built without torch
    from .checks import IMPLEMENTATIONS
    from .functional import log_softmax, logsumexp, softmax
    from .nn import LogSoftmax, Softmax

__all__ = [
    "IMPLEMENTATIONS",
    "LogSoftmax",
    "Softmax",
    "__version__",
    "log_softmax",
    "logsumexp",
    "softmax",
]
