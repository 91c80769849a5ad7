"""What the library chooses between, found by asking its planner with tensors that have no data."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple
from unittest.mock import patch

import torch

from softmax_bench.case import Case
from softmax_bench.random_shapes import pitch
from triton_softmax import plan
from triton_softmax.config import Choice, Device, Traits
from triton_softmax.config import choose as chooser
from triton_softmax.config.space import Columns, Rows
from triton_softmax.operations import OPERATIONS


class Problem(NamedTuple):
    """All that a choice depends on."""

    facts: Rows | Columns
    traits: Traits
    device: Device

    def library(self) -> Choice:
        """What the library chooses."""
        return chooser.chosen(*self)

    def possible(self) -> list[Choice]:
        """All between which the model chooses, the fastest first by what it says."""
        return [choice for _, choice in sorted(chooser.timed(*self), key=lambda each: each[0])]


def choosing(choose: Callable[..., Choice]) -> AbstractContextManager:
    """For a while, `choose` says what the library chooses, from the arguments of `chosen`."""
    return patch.object(plan, "chosen", choose)


def device_of(multiprocessors: int) -> Device:
    """An NVIDIA GPU; without multiprocessors the interpreter."""
    return Device(multiprocessors, nvidia=True) if multiprocessors else Device()


def current_device(kind: str) -> Device:
    """The GPU of this machine, or for "cpu" the interpreter."""
    on_gpu = kind == "cuda"
    return device_of(torch.cuda.get_device_properties(0).multi_processor_count if on_gpu else 0)


def problem_of(case: Case, device: Device) -> Problem:
    """The problem that a case puts on a device."""
    op = OPERATIONS[f"{case.op}_backward" if case.direction == "backward" else case.op]
    dim, dtype = case.dim % len(case.shape), getattr(torch, case.dtype)
    plain = last = torch.empty(case.shape, dtype=dtype, device="meta")
    rows = plain.select(dim, 0).contiguous()
    if case.layout == "padded":
        strides = (pitch(case.n_cols), 1)
        last = torch.empty_strided(case.shape, strides, dtype=dtype, device="meta")
    inputs = (*[plain] * (op.inputs - 1), last, *[rows.float()] * op.numbers)
    seen: list[Problem] = []

    def asked(facts: Rows | Columns, traits: Traits, *_: object) -> Choice:
        seen.append(Problem(facts, traits, device))
        return seen[-1].library()

    with choosing(asked):
        plan._plan_launches(op, inputs, (rows if op.reduces else plain,), dim)
    return seen[0]
