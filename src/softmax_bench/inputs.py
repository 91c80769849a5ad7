"""The tensors of a case."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from softmax_bench.case import PASSES, Case
from softmax_bench.random_shapes import pitch

WIDTH = 4096
"""Of the layer in front of `linear_cross_entropy`."""


@dataclass
class Tensors:
    """The tensors of one case; each is None where the case has none."""

    x: Tensor  # elements, logits or scores; the input of a layer
    y: Any = None  # the result, where the backward pass alone is measured
    dy: Any = None  # the gradient at the result of a softmax
    target: Any = None  # classes of rows: each eighth is ignored, but of log-probabilities none
    more: Any = None  # the weight of a layer, a mask, or temperatures of rows


def changed(case: Case, x: Tensor) -> Tensor:
    """Turn normally distributed numbers, in place, into what `case.inputs` names."""
    n_cols = case.n_cols
    if case.inputs == "wide":
        x.mul_(30.0)
    elif case.inputs == "offset":
        x.add_(1000.0 if case.dtype != "float32" else 3.0e4)
    elif case.inputs == "masked":  # as in causal attention: row i sees its first columns only
        for row in range(x.shape[0]):
            x[row, 1 + row * (n_cols - 1) // x.shape[0] :] = -torch.inf
    elif case.inputs == "spike":
        x[:, n_cols // 3] = 60.0
    elif case.inputs == "equal":
        x.fill_(0.5)
    elif case.inputs == "very_negative":
        x.sub_(1000.0)
    elif case.inputs == "all_masked":
        x[0] = -torch.inf
    return x


class Inputs:
    """Makes the tensors of cases on a device, of random numbers."""

    def __init__(self, device: str, seed: int | None = None):
        self.device = torch.device(device)
        seed = time.time_ns() % 2**31 if seed is None else seed
        self.generator = torch.Generator(device).manual_seed(seed)

    def numbers(self, dtype: str, *shape: int) -> Tensor:
        """Normally distributed numbers."""
        where = {"generator": self.generator, "device": self.device}
        return torch.randn(shape, dtype=getattr(torch, dtype), **where)

    def laid_out(self, case: Case) -> Tensor:
        """Random numbers as they lie in memory."""
        gaps = {"padded": pitch(case.n_cols), "row_strided": 2 * case.n_cols}
        if case.layout in gaps:
            return self.numbers(case.dtype, case.n_rows, gaps[case.layout])[:, : case.n_cols]
        return self.numbers(case.dtype, *case.shape)

    def tensors(self, case: Case) -> Tensors:
        """The tensors of a case; the gradient of the layout `row_strided` is contiguous."""
        if case.op == "linear_cross_entropy":
            n_rows, n_classes = case.shape
            x, weight = (self.numbers(case.dtype, size, WIDTH) for size in (n_rows, n_classes))
            return Tensors(x, target=self._targets(case), more=weight / WIDTH**0.5)
        x = changed(case, self.laid_out(case))
        if case.op == "modified_softmax":
            return Tensors(x, more=self._of_rows(case))
        if case.op in PASSES:
            return Tensors(x, target=self._targets(case))
        tensors = Tensors(x)
        if case.direction != "forward":
            dense = case.layout == "row_strided"
            tensors.dy = self.laid_out(replace(case, layout="contiguous") if dense else case)
        if case.direction == "backward":
            function = torch.log_softmax if case.op == "log_softmax" else torch.softmax
            tensors.y = function(x, case.dim)
        return tensors

    def _targets(self, case: Case) -> Tensor:
        n_rows, n_classes = case.shape
        where = {"generator": self.generator, "device": self.device}
        target = torch.randint(0, n_classes, (n_rows,), **where)
        if case.op != "token_logprobs" and case.inputs != "none_ignored":
            target[::8] = -100
        return target

    def _of_rows(self, case: Case) -> Tensor:
        """Temperatures of rows, or a mask of padding that they share."""
        if case.inputs == "temperature":
            shape = (*case.shape[:-1], 1)
            return torch.rand(shape, generator=self.generator, device=self.device) + 0.5
        mask = torch.ones(1, 1, 1, case.n_cols, dtype=torch.bool, device=self.device)
        mask[..., -case.n_cols // 8 :] = False
        return mask

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def free(self) -> None:
        """Give memory that nothing uses back to the device, which other processes share."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
