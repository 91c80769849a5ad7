"""Who is measured, and how each one is called.

A provider turns a case and its tensors into a call without arguments. It raises `Refused` with a
reason for what it does not offer; the runner records the reason in a row.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable

import torch

from softmax_bench.cases import Case
from softmax_bench.inputs import Tensors
from softmax_bench.roster import CHOOSER, COPY, PROVIDERS, RUNGS


class Refused(Exception):
    """The provider does not offer this case; the reason is the message."""


class Missing(Exception):
    """The provider cannot be used on this machine at all; the reason is the message."""


def versions() -> dict[str, str | None]:
    """The installed version of each provider that is another project's; None if it is missing."""
    found = {}
    for provider in PROVIDERS.values():
        if provider.package is not None:
            try:
                found[provider.name] = importlib.metadata.version(provider.package)
            except importlib.metadata.PackageNotFoundError:
                found[provider.name] = None
    return found


def imported(name: str):
    """A module; its absence is a reason for a row."""
    try:
        return importlib.import_module(name)
    except Exception as error:  # a library may fail at import in its own way; the row says how
        raise Missing(f"import {name}: {type(error).__name__}: {error}") from error


def _copy(case: Case, t: Tensors) -> Callable[[], object]:
    if case.layout == "padded":
        # PyTorch copies rows with gaps slowly: as many bytes without gaps are the limit.
        t = Tensors(t.x.contiguous(), t.y, None if t.dy is None else t.dy.contiguous())
    if case.direction == "backward":
        out = torch.empty_like(t.y)
        return lambda: torch.add(t.y, t.dy, out=out)
    if (
        case.op == "logsumexp"
    ):  # reads the tensor and writes next to nothing: as many bytes as copying half of it
        half = t.x.reshape(-1)[: t.x.numel() // 2]
        out = torch.empty_like(half)
        return lambda: out.copy_(half)
    out = torch.empty(t.x.shape, dtype=t.x.dtype, device=t.x.device)
    return lambda: out.copy_(t.x)


def _torch(case: Case, t: Tensors) -> Callable[[], object]:
    if case.direction == "backward":
        if case.op == "log_softmax":
            return lambda: torch._log_softmax_backward_data(t.dy, t.y, case.dim, t.x.dtype)
        return lambda: torch._softmax_backward_data(t.dy, t.y, case.dim, t.x.dtype)
    function = getattr(torch, case.op)
    return lambda: function(t.x, case.dim)


def _torch_compile(case: Case, t: Tensors) -> Callable[[], object]:
    torch._dynamo.reset()
    dim, dtype = case.dim, t.x.dtype
    if case.direction == "backward":
        backward = (
            torch._log_softmax_backward_data
            if case.op == "log_softmax"
            else torch._softmax_backward_data
        )
        compiled = torch.compile(
            lambda dy, y: backward(dy, y, dim, dtype), dynamic=False, fullgraph=True
        )
        return lambda: compiled(t.dy, t.y)
    function = getattr(torch, case.op)
    compiled = torch.compile(lambda x: function(x, dim), dynamic=False, fullgraph=True)
    return lambda: compiled(t.x)


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.ndim == 2 else tensor.reshape(-1, tensor.shape[-1])


def _last_dim_only(case: Case, name: str) -> None:
    if case.op != "softmax":
        raise Refused(f"{name} has no {case.op}")
    if case.dim not in (-1, len(case.shape) - 1):
        raise Refused(f"{name} takes the last dimension only")


def _liger(case: Case, t: Tensors) -> Callable[[], object]:
    _last_dim_only(case, "Liger")
    ops = imported("liger_kernel.ops.softmax")
    if case.direction == "backward":
        _, block, warps, several = ops._softmax_forward(t.x)
        return lambda: ops._softmax_backward(t.dy, t.y, block, warps, several)
    return lambda: ops.LigerSoftmaxFunction.apply(t.x)


def _flag_gems(case: Case, t: Tensors) -> Callable[[], object]:
    if case.op == "logsumexp":
        raise Refused("FlagGems has no logsumexp of its own")
    if case.direction in ("forward_grad", "forward_backward"):
        raise Refused(
            "FlagGems replaces PyTorch's operators instead of offering a differentiable function"
        )
    imported("flag_gems")
    ops = imported(f"flag_gems.ops.{case.op}")
    if case.direction == "backward":
        backward = getattr(ops, f"{case.op}_backward")
        return lambda: backward(t.dy, t.y, case.dim, t.x.dtype)
    forward = getattr(ops, case.op)
    return lambda: forward(t.x, case.dim)


def _quack(case: Case, t: Tensors) -> Callable[[], object]:
    _last_dim_only(case, "QuACK")
    quack = imported("quack.softmax")
    if case.direction == "backward":
        dy, y = _rows(t.dy), _rows(t.y)
        return lambda: quack.softmax_bwd(dy, y)
    x = _rows(t.x)
    return lambda: quack.softmax(x)


def arguments(case: Case, t: Tensors, implementation: str | None) -> tuple:
    """The arguments of `plan.plan_of` for the case."""
    if case.direction == "backward":
        inputs, dtype = (t.y, t.dy), t.x.dtype
    else:
        inputs, dtype = (t.x,), None
    name = f"{case.op}_backward" if case.direction == "backward" else case.op
    op = imported("triton_softmax.operations").OPERATIONS[name]
    return op, inputs, case.dim, dtype, implementation


def _chooser(case: Case, t: Tensors, implementation: str | None = None) -> Callable[[], object]:
    if case.direction == "backward":
        run, given = imported("triton_softmax.plan").run, arguments(case, t, implementation)
        return lambda: run(*given)
    function = getattr(imported("triton_softmax"), case.op)
    if implementation is None:
        return lambda: function(t.x, case.dim)
    return lambda: function(t.x, case.dim, implementation=implementation)


def kernels(case: Case, t: Tensors, implementation: str | None = None) -> list[str]:
    """The kernels that a call of this package launches, by name, each once."""
    if implementation in imported("softmax_tutorial.ladder").RUNGS:
        direction = "backward" if case.direction == "backward" else "forward"
        naive = implementation == "naive"  # PyTorch's kernels, and none of ours
        return [] if naive else [f"softmax_{direction}_{implementation}_kernel"]
    plan_of = imported("triton_softmax.plan").plan_of
    return list(dict.fromkeys(plan_of(*arguments(case, t, implementation)).kernels))


def _rung(name: str):
    def prepare(case: Case, t: Tensors) -> Callable[[], object]:
        if case.op == "logsumexp":
            raise Refused("a rung of the ladder has no logsumexp")
        ladder = imported("softmax_tutorial.ladder")
        if name not in ladder.RUNGS:
            return _chooser(case, t, name)
        log = case.op == "log_softmax"
        if case.direction == "backward":
            return lambda: ladder.backward(t.y, t.dy, case.dim, rung=name, log=log)
        return lambda: ladder.softmax(t.x, case.dim, rung=name, log=log)

    return prepare


PREPARE: dict[str, Callable[[Case, Tensors], Callable[[], object]]] = {
    COPY: _copy,
    CHOOSER: _chooser,
    "torch": _torch,
    "torch.compile": _torch_compile,
    "liger": _liger,
    "flag_gems": _flag_gems,
    "quack": _quack,
    **{name: _rung(name) for name in RUNGS},
}

NEEDS_COMPILING = frozenset(PREPARE) - {COPY, "torch", "naive"}
"""Providers whose first call compiles something."""


def differentiable(
    case: Case, call: Callable[[], torch.Tensor], t: Tensors
) -> Callable[[], object]:
    """For the host time of training: the call on an input that requires a gradient, with or without
    its backward."""
    t.x.requires_grad_(True)
    if case.direction == "forward_grad":
        return call

    def forward_backward() -> torch.Tensor:
        return torch.autograd.grad(call(), t.x, t.dy)[0]

    return forward_backward


def plain_step(case: Case, of: str = "torch") -> Callable[[torch.Tensor], torch.Tensor]:
    """What the suite `compiled` compiles: something before and after a softmax, to be fused."""
    function = getattr(imported("triton_softmax" if of == CHOOSER else "torch"), case.op)
    return lambda x: function(x * 0.5, case.dim) * 2


def compiled_step(case: Case, name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """The same, compiled in the mode that the case names."""
    torch._dynamo.reset()
    return torch.compile(plain_step(case, name), mode=case.inputs, fullgraph=True, dynamic=False)
