"""Who is measured, and how each one is called.

A provider turns a case and its tensors into a call without arguments. It raises `Refused` with a
reason for what it does not offer; the runner records the reason in a row.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch

from triton_softmax.bench.cases import CHOOSER, COPY, RUNGS, Case

PACKAGES = {"liger": "liger-kernel", "flag_gems": "flag-gems", "quack": "quack-kernels"}
"""The distribution that a provider of another project comes from."""


class Refused(Exception):
    """The provider does not offer this case; the reason is the message."""


class Missing(Exception):
    """The provider cannot be used on this machine at all; the reason is the message."""


@dataclass
class Tensors:
    """The tensors of one case; `y` and `dy` only where a backward pass is measured."""

    x: torch.Tensor
    y: torch.Tensor | None = None
    dy: torch.Tensor | None = None


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


def version_of(package: str) -> str | None:
    """The installed version of a distribution, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _import(name: str):
    try:
        return importlib.import_module(name)
    except Exception as error:  # a library may fail at import in its own way; the row says how
        raise Missing(f"import {name}: {type(error).__name__}: {error}") from error


def _copy(case: Case, t: Tensors) -> Callable[[], object]:
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
    ops = _import("liger_kernel.ops.softmax")
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
    _import("flag_gems")
    ops = _import(f"flag_gems.ops.{case.op}")
    if case.direction == "backward":
        backward = getattr(ops, f"{case.op}_backward")
        return lambda: backward(t.dy, t.y, case.dim, t.x.dtype)
    forward = getattr(ops, case.op)
    return lambda: forward(t.x, case.dim)


def _quack(case: Case, t: Tensors) -> Callable[[], object]:
    _last_dim_only(case, "QuACK")
    quack = _import("quack.softmax")
    if case.direction == "backward":
        dy, y = _rows(t.dy), _rows(t.y)
        return lambda: quack.softmax_bwd(dy, y)
    x = _rows(t.x)
    return lambda: quack.softmax(x)


def _call(case: Case, t: Tensors, implementation: str | None) -> tuple:
    """The arguments of `dispatch.plan_of` for the case."""
    if case.direction == "backward":
        inputs, dtype = (t.y, t.dy), t.x.dtype
    else:
        inputs, dtype = (t.x,), None
    operation = f"{case.op}_backward" if case.direction == "backward" else case.op
    return operation, inputs, case.dim, dtype, implementation


def _chooser(case: Case, t: Tensors, implementation: str | None = None) -> Callable[[], object]:
    if case.direction == "backward":
        run, arguments = _import("triton_softmax.dispatch").run, _call(case, t, implementation)
        return lambda: run(*arguments)
    function = getattr(_import("triton_softmax"), case.op)
    if implementation is None:
        return lambda: function(t.x, case.dim)
    return lambda: function(t.x, case.dim, implementation=implementation)


def kernels(case: Case, t: Tensors, implementation: str | None = None) -> list[str]:
    """The kernels that a call of this package launches, by name, each once."""
    plan_of = _import("triton_softmax.dispatch").plan_of
    return list(dict.fromkeys(plan_of(*_call(case, t, implementation)).kernels))


def _rung(name: str):
    def prepare(case: Case, t: Tensors) -> Callable[[], object]:
        if case.op == "logsumexp":
            raise Refused("a rung of the ladder has no logsumexp")
        return _chooser(case, t, name)

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


def hasten_autotuning() -> None:
    """Let the autotuned rungs try each configuration a few times only: a run visits hundreds of row
    lengths."""
    from triton.runtime.autotuner import Autotuner

    from triton_softmax.bench.measure import percentile

    def few_calls(call: Callable[[], object], quantiles=(0.5, 0.2, 0.8)) -> list[float]:
        call()
        events = [
            (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
            for _ in range(5)
        ]
        for start, end in events:
            start.record()
            call()
            end.record()
        torch.cuda.synchronize()
        times = [start.elapsed_time(end) for start, end in events]
        return [percentile(times, share) for share in quantiles]

    for name in RUNGS:
        try:
            module = importlib.import_module(f"triton_softmax.kernels.{name}")
        except ImportError:
            continue
        for value in vars(module).values():
            while value is not None:
                if isinstance(value, Autotuner):
                    value._do_bench = few_calls
                value = getattr(value, "fn", None)


def forget_compiled() -> bool:
    """Empty Triton's in-memory caches of this package's kernels, so that compilations can be
    counted from nothing."""
    from triton.runtime.jit import JITFunction

    importlib.import_module("triton_softmax.dispatch").clear_plans()
    found = False
    for name, module in list(sys.modules.items()):
        if not name.startswith("triton_softmax.kernels"):
            continue
        for value in vars(module).values():
            while value is not None:
                if isinstance(value, JITFunction):
                    value.device_caches.clear()
                    found = True
                value = getattr(value, "fn", None) if not isinstance(value, JITFunction) else None
    return found
