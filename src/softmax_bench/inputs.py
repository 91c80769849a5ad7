"""The tensors of a case."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from softmax_bench.cases import Case


@dataclass
class Tensors:
    """The tensors of one case; `y` and `dy` only where a backward pass is measured."""

    x: torch.Tensor
    y: Any = None
    dy: Any = None


def make_input(case: Case, x: torch.Tensor) -> torch.Tensor:
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
