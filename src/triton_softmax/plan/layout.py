"""Describe memory layouts: a tensor as a matrix of rows, or its dimensions collapsed to groups."""

import math

import torch
from torch import Tensor


def strides_of(shape: torch.Size) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor."""
    return torch.empty(shape, device="meta").stride()


def lies_on_vectors(tensor: Tensor) -> bool:
    """Return whether the tensor is contiguous and aligned to 16 bytes."""
    return tensor.is_contiguous() and tensor.data_ptr() % 16 == 0


def on_vectors(tensor: Tensor) -> Tensor:
    """Return the tensor itself if contiguous and aligned, else a copy that is."""
    return (
        tensor if lies_on_vectors(tensor) else tensor.clone(memory_format=torch.contiguous_format)
    )


def rows_along(x: Tensor, dim: int) -> Tensor:
    """Return x as a matrix whose rows run along `dim`; a view where possible."""
    moved = x.movedim(dim, -1)
    return moved.reshape(math.prod(moved.shape[:-1]), moved.shape[-1])


def collapse(
    shape: tuple[int, ...], strides: list[tuple[int, ...]], dim: int
) -> list[tuple[int, ...]]:
    """Collapse the dimensions of `shape` other than `dim`, where the strides of all tensors allow
    it, to groups (size, stride in each tensor), outermost first, omitting size 1.

    >>> collapse((2, 3, 4, 5), [(60, 20, 5, 1)], 2)
    [(6, 20), (5, 1)]
    """
    groups: list[tuple[int, ...]] = []
    for i, size in enumerate(shape):
        if i == dim or size == 1:
            continue
        steps = tuple(s[i] for s in strides)
        if groups and all(
            outer == size * step for outer, step in zip(groups[-1][1:], steps, strict=True)
        ):
            groups[-1] = (groups[-1][0] * size, *steps)
        else:
            groups.append((size, *steps))
    return groups


def outer_and_inner(groups: list[tuple[int, ...]], n_tensors: int) -> list[tuple[int, ...]] | None:
    """Pad to two groups, the smaller stride in the first tensor last; None if there are more."""
    if len(groups) > 2:
        return None
    groups = [(1,) + (0,) * n_tensors] * (2 - len(groups)) + groups
    return groups if groups[0][1] >= groups[1][1] or groups[0][0] == 1 else groups[::-1]
