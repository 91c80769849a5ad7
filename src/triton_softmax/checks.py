"""What the functions and operators refuse, and the words for it."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

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

BATCH_INVARIANT = "batch_invariant"
"""What `batch_invariant=True` becomes, and is handed on as in the place of an implementation: the
library chooses among kernels, and in each, that give a row the same bits in every batch."""

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""The dtypes the kernels read and write."""

INTERPRETED = not isinstance(tl.sum, triton.JITFunction)
"""Whether Triton was imported with TRITON_INTERPRET=1, so that kernels run on CPU tensors."""


def check_dim(dim: int, ndim: int) -> int:
    """Return `dim` counted from the front; a 0-d tensor has one dimension here, as everywhere in
    PyTorch.

    Raises:
        IndexError: there is no such dimension.

    >>> check_dim(-1, 3), check_dim(0, 0)
    (2, 0)
    """
    n = max(ndim, 1)
    if not -n <= dim < n:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {dim})"
        )
    return dim % n


def check_dtype(dtype: torch.dtype, what: str) -> None:
    """Refuse what is not one of the four floating-point dtypes of `DTYPES`.

    Raises:
        TypeError: `what` has another dtype.
    """
    if dtype not in DTYPES:
        names = ", ".join(str(known).removeprefix("torch.") for known in DTYPES)
        raise TypeError(
            f"{what} has dtype {str(dtype).removeprefix('torch.')}; expected one of {names}"
        )


def check_implementation(implementation: str | None) -> None:
    """Refuse a name that is not in `IMPLEMENTATIONS`; None means that the library chooses.

    Raises:
        ValueError: the name is unknown.
    """
    if implementation not in (None, BATCH_INVARIANT, *IMPLEMENTATIONS):
        names = list(IMPLEMENTATIONS)
        raise ValueError(
            f"unknown implementation {implementation!r}; expected None or one of {names}"
        )


def check_device(device: torch.device, implementation: str | None = None) -> None:
    """Refuse a device for which there is neither a kernel nor a replacement.

    Raises:
        RuntimeError: Triton has no kernels for it; or it is the CPU, kernels are compiled, and
            `implementation` names one.
    """
    if device.type == "cpu":
        if INTERPRETED or implementation in (None, BATCH_INVARIANT, "naive"):
            return
        raise RuntimeError(
            f"implementation={implementation!r} runs on the CPU in Triton's interpreter alone: set "
            "TRITON_INTERPRET=1 before importing triton, or move the tensor to a GPU"
        )
    if device.type not in ("cuda", "xpu"):
        raise RuntimeError(
            f"Triton has no kernels for device {str(device)!r}; expected cuda, xpu or cpu"
        )


def check_arguments(
    x: Tensor, dim: int, dtype: torch.dtype | None = None, implementation: str | None = None
) -> int:
    """Check what can be told without data, and return `dim` counted from the front.

    Raises:
        TypeError, ValueError, IndexError: as the functions above.
    """
    check_dtype(x.dtype, "the input")
    if dtype is not None:
        check_dtype(dtype, "the argument dtype")
    check_implementation(implementation)
    return check_dim(dim, x.dim())


def check_alike(x: Tensor, *others: Tensor, shape: torch.Size) -> None:
    """Refuse tensors that do not go with x: of another shape than `shape`, or on another device.

    Raises:
        ValueError: the shapes differ.
        RuntimeError: the devices differ.
    """
    for other in others:
        if other.shape != shape:
            raise ValueError(f"expected a tensor of shape {tuple(shape)}, not {tuple(other.shape)}")
        if other.device != x.device:
            raise RuntimeError(f"the tensors lie on two devices, {x.device} and {other.device}")
