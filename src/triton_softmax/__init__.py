"""Softmax in Triton: `softmax`, `log_softmax` and `logsumexp` with PyTorch's meaning, and a ladder
of kernels.

The modules, in reading order; each imports only from those above it:

* `reference`: the mathematics in NumPy and PyTorch: naive, online, merge, vector-Jacobian product;
* `kernels`: one idea per file: device functions, kernel, thin launcher;
* `heuristics`: (shape, strides, dtype, device) to a frozen configuration; needs no GPU;
* `dispatch`: configuration to launcher;
* `ops`: registration with PyTorch: shapes, autograd, vmap, autocast;
* `functional`: `softmax`, `log_softmax`, `logsumexp`;
* `nn`: `Softmax`, `LogSoftmax`.

Importing this package imports neither torch nor triton; asking it for a public name does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .functional import log_softmax, logsumexp, softmax
    from .nn import LogSoftmax, Softmax

__version__ = "0.1.0"

IMPLEMENTATIONS = (
    "naive",
    "three_loops",
    "two_loops",
    "single_block",
    "packed_rows",
    "aligned_rows",
    "split_rows",
    "strided",
)
"""The names that `implementation=` accepts, in the order of the ladder. `None` lets the library
choose."""

__all__ = [
    "IMPLEMENTATIONS",
    "LogSoftmax",
    "Softmax",
    "__version__",
    "log_softmax",
    "logsumexp",
    "softmax",
]

_HOME = {
    "softmax": "functional",
    "log_softmax": "functional",
    "logsumexp": "functional",
    "Softmax": "nn",
    "LogSoftmax": "nn",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value  # the next access does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
