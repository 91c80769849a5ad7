"""What the suite `loss_head` measures: losses, log-probabilities and softmax with maps, ours and
everybody's, each as a call without arguments that returns its results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from softmax_bench.case import Case
from softmax_bench.providers import Refused, imported
from softmax_bench.roster import CHOOSER, COPY

WIDTH = 4096
"""Of the layer in front of `linear_cross_entropy`."""

Results = tuple[Tensor, ...]


class Operands(NamedTuple):
    """The tensors of a case."""

    x: Tensor
    """Logits or scores; for a layer its input."""
    target: Any = None
    """A tensor, or None. Classes of rows, of which every eighth is ignored; for log-probabilities
    none is."""
    more: Any = None
    """A tensor, or None. The layer's weight, a mask, or temperatures of rows."""


def operands(case: Case, device: torch.device, generator: torch.Generator) -> Operands:
    """The tensors of a case, from a generator on its device."""

    def normal(*shape: int) -> Tensor:
        dtype = getattr(torch, case.dtype)
        return torch.randn(shape, generator=generator, device=device, dtype=dtype)

    if case.op == "mapped_softmax":
        if case.inputs == "temperature":
            scale = torch.rand((*case.shape[:-1], 1), generator=generator, device=device) + 0.5
            return Operands(normal(*case.shape), more=scale)
        mask = torch.ones(1, 1, 1, case.n_cols, dtype=torch.bool, device=device)
        mask[..., -case.n_cols // 8 :] = False
        return Operands(normal(*case.shape), more=mask)
    n_rows, n_classes = case.shape
    target = torch.randint(0, n_classes, (n_rows,), generator=generator, device=device)
    if case.op != "token_logprobs":
        target[::8] = -100
    if case.op == "linear_cross_entropy":
        return Operands(normal(n_rows, WIDTH), target, normal(n_classes, WIDTH) / WIDTH**0.5)
    return Operands(normal(n_rows, n_classes), target)


def _gradients(results: Results, leaves: list[Tensor]) -> Results:
    return *results, *torch.autograd.grad(results, leaves, [torch.ones_like(r) for r in results])


def _call(case: Case, t: Operands, function: Callable[..., Results]) -> Callable[[], Results]:
    """The function of the leaves, with their gradients if the case has a backward pass."""
    leaves = [t.x, t.more] if case.op == "linear_cross_entropy" else [t.x]
    leaves = [each.detach().requires_grad_(case.direction != "forward") for each in leaves]

    def call() -> Results:
        results = function(*leaves)
        return results if case.direction == "forward" else _gradients(results, leaves)

    return call


# --- what each provider calls ---


def by_torch(case: Case, t: Operands, exact: bool = False) -> Callable[..., Results]:
    """PyTorch's operators; `exact`: of float64 whatever comes in."""

    def wide(x: Tensor) -> Tensor:
        return x.double() if exact else x

    def cross_entropy(x: Tensor) -> Results:
        return (functional.cross_entropy(wide(x), t.target),)

    def token_logprobs(x: Tensor) -> Results:
        y = torch.log_softmax(wide(x), -1)
        return y.gather(-1, t.target[:, None])[:, 0], -(y.exp() * y).sum(-1)

    def linear_cross_entropy(x: Tensor, w: Tensor) -> Results:
        return (functional.cross_entropy(functional.linear(wide(x), wide(w)), t.target),)

    def mapped_softmax(x: Tensor) -> Results:
        if case.inputs == "temperature":
            return (torch.softmax(wide(x) * t.more, -1),)
        z = 0.125 * wide(x)
        kept = t.more
        if case.inputs == "causal":
            kept = torch.ones(z.shape[-2:], dtype=torch.bool, device=z.device).tril()
        return (torch.softmax(torch.where(kept, z, -torch.inf), -1),)

    return locals()[case.op]


def by_ours(case: Case, t: Operands) -> Callable[..., Results]:
    """This library."""
    import triton_softmax as ours

    if case.op == "cross_entropy":
        if case.inputs == "in_place":
            # A view is no leaf, and takes no copy.
            return lambda x: (ours.cross_entropy(x.view_as(x), t.target, inplace_backward=True),)
        return lambda x: (ours.cross_entropy(x, t.target),)
    if case.op == "token_logprobs":
        return lambda x: ours.token_logprobs(x, t.target, return_entropy=True)
    if case.op == "linear_cross_entropy":
        return lambda x, w: (ours.linear_cross_entropy(x, w, t.target),)
    if case.inputs == "temperature":
        return lambda x: (ours.softmax(x, scale=t.more),)
    if case.inputs == "causal":
        return lambda x: (ours.softmax(x, scale=0.125, causal=True),)
    return lambda x: (ours.softmax(x, scale=0.125, where=t.more),)


def by_liger(case: Case, t: Operands) -> Callable[..., Results]:
    """Liger's losses."""
    liger = imported("liger_kernel.transformers")
    if case.op == "cross_entropy":
        loss = liger.LigerCrossEntropyLoss()
        # It writes its gradient over the logits, which are wanted again.
        return lambda x: (loss(x.clone() if x.requires_grad else x, t.target),)
    if case.op == "linear_cross_entropy":
        fused = liger.LigerFusedLinearCrossEntropyLoss()
        return lambda x, w: (fused(w, x, t.target),)
    raise Refused(f"Liger has no {case.op}")


def by_quack(case: Case, t: Operands) -> Callable[..., Results]:
    """QuACK's cross-entropy."""
    cross_entropy = imported("quack.cross_entropy").cross_entropy
    if case.op != "cross_entropy":
        raise Refused(f"QuACK's {case.op} is not called here")
    return lambda x: (cross_entropy(x, t.target, ignore_index=-100, reduction="mean"),)


def copy(case: Case, t: Operands) -> Callable[[], Results]:
    """As many bytes as the case has to move; for a layer its bare matrix products."""
    if case.op == "linear_cross_entropy":
        assert t.more is not None
        logits = torch.empty(len(t.x), len(t.more), dtype=t.x.dtype, device=t.x.device)

        def products() -> Results:
            torch.mm(t.x, t.more.T, out=logits)
            return torch.mm(logits, t.more), torch.mm(logits.T, t.x)

        return products
    x = t.x.reshape(-1)
    source = x if case.op == "mapped_softmax" or case.direction != "forward" else x[: len(x) // 2]
    out = torch.empty_like(source)
    more = x[: len(x) // 2] if case.op == "token_logprobs" and case.direction != "forward" else None

    def moves() -> Results:
        out.copy_(source)
        if more is not None:  # the forward pass reads once by itself
            out[: len(more)].copy_(more)
        return (out,)

    return moves


def plain(case: Case, t: Operands) -> Callable[[], Results]:
    """Our softmax without maps, of the same scores."""
    from triton_softmax import softmax

    if case.op != "mapped_softmax":
        raise Refused("plain softmax is measured beside softmax with maps alone")
    return lambda: (softmax(t.x),)


def prepare(case: Case, name: str, t: Operands) -> Callable[[], Results]:
    """The call of a provider.

    Raises:
        Refused, Missing: it does not offer it, or is not installed.
    """
    if name == COPY:
        return copy(case, t)
    if name == "packed_rows":
        return plain(case, t)
    if name == "torch.compile":
        torch._dynamo.reset()
        return _call(case, t, torch.compile(by_torch(case, t), dynamic=False, fullgraph=True))
    named: dict[str, Any] = {
        CHOOSER: by_ours, "torch": by_torch, "liger": by_liger, "quack": by_quack,
    }  # fmt: skip
    return _call(case, t, named[name](case, t))


def reference(case: Case, t: Operands) -> Results:
    """The results in float64."""
    return _call(case, t, by_torch(case, t, exact=True))()
