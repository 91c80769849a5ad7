"""How everyone who is measured is called: one table for all suites.

A provider turns a case and its tensors into a function: of the leaves (the elements, and the weight
of a layer), or for the backward pass alone of the gradient and the result. It raises `Refused` with
a reason for what it does not offer; the runner records the reason in a row. `prepare` makes a call
without arguments of it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional

from softmax_bench.case import PASSES, Case
from softmax_bench.inputs import Tensors
from softmax_bench.roster import CHOOSER, COPY, PACKAGES, RUNGS

Function = Callable[..., Any]
"""Returns a tensor or a tuple of tensors."""


class Refused(Exception):
    """The provider does not offer this case; the reason is the message."""

    status = "refused"


class Missing(Refused):
    """The provider cannot be used on this machine at all."""

    status = "skipped"


def versions() -> dict[str, str | None]:
    """The installed version of each provider that is another project's; None if it is missing."""
    found = {}
    for name, package in PACKAGES.items():
        try:
            found[name] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def imported(name: str) -> Any:
    """A module; its absence is a reason for a row."""
    try:
        return importlib.import_module(name)
    except Exception as error:  # a library may fail at import in its own way; the row says how
        raise Missing(f"import {name}: {type(error).__name__}: {error}") from error


# --- the functions of each provider


def by_torch(case: Case, t: Tensors) -> Function:
    """PyTorch's operators."""
    dim = case.dim
    if case.direction == "backward":
        log = case.op == "log_softmax"
        backward = torch._log_softmax_backward_data if log else torch._softmax_backward_data
        return lambda dy, y: backward(dy, y, dim, y.dtype)

    def token_logprobs(x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.log_softmax(x, -1)
        return y.gather(-1, t.target[:, None])[:, 0], -(y.exp() * y).sum(-1)

    def modified_softmax(x: Tensor) -> Tensor:
        if case.inputs == "temperature":
            return torch.softmax(x * t.more, -1)
        z, kept = 0.125 * x, t.more
        if case.inputs == "causal":
            kept = torch.ones(z.shape[-2:], dtype=torch.bool, device=z.device).tril()
        return torch.softmax(torch.where(kept, z, -torch.inf), -1)

    def linear_cross_entropy(x: Tensor, w: Tensor) -> Tensor:
        return functional.cross_entropy(functional.linear(x, w), t.target)

    losses: dict[str, Function] = {
        "cross_entropy": lambda x: functional.cross_entropy(x, t.target),
        "token_logprobs": token_logprobs,
        "linear_cross_entropy": linear_cross_entropy,
        "modified_softmax": modified_softmax,
    }
    if case.op in losses:
        return losses[case.op]
    function = getattr(torch, case.op)
    return lambda x: function(x, dim)


def by_torch_compile(case: Case, t: Tensors) -> Function:
    """PyTorch's operators, compiled for these very shapes."""
    torch._dynamo.reset()
    return torch.compile(by_torch(case, t), dynamic=False, fullgraph=True)


class Computed(torch.autograd.Function):
    """A tensor as if a layer had computed it, in the same memory: no leaf, and no view of one."""

    @staticmethod
    def forward(ctx, x):
        return x.new_empty(0).set_(x)

    @staticmethod
    def backward(ctx, g):
        return g


def by_ours(case: Case, t: Tensors, kernel: str | None = None) -> Function:
    """This library, or a kernel of it by name."""
    ours, dim, target, more = imported("triton_softmax"), case.dim, t.target, t.more
    if kernel is not None or case.direction == "backward":
        plan_of, (op, _, *rest) = imported("triton_softmax.plan").plan_of, arguments(case, t)
        if case.direction == "backward":
            return lambda dy, y: plan_of(op, (y, dy), *rest, kernel=kernel)(y, dy)
        return lambda x: plan_of(op, (x,), *rest, kernel=kernel)(x)
    if case.inputs == "in_place":
        return lambda x: ours.cross_entropy(Computed.apply(x), target, inplace_backward=True)
    maps = {
        "temperature": {"scale": more},
        "causal": {"scale": 0.125, "causal": True},
        "mask": {"scale": 0.125, "where": more},
    }
    losses: dict[str, Function] = {
        "cross_entropy": lambda x: ours.cross_entropy(x, target),
        "token_logprobs": lambda x: ours.token_logprobs(x, target, return_entropy=True),
        "linear_cross_entropy": lambda x, w: ours.linear_cross_entropy(x, w, target),
        "modified_softmax": lambda x: ours.softmax(x, **maps[case.inputs]),
    }
    if case.op in losses:
        return losses[case.op]
    function = getattr(ours, case.op)
    return lambda x: function(x, dim)


def by_rung(name: str) -> Callable[[Case, Tensors], Function]:
    """A rung of the ladder: a kernel of the library by its name, or one of the tutorial."""

    def function(case: Case, t: Tensors) -> Function:
        ours = imported("triton_softmax")
        if case.op == "modified_softmax" and name == PLAIN:
            return lambda x: ours.softmax(x)
        if case.op not in ("softmax", "log_softmax"):
            raise Refused(f"a rung of the ladder has no {case.op}")
        ladder, dim, log = imported("softmax_tutorial.ladder"), case.dim, case.op == "log_softmax"
        if name not in ladder.RUNGS:
            return by_ours(case, t, name)
        if case.direction == "backward":
            return lambda dy, y: ladder.backward(y, dy, dim, rung=name, log=log)
        return lambda x: ladder.softmax(x, dim, rung=name, log=log)

    return function


PLAIN = "packed_rows"
"""Beside softmax with maps this rung is our softmax without, of the same scores."""


def _last_dim_only(case: Case, name: str) -> None:
    if case.op != "softmax":
        raise Refused(f"{name} has no {case.op}")
    if case.dim not in (-1, len(case.shape) - 1):
        raise Refused(f"{name} takes the last dimension only")


def by_liger(case: Case, t: Tensors) -> Function:
    """Liger's softmax and losses."""
    if case.op == "cross_entropy":
        loss = imported("liger_kernel.transformers").LigerCrossEntropyLoss()
        return lambda x: loss(x, t.target)
    if case.op == "linear_cross_entropy":
        fused = imported("liger_kernel.transformers").LigerFusedLinearCrossEntropyLoss()
        return lambda x, w: fused(w, x, t.target)
    _last_dim_only(case, "Liger")
    ops = imported("liger_kernel.ops.softmax")
    if case.direction == "backward":
        _, block, warps, several = ops._softmax_forward(t.x)
        return lambda dy, y: ops._softmax_backward(dy, y, block, warps, several)
    return lambda x: ops.LigerSoftmaxFunction.apply(x)


def by_flag_gems(case: Case, t: Tensors) -> Function:
    """FlagGems' operators."""
    if case.op not in ("softmax", "log_softmax"):
        raise Refused(f"FlagGems has no {case.op} of its own")
    if case.direction in ("forward_grad", "forward_backward"):
        raise Refused(
            "FlagGems replaces PyTorch's operators instead of offering a differentiable function"
        )
    imported("flag_gems")
    ops, dim = imported(f"flag_gems.ops.{case.op}"), case.dim
    if case.direction == "backward":
        backward = getattr(ops, f"{case.op}_backward")
        return lambda dy, y: backward(dy, y, dim, y.dtype)
    forward = getattr(ops, case.op)
    return lambda x: forward(x, dim)


def _rows(tensor: Tensor) -> Tensor:
    return tensor if tensor.ndim == 2 else tensor.reshape(-1, tensor.shape[-1])


def by_quack(case: Case, t: Tensors) -> Function:
    """QuACK's softmax and cross-entropy."""
    if case.op == "cross_entropy":
        loss, in_place = imported("quack.cross_entropy").cross_entropy, case.inputs == "in_place"
        more = {"ignore_index": -100, "reduction": "mean", "inplace_backward": in_place}
        return lambda x: loss(x, t.target, **more)
    _last_dim_only(case, "QuACK")
    quack = imported("quack.softmax")
    if case.direction == "backward":
        return lambda dy, y: quack.softmax_bwd(_rows(dy), _rows(y))
    return lambda x: quack.softmax(_rows(x))


def by_trl(case: Case, t: Tensors) -> Function:
    """TRL's log-probabilities and entropies."""
    if case.op != "token_logprobs":
        raise Refused(f"TRL has no {case.op}")
    both = imported("trl.kernels.logprob_entropy").selective_log_softmax_and_entropy
    return lambda x: both(x, t.target)


def by_transformer_engine(case: Case, t: Tensors) -> Function:
    """TransformerEngine's cross-entropy in Triton, of a batch of one."""
    if case.op != "cross_entropy":
        raise Refused(f"TransformerEngine has no {case.op}")
    loss = imported("transformer_engine.pytorch.cross_entropy").parallel_cross_entropy
    more = {"reduce_loss": True, "overwrite_input": case.inputs == "in_place"}
    return lambda x: loss(x[None], t.target[None], **more)


def by_helion(case: Case, t: Tensors) -> Function:
    """The pretuned kernels of Helion's repository, which its package leaves out."""
    if case.direction != "forward":
        raise Refused("Helion's pretuned kernels have no backward pass")
    if case.op == "cross_entropy":
        if case.inputs != "none_ignored":
            raise Refused("Helion's pretuned cross-entropy ignores no class")
        loss = imported("pretuned_kernels.cross_entropy.cross_entropy").cross_entropy
        return lambda x: loss(x, t.target)
    _last_dim_only(case, "Helion")
    return imported("pretuned_kernels.softmax.softmax").softmax


def by_flashinfer(case: Case, t: Tensors) -> Function:
    """FlashInfer's softmax with temperatures."""
    if case.dtype != "float32" or case.direction != "forward":
        raise Refused("FlashInfer's softmax is of float32 and forward alone")
    if case.inputs == "temperature":
        softmax, each = imported("flashinfer.sampling").softmax, 1 / t.more[:, 0]
        return lambda x: softmax(x, each)
    _last_dim_only(case, "FlashInfer")
    return imported("flashinfer.sampling").softmax


FUNCTIONS: dict[str, Callable[[Case, Tensors], Function]] = {
    CHOOSER: by_ours,
    "torch": by_torch,
    "torch.compile": by_torch_compile,
    "liger": by_liger,
    "flag_gems": by_flag_gems,
    "quack": by_quack,
    "trl": by_trl,
    "transformer_engine": by_transformer_engine,
    "helion": by_helion,
    "flashinfer": by_flashinfer,
    **{name: by_rung(name) for name in RUNGS},
}

COMPILED = (COPY, "torch", "naive")
"""Providers whose first call compiles nothing."""


# --- calls


def copy(case: Case, t: Tensors) -> Callable[[], object]:
    """As many bytes as the case has to move; of a layer its bare matrix products."""
    x = t.x
    if case.op == "linear_cross_entropy":
        logits = torch.empty(len(x), len(t.more), dtype=x.dtype, device=x.device)

        def products() -> tuple[Tensor, Tensor]:
            torch.mm(x, t.more.T, out=logits)
            return torch.mm(logits, t.more), torch.mm(logits.T, x)

        return products
    if case.direction == "backward":
        # PyTorch copies rows with gaps slowly: as many bytes without gaps are the limit.
        dy, out = t.dy.contiguous() if case.layout == "padded" else t.dy, torch.empty_like(t.y)
        return lambda: torch.add(t.y, dy, out=out)
    x = x.contiguous() if case.layout == "padded" else x
    passes = PASSES.get(case.op, (2, 2))[case.direction != "forward"]
    half = x.reshape(-1)[: x.numel() // 2]
    if passes == 1 or case.op == "logsumexp":  # half is read and as much is written
        out = torch.empty_like(half)
        return lambda: out.copy_(half)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)

    def moves() -> None:
        out.copy_(x)
        if passes == 3:  # the forward pass reads once by itself
            out.view(-1)[: len(half)].copy_(half)

    return moves


def step_of(function: Function) -> Function:
    """What the suite `compiled` compiles: something before and after a softmax, to be fused."""
    return lambda x: function(x * 0.5) * 2


def compiled_step(function: Function, mode: str, on_gpu: bool) -> Function:
    """The step, compiled in a mode of `torch.compile`."""
    step = torch.compile(step_of(function), mode=mode, fullgraph=True, dynamic=False)
    if mode == "default" or not on_gpu:
        return step

    def with_graphs(x: Tensor) -> Tensor:
        torch.compiler.cudagraph_mark_step_begin()
        return step(x)

    return with_graphs


def call(case: Case, t: Tensors, function: Function) -> Callable[[], Any]:
    """A function on the tensors of a case; with gradients if the case asks for them."""
    if case.direction == "backward":
        return partial(function, t.dy, t.y)
    leaves = [t.x, t.more] if case.op == "linear_cross_entropy" else [t.x]
    leaves = [each.detach().requires_grad_(case.direction != "forward") for each in leaves]
    if case.direction != "forward_backward":
        return partial(function, *leaves)

    def forward_backward() -> tuple[Tensor, ...]:
        results = as_tuple(function(*leaves))
        given = [torch.ones_like(each) for each in results] if t.dy is None else t.dy
        return *results, *torch.autograd.grad(results, leaves, given)

    return forward_backward


def as_tuple(results: Any) -> tuple[Tensor, ...]:
    """What a function returns, as a tuple."""
    return results if isinstance(results, tuple) else (results,)


def prepare(case: Case, name: str, t: Tensors) -> Callable[[], Any]:
    """The call of a provider.

    Raises:
        Refused, Missing: it does not offer it, or is not installed.
    """
    if name == COPY:
        return copy(case, t)
    if name == "liger" and case.op == "cross_entropy":
        # It writes its gradient over the logits, always: these are its own, and no copy is timed.
        t = replace(t, x=t.x.clone())
    function = FUNCTIONS[name](case, t)
    if case.suite == "compiled":
        if name == CHOOSER:  # the first of a case: others are compiled beside it
            torch._dynamo.reset()
        function = compiled_step(function, case.inputs, t.x.is_cuda)
    return call(case, t, function)


def answers(case: Case, name: str) -> bool:
    """Whether a provider's result is the case's answer, and the same at each call."""
    plain = case.op == "modified_softmax" and name == PLAIN
    return not (name == COPY or plain or case.inputs == "in_place")


def reference(case: Case, t: Tensors) -> tuple[Tensor, ...]:
    """The answer in float64, from the very numbers that the providers are given."""
    function = by_torch(case, t)
    if case.suite == "compiled":
        function = step_of(function)
    return as_tuple(call(case, t, lambda *given: function(*[x.double() for x in given]))())


# --- plans of this library


def arguments(case: Case, t: Tensors) -> tuple:
    """The arguments of `plan.plan_of` for the case, but for the kernel's name."""
    backward = case.direction == "backward"
    inputs, dtype = ((t.y, t.dy), t.x.dtype) if backward else ((t.x,), None)
    name = f"{case.op}_backward" if backward else case.op
    return imported("triton_softmax.operations").OPERATIONS[name], inputs, case.dim, dtype


def choosing(choose: Callable[..., Any]) -> AbstractContextManager:
    """For a while, `choose` says what the library chooses, from the arguments of `chosen`."""
    return patch.object(imported("triton_softmax.plan"), "chosen", choose)


def name_of(launch: Any) -> str:
    """The kernel of a launch; where one has two geometries, by that of the launch."""
    name = launch.kernel.__name__
    if name != "tile_kernel":
        return name
    return "aligned_rows_kernel" if launch.constants["HOW"].edges else "packed_rows_kernel"


def kernels(case: Case, t: Tensors, name: str) -> list[str]:
    """The kernels that a call of ours launches, by `name_of`, each once."""
    if name in imported("softmax_tutorial.ladder").RUNGS:
        direction = "backward" if case.direction == "backward" else "forward"
        # The naive rung launches PyTorch's kernels, and none of ours.
        return [] if name == "naive" else [f"softmax_{direction}_{name}_kernel"]
    plan_of, kernel = imported("triton_softmax.plan").plan_of, None if name == CHOOSER else name
    return list(dict.fromkeys(map(name_of, plan_of(*arguments(case, t), kernel=kernel).launches)))
