"""Kernels in Triton's own interpreter, on a CPU; or on a GPU, where nothing is watched."""

# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

import contextlib
import math
from collections import Counter
from unittest import mock

import numpy as np
import torch
import triton
import triton.language as tl
from triton.runtime.interpreter import InterpreterError, TensorHandle, interpreter_builder

from .judge import Wrong, outside
from .lab import Launched

GUARD = 64
"""NaN on both sides of a tensor."""
METHODS = [name for name in dir(tl.math) if name[0].islower() and hasattr(tl.tensor, name)]
"""`x.exp()` is `tl.exp(x)` to Triton's compiler, and fails in its interpreter (3.7)."""


class Tensor:
    """Numbers between guards.

    Attributes:
        data: as a kernel takes it.
        first: the address of its first element.
        size: elements from its first to its last.
        places: the offsets of its elements; what lies between is not its own.
    """

    def __init__(self, shape: tuple[int, ...], name: str, gap: int, dtype: str):
        self.name = name
        step = shape[-1] + gap
        strides = (step, 1)[-len(shape) :]
        self.size = sum((n - 1) * s for n, s in zip(shape, strides)) + 1
        of = getattr(torch, dtype)
        nothing = math.nan if of.is_floating_point else 0
        device = "cpu" if triton.knobs.runtime.interpret else "cuda"
        memory = torch.full((self.size + 2 * GUARD,), nothing, dtype=of, device=device)
        self.data = memory[GUARD:].as_strided(shape, strides, GUARD)
        self.first = self.data.data_ptr()
        offsets = np.arange(self.size)
        self.places = set(offsets[(offsets % step) < shape[-1]].tolist())
        self.strides = strides
        self.written: set[int] = set()
        self.tolist = self.data.tolist


class Lab(Launched):
    """Where kernels run; see `with_small_triton`.

    Attributes:
        watches: whether the interpreter runs them, and each access is looked at.
    """

    watches = triton.knobs.runtime.interpret

    def tensor(self, values, name: str, gap: int = 0, dtype: str = "float32") -> Tensor:
        made = torch.tensor(values, dtype=torch.float64)
        tensor = Tensor(tuple(made.shape), name, gap, dtype)
        tensor.data.copy_(made)
        return tensor

    def empty(
        self, shape: tuple[int, ...], name: str, gap: int = 0, dtype: str = "float32"
    ) -> Tensor:
        return Tensor(shape, name, gap, dtype)

    def launch(self, kernel, grid: tuple[int, ...], *arguments, **constants) -> None:
        tensors = [each for each in arguments if isinstance(each, Tensor)]
        taken = [each.data if isinstance(each, Tensor) else each for each in arguments]
        wrong: list[str] = []
        self.seen = Counter()
        if not self.watches:
            for each in tensors:
                each.written |= each.places
            kernel[grid](*taken, **constants)
            return
        with _watched(tensors, wrong, self.seen):
            try:
                kernel[grid](*taken, **constants)
            except InterpreterError as error:
                cause = error.__cause__ or error
                where = cause.__traceback__
                while cause.__cause__:  # of a jitted function that a kernel calls, as tl.sum
                    cause = cause.__cause__
                raise cause.with_traceback(where) from None
        if wrong:
            raise Wrong(wrong[0])


@contextlib.contextmanager
def _watched(tensors: list[Tensor], wrong: list[str], seen: Counter):
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
                seen[kind, tensor.name, place] += 1
                if kind == "store":
                    tensor.written.add(place)
                continue
            live[tuple(at)] = False
            between = 0 <= place < tensor.size
            program = _number(builder)
            wrong.append(outside(kind, tensor.name, program, place, tensor.size, between))
        return TensorHandle(live, mask.dtype)

    def watched_load(pointers, mask, other, *rest):
        other = _anything(pointers) if other is None else other
        return load(pointers, allowed("load", pointers, mask), other, *rest)

    def watched_store(pointers, value, mask, *rest):
        return store(pointers, value, allowed("store", pointers, mask), *rest)

    with contextlib.ExitStack() as patches:
        patches.enter_context(mock.patch.object(builder, "create_masked_load", watched_load))
        patches.enter_context(mock.patch.object(builder, "create_masked_store", watched_store))
        for name in METHODS:
            method = lambda self, name=name: getattr(tl, name)(self)  # noqa: E731
            patches.enter_context(mock.patch.object(tl.tensor, name, method))
        with np.errstate(all="ignore"):  # NaN is for the check to find
            yield


def _anything(pointers) -> TensorHandle | None:
    """What a masked lane without `other` holds; see `with_small_triton`."""
    of = pointers.get_element_ty()
    if not of.is_floating():
        return None
    shape = pointers.data.shape
    if of.name == "bf16":  # whose bits the interpreter keeps as whole numbers
        return TensorHandle(np.full(shape, 0x7F80, np.uint16), of)
    return TensorHandle(np.full(shape, np.inf, f"float{of.primitive_bitwidth}"), of)


def _away(tensor: Tensor, address: int) -> int:
    """How far an address is from a tensor, in bytes."""
    last = tensor.first + (tensor.size - 1) * tensor.data.element_size()
    return max(0, tensor.first - address, address - last)


def _number(builder) -> int:
    """The number of the program that runs, counted along the grid."""
    (x, y, z), (nx, ny, _) = builder.grid_idx, builder.grid_dim
    return x + nx * (y + ny * z)
