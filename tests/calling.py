"""What each rank does in the tests of agreement: whole sequences of calls, in which ranks may have
parts of other sizes, or call something else. It returns what became of each call."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
import torch
import torch.distributed as dist

import interpreted  # noqa: F401
import triton_softmax
from on_ranks import computed, drawn, mesh_of, near  # noqa: F401

ROWS = 2
TOLERANCE = torch.float32


def of_whole(
    name: str, x: torch.Tensor, classes: torch.Tensor, smoothing: float = 0.0
) -> torch.Tensor:
    """The result for whole rows, by PyTorch."""
    if name in ("softmax", "log_softmax"):
        return getattr(torch, name)(x, -1)
    if name == "logsumexp":
        return torch.logsumexp(x, -1)
    if name == "cross_entropy":
        return torch.nn.functional.cross_entropy(x, classes, label_smoothing=smoothing)
    return torch.log_softmax(x, -1).gather(-1, classes.unsqueeze(-1)).squeeze(-1)


def outcome(group: Any, sizes: list[int], call: dict[str, Any]) -> tuple[str, str]:
    """("right", ""), or the kind of an error and its words, of one call with these sizes of parts.

    A call names a function, and possibly the number of rows, a dtype, the first class, that of the
    weights of classes (all 1), other keywords, and whether a gradient is computed.
    """
    call = {"rows": ROWS, "dtype": torch.float32, "gradient": True, "class": 0, **call}
    name, rank, total = call["name"], group.rank(), sum(sizes)
    start, end = sum(sizes[:rank]), sum(sizes[: rank + 1])
    x = drawn((call["rows"], max(total, 1))).to(call["dtype"])[:, :total]
    classes = (torch.arange(call["rows"]) * 5 + call["class"]) % max(total, 1)
    given = () if name in ("softmax", "log_softmax", "logsumexp") else (classes,)
    mine = x[:, start:end].clone().requires_grad_(call["gradient"])
    ours = ("name", "rows", "dtype", "gradient", "class")
    more = {key: call[key] for key in call if key not in ours}
    if "weight" in more:
        more["weight"] = torch.ones(total, dtype=more["weight"])
    try:
        found = getattr(triton_softmax, name)(mine, *given, group=group, **more)
        result = found[0] if isinstance(found, tuple) else found
        if call["gradient"]:
            (gradient,) = torch.autograd.grad(result.square().sum(), mine)
    except Exception as error:
        return type(error).__name__, str(error)
    whole = x.double().requires_grad_()
    scaled, smoothing = whole * call.get("scale", 1.0), call.get("label_smoothing", 0.0)
    expected = of_whole(name, scaled, classes, smoothing)
    (wanted,) = torch.autograd.grad(expected.square().sum(), whole)
    expected = expected.detach()
    expected = expected[:, start:end] if expected.dim() == 2 else expected
    near(result.detach(), expected, TOLERANCE)
    if call["gradient"]:
        near(gradient, wanted[:, start:end], TOLERANCE)
    return "right", ""


def sequence(group: Any, calls: list[tuple[list[int], list[dict[str, Any]]]], by_kernels=False):
    """The outcomes of calls, of each its sizes and what every rank calls."""
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=10), group)
    with computed(by_kernels):
        return [outcome(group, sizes, of_ranks[group.rank()]) for sizes, of_ranks in calls]


def differentiates_something_else(group: Any) -> None:
    """A rank differentiates a call of another kind, or makes a call where the other differentiates:
    an error on both, and then both go on."""
    functions = triton_softmax.softmax, triton_softmax.log_softmax
    for invariant in (False, True):
        more = {"group": group, "batch_invariant": invariant}
        x = drawn((2, 3), torch.float32).requires_grad_()
        odd, results = group.rank() == 1, [function(x, **more) for function in functions]
        with pytest.raises(ValueError, match="rank 1: the gradient of an earlier call"):
            results[odd].sum().backward()
        with pytest.raises(ValueError, match="rank 0: softmax .* rank 1: the gradient"):
            results[0].sum().backward() if odd else functions[0](x, **more)
        near(sum_over(group, functions[0](x, **more)), torch.tensor(2.0), TOLERANCE)


def sum_over(group: Any, y: torch.Tensor) -> torch.Tensor:
    total = y.detach().sum()
    dist.all_reduce(total, group=group)
    return total
