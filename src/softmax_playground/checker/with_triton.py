"""Kernels in Triton itself: in its own interpreter on a CPU, or on a GPU. What they read and write
the small Triton has looked at before."""

# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

import contextlib
import math
from unittest import mock

import numpy as np
import torch
import triton
import triton.language as tl
from triton.runtime.interpreter import InterpreterError

from . import with_small_triton
from .judge import Wrong, compare

GUARD = 64
"""NaN on both sides of a tensor, or 0 of integers."""
METHODS = [name for name in dir(tl.math) if name[0].islower() and hasattr(tl.tensor, name)]
"""`x.exp()` is `tl.exp(x)` to Triton's compiler, and fails in its interpreter (3.7)."""


class Tensor:
    """Numbers between guards; `data` is what a kernel takes."""

    def __init__(self, shape: tuple[int, ...], name: str, gap: int, dtype: str):
        strides = (shape[-1] + gap, 1)[-len(shape) :]
        size = sum((n - 1) * s for n, s in zip(shape, strides)) + 1
        of = getattr(torch, dtype)
        self.nothing = math.nan if of.is_floating_point else 0
        device = "cpu" if triton.knobs.runtime.interpret else "cuda"
        self.memory = torch.full((size + 2 * GUARD,), self.nothing, dtype=of, device=device)
        self.data = self.memory.as_strided(shape, strides, GUARD)
        self.name, self.tolist = name, self.data.tolist

    def is_overrun(self) -> bool:
        """Whether a number was written beside the elements."""
        beside = self.memory.clone()
        beside.as_strided(self.data.shape, self.data.stride(), GUARD).fill_(self.nothing)
        return not (beside.isnan() if beside.is_floating_point() else beside == 0).all()


class Lab(with_small_triton.Lab):
    """Where kernels run; nothing is counted."""

    def __init__(self):
        super().__init__(triton)

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
        with _as_compiled() if triton.knobs.runtime.interpret else contextlib.nullcontext():
            kernel[grid](*taken, **constants)
        for each in tensors:
            if each.is_overrun():
                raise Wrong(f"A program writes {each.name} out of range.")

    def compare(self, tensor, right, why=None, **error):
        compare(self.values(tensor), right, tensor.name, None, why, **error)


@contextlib.contextmanager
def _as_compiled():
    """Let the interpreter take what the compiler takes, and raise what a kernel raises."""
    with contextlib.ExitStack() as patches:
        for name in METHODS:
            method = lambda self, name=name: getattr(tl, name)(self)  # noqa: E731
            patches.enter_context(mock.patch.object(tl.tensor, name, method))
        patches.enter_context(np.errstate(all="ignore"))  # NaN is for the check to find
        try:
            yield
        except InterpreterError as error:
            cause = error.__cause__ or error
            where = cause.__traceback__
            while cause.__cause__:  # of a jitted function that a kernel calls, as tl.sum
                cause = cause.__cause__
            raise cause.with_traceback(where) from None
