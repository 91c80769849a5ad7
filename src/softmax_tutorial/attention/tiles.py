"""What the kernels of attention share: the sizes of a tile, and tensors as descriptors see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor


class Tile(NamedTuple):
    """What a program holds at a time; powers of two."""

    queries: int
    keys: int
    dims: int
    """At least the dimensions of a head; what is beyond them is 0."""


def addressable(x: Tensor) -> Tensor:
    """The tensor itself if a descriptor can address it: rows of adjacent elements, each of which
    starts at a multiple of 16 bytes. If not, a copy of which this is true.

    >>> x = torch.ones(1, 2, 3, 20, dtype=torch.bfloat16)
    >>> x.stride(), addressable(x).stride()
    ((120, 60, 20, 1), (144, 72, 24, 1))
    """
    step = 16 // x.element_size()
    outer = [stride for stride, size in zip(x.stride()[:3], x.shape[:3]) if size > 1]
    if (
        (x.stride(3) == 1 or x.shape[3] == 1)
        and x.data_ptr() % 16 == 0
        and all(stride > 0 and stride % step == 0 for stride in outer)
    ):
        return x
    copy = empty(x.shape, x.dtype, x.device)
    return copy.copy_(x)


def empty(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """New memory that a descriptor can address: rows end in a gap if they would not start at
    multiples of 16 bytes."""
    step = 16 // dtype.itemsize
    rows = torch.empty(*shape[:3], -(-shape[3] // step) * step, dtype=dtype, device=device)
    return rows[..., : shape[3]]


def described(x: Tensor, rows: int, dims: int) -> TensorDescriptor:
    """A descriptor of (B, H, S, D) that reads and writes tiles (rows, dims) of one head. What lies
    outside the head is read as 0, and not written."""
    step = 16 // x.element_size()
    strides = [s if n > 1 else step for s, n in zip(x.stride()[:3], x.shape[:3])]
    return TensorDescriptor(x, list(x.shape), [*strides, 1], [1, 1, rows, dims])
