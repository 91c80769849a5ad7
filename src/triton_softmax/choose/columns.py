"""Elements that lie apart: what a choice has to know of the tensors, and who makes it."""

from __future__ import annotations

from . import model
from .constants import Choice
from .device import Device
from .strided import Columns, choose_columns
from .traits import Traits
from .vectors import vector_of_lines


def choose_strided(
    n_outer: int,
    n_cols: int,
    n_inner: int,
    itemsize: int,
    *,
    traits: Traits,
    addresses: tuple[int, ...],
    outer_strides: tuple[int, ...],
    col_strides: tuple[int, ...],
    inner_strides: tuple[int, ...],
    device: Device,
    held: int | None = None,
) -> Choice:
    """The choice for an operation along the middle dimension of (n_outer, n_cols, n_inner).

    Args:
        n_outer: size of the first dimension.
        n_cols: length of the softmax dimension.
        n_inner: size of the last dimension.
        itemsize: bytes of the narrowest element of the tensors involved; 8 only if all are float64.
        traits: of the operation.
        addresses: of the tensors' first elements.
        outer_strides, col_strides, inner_strides: of each tensor, in elements, from one to the next
            along each dimension; any, 0 included.
        device: what the kernel will run on.
        held: bytes of the widest element that is read; by default `itemsize`.
    """
    counts = (n_inner, *outer_strides, *col_strides)
    vector = vector_of_lines(itemsize, addresses, counts)
    triton_sees_it = all(count % 16 == 0 for count in counts)
    steps = zip(col_strides, inner_strides, strict=True)
    largest_offset = max((n_cols - 1) * col + (n_inner - 1) * inner for col, inner in steps)
    columns = Columns(
        n_outer,
        n_cols,
        n_inner,
        itemsize=held or itemsize,
        vector=vector,
        stated_vector=1 if triton_sees_it else vector,
        wide_index=largest_offset >= 2**31,
    )
    if device.tuned or traits.any_order:
        return choose_columns(columns, traits, device)
    return model.choose_columns(columns, traits, device)
