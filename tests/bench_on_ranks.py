"""What each rank does in the tests of `softmax_bench.ranks`, as `tests/ranks.py` asks for it."""

from __future__ import annotations

from typing import Any

import torch

import interpreted  # noqa: F401  # before Triton
from on_ranks import bounds, drawn, mesh_of, near  # noqa: F401
from softmax_bench.ranks import MegatronFormula


def formula(group: Any) -> None:
    """The formula in PyTorch's operators is the cross-entropy of whole rows."""
    x, target = drawn((5, 14), torch.bfloat16), torch.tensor([0, 13, 6, 7, 2])
    whole = x.double().requires_grad_()
    expected = torch.nn.functional.cross_entropy(whole, target)
    expected.backward()
    start, end = bounds(group, 14)
    mine = x[:, start:end].clone().requires_grad_()
    loss = MegatronFormula.apply(mine, target, start, group).mean()
    loss.backward()
    near(loss, expected.detach(), torch.float32)
    near(mine.grad, whole.grad[:, start:end], torch.bfloat16)
