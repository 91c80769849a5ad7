"""What the library chooses between, found by asking its planner with tensors that have no data."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple
from unittest.mock import patch

import torch

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
    """For a while, `choose(facts, traits, device)` says what the library chooses."""
    return patch.object(chooser, "chosen", choose)


def problem_of(
    operation: str,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    dim: int,
    device: Device,
    pitch: int | None = None,
) -> Problem:
    """The problem that a call puts on a device.

    Args:
        operation: a name of `OPERATIONS`.
        dtype: of the inputs and of the result.
        shape, dim: of the call; negative dimensions count from the end.
        device: what the call would run on.
        pitch: elements from row to row of the last input; None if it is contiguous.
    """
    op, dim = OPERATIONS[operation], dim % len(shape)
    plain = last = torch.empty(shape, dtype=dtype, device="meta")
    rows = plain.select(dim, 0).contiguous()
    if pitch is not None:
        last = torch.empty_strided(shape, (pitch, 1), dtype=dtype, device="meta")
    inputs = (*[plain] * (op.inputs - 1), last, *[rows.float()] * op.numbers)
    seen: list[Problem] = []
    choose = chooser.chosen

    def asked(facts: Rows | Columns, traits: Traits, _: Device) -> Choice:
        seen.append(Problem(facts, traits, device))
        return choose(*seen[-1])

    with choosing(asked):
        plan._plan_launches(op, inputs, (rows if op.reduces else plain,), dim)
    return seen[0]
