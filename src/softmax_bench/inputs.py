"""The tensors of a case."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from softmax_bench.case import PASSES, Case
from softmax_bench.cases import ELEMENTS
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
    """Makes the tensors of cases on a device, from buffers of random numbers that they share."""

    def __init__(self, device: str, seed: int | None = None):
        self.device = torch.device(device)
        seed = time.time_ns() % 2**31 if seed is None else seed
        self.generator = torch.Generator(device).manual_seed(seed)
        self.buffers: dict[tuple[str, int], Tensor] = {}

    def numbers(self, dtype: str, slot: int, elements: int) -> Tensor:
        """Normally distributed numbers; those of a type and a slot are the same for all cases."""
        buffer = self.buffers.get((dtype, slot))
        if buffer is None or buffer.numel() < elements:
            self.buffers.pop((dtype, slot), None)
            size = max(elements, ELEMENTS) if self.device.type == "cuda" else elements
            where = {"generator": self.generator, "device": self.device}
            buffer = torch.randn(size, dtype=getattr(torch, dtype), **where)
            self.buffers[dtype, slot] = buffer
        return buffer[:elements]

    def laid_out(self, case: Case, slot: int = 0) -> Tensor:
        """Random numbers as they lie in memory; the gradient of the layout `row_strided` is
        contiguous."""
        step = case.n_cols
        if case.layout == "padded":
            step = pitch(step)
        elif case.layout == "row_strided" and not slot:
            step *= 2
        flat = self.numbers(case.dtype, slot, case.n_rows * step)
        if step == case.n_cols:
            return flat.view(case.shape)
        return flat.view(case.n_rows, step)[:, : case.n_cols]

    def tensors(self, case: Case) -> Tensors:
        """The tensors of a case."""
        if case.op == "linear_cross_entropy":
            n_rows, n_classes = case.shape
            x = self.numbers(case.dtype, 0, n_rows * WIDTH).view(n_rows, WIDTH)
            weight = self.numbers(case.dtype, 1, n_classes * WIDTH).view(n_classes, WIDTH)
            return Tensors(x, target=self._targets(case), more=weight / WIDTH**0.5)
        x = self.laid_out(case)
        own = case.suite == "host_time" or case.op in PASSES  # some losses write over the logits
        if own or case.inputs not in ("normal", "sweep"):
            x = changed(case, x.clone())
        if case.op == "mapped_softmax":
            return Tensors(x, more=self._of_rows(case))
        if case.op in PASSES:
            return Tensors(x, target=self._targets(case))
        tensors = Tensors(x)
        if case.direction != "forward":
            tensors.dy = self.laid_out(case, 1)
        if case.direction == "backward":
            function = torch.log_softmax if case.op == "log_softmax" else torch.softmax
            tensors.y = function(x, case.dim)
        return tensors

    def _targets(self, case: Case) -> Tensor:
        n_rows, n_classes = case.shape
        where = {"generator": self.generator, "device": self.device}
        target = torch.randint(0, n_classes, (n_rows,), **where)
        if case.op != "token_logprobs":
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
