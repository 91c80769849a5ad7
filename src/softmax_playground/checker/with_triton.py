"""Kernels in Triton's own interpreter, on a CPU."""

# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

import contextlib
import math

import numpy as np
import torch
from triton.runtime.interpreter import InterpreterError, TensorHandle, interpreter_builder

from .judge import Wrong, compare, outside

GUARD = 64
"""NaN on both sides of a tensor."""


class Tensor:
    """Numbers between guards.

    Attributes:
        data: as a kernel takes it.
        first: the address of its first element.
        size: elements from its first to its last.
        places: the offsets of its elements; what lies between is not its own.
    """

    def __init__(self, shape: tuple[int, ...], name: str, gap: int):
        self.name = name
        step = shape[-1] + gap
        strides = (step, 1)[-len(shape) :]
        self.size = sum((n - 1) * s for n, s in zip(shape, strides)) + 1
        memory = torch.full((self.size + 2 * GUARD,), math.nan)
        self.data = memory[GUARD:].as_strided(shape, strides, GUARD)
        self.first = self.data.data_ptr()
        offsets = np.arange(self.size)
        self.places = set(offsets[(offsets % step) < shape[-1]].tolist())
        self.strides = strides
        self.written: set[int] = set()


class Lab:
    """Where kernels run; see `with_small_triton`."""

    def __init__(self):
        self.counts: dict[str, int] = {}

    def tensor(self, values, name: str, gap: int = 0) -> Tensor:
        made = torch.tensor(values)
        tensor = Tensor(tuple(made.shape), name, gap)
        tensor.data.copy_(made)
        return tensor

    def empty(self, shape: tuple[int, ...], name: str, gap: int = 0) -> Tensor:
        return Tensor(shape, name, gap)

    def launch(self, kernel, grid: tuple[int, ...], *arguments, **constants) -> None:
        tensors = [each for each in arguments if isinstance(each, Tensor)]
        wrong: list[str] = []
        self.counts = {"load": 0, "store": 0}
        with _watched(tensors, wrong, self.counts):
            try:
                kernel[grid](
                    *(each.data if isinstance(each, Tensor) else each for each in arguments),
                    **constants,
                )
            except InterpreterError as error:
                raise error.__cause__ or error from None
        if wrong:
            raise Wrong(wrong[0])

    def count(self, kind: str) -> int:
        return self.counts[kind]

    def compare(self, tensor: Tensor, right) -> None:
        def known(at):
            place = sum(i * step for i, step in zip(at, tensor.strides))
            return None if place in tensor.written else "No program writes it."

        compare(tensor.data.tolist(), right, tensor.name, known)


@contextlib.contextmanager
def _watched(tensors: list[Tensor], wrong: list[str], counts: dict[str, int]):
    """Look at every access of a launch: those that leave their tensor do not happen, and are
    told."""
    builder = interpreter_builder
    load, store = builder.create_masked_load, builder.create_masked_store

    def allowed(kind: str, pointers, mask):
        addresses = np.broadcast_to(pointers.data, mask.data.shape).astype(np.int64)
        live = mask.data.astype(bool).copy()
        for at in np.argwhere(live):
            address = int(addresses[tuple(at)])
            tensor = min(tensors, key=lambda each: _away(each, address))
            place = (address - tensor.first) // tensor.data.element_size()
            if place in tensor.places:
                counts[kind] += 1
                if kind == "store":
                    tensor.written.add(place)
                continue
            live[tuple(at)] = False
            between = 0 <= place < tensor.size
            program = _number(builder)
            wrong.append(outside(kind, tensor.name, program, place, tensor.size, between))
        return TensorHandle(live, mask.dtype)

    def watched_load(pointers, mask, *rest):
        return load(pointers, allowed("load", pointers, mask), *rest)

    def watched_store(pointers, value, mask, *rest):
        return store(pointers, value, allowed("store", pointers, mask), *rest)

    builder.create_masked_load, builder.create_masked_store = watched_load, watched_store
    try:
        with np.errstate(all="ignore"):  # NaN is for the check to find
            yield
    finally:
        del builder.create_masked_load, builder.create_masked_store


def _away(tensor: Tensor, address: int) -> int:
    """How far an address is from a tensor, in bytes."""
    last = tensor.first + (tensor.size - 1) * tensor.data.element_size()
    return max(0, tensor.first - address, address - last)


def _number(builder) -> int:
    """The number of the program that runs, counted along the grid."""
    (x, y, z), (nx, ny, _) = builder.grid_idx, builder.grid_dim
    return x + nx * (y + ny * z)
