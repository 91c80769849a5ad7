"""Cross-entropy: the loss that stands behind most softmaxes, and its gradient in the same pass.

The kernel reads a row of logits once and writes its gradient, while the loss comes out beside it as
one number. So the backward pass has nothing left to do but to multiply by what arrives, and that is
1 where the loss is what is differentiated: its factor, 1/n of a mean, is known before and is in the
gradient already.

Classes as targets go by the kernels of softmax. With a scale or a soft cap, with probabilities as
targets, and with class weights under label smoothing, it is the kernel of rows with maps
(`mapped`), of which the last two take a second input of an element for each class. Who wants other
derivatives than the first (`torch.func`, forward mode) or a gradient at the probabilities gets the
same number from `by_operators`: PyTorch's operators around our log-softmax.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as torch_functional
from torch.overrides import has_torch_function_variadic

from . import checks, distributed, invariance, registration
from .checks import check_dtype
from .eager import direct, keeps_graph, nobody_watches, short, transformed
from .functional import log_softmax, logsumexp
from .maps import mapped_elements
from .scaling import scale_rows
from .shares import (
    Settings,
    along,
    distribution_of,
    rows_by_kernel,
    rows_with,
    shares_of,
    shares_of_probabilities,
)
from .ways import Way, check_number, check_softcap, wide

REDUCTIONS = ("none", "mean", "sum")
"""What becomes of the losses of all rows."""


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    *,
    z_loss: float = 0.0,
    softcap: float | None = None,
    scale: float = 1.0,
    inplace_backward: bool = False,
    return_lse: bool = False,
    loss_dtype: torch.dtype | None = None,
    batch_invariant: bool = False,
    group: Any = None,
    vocab_start: int | None = None,
    vocab_size: int | None = None,
) -> Any:
    """Return the cross-entropy of logits and targets, as `torch.nn.functional.cross_entropy`.

    Where a gradient will be wanted it is written in the same pass as the loss is computed: one read
    and one write of the logits. Without one, they are read once. With a scale or soft cap, with
    probabilities as targets, and with class weights together with label smoothing, rows longer than
    a tile (8,192 columns, or half of that) are read once more. A gradient at the probabilities
    themselves, a CPU without Triton's interpreter, a transform of `torch.func` and forward mode
    take PyTorch's operators around our log-softmax.

    The first derivative is exact, and a second one raises: the gradient is a number by then. Inside
    a transform of `torch.func`, and in forward mode, every derivative exists.

    Args:
        input: Logits, (C,), (N, C) or (N, C, d1, …), float16, bfloat16, float32 or float64.
        target: Classes (int64, int32 or uint8), of the shape of the input without C; or
            probabilities, of the shape of the input.
        weight: A factor for each class, (C,), of any floating-point dtype.
        size_average: As in PyTorch, and deprecated as there.
        ignore_index: Rows with this target have neither loss nor gradient, whatever they hold.
        reduce: As in PyTorch, and deprecated as there.
        reduction: "none", "mean" or "sum".
        label_smoothing: The share of the target that is spread over all classes, between 0 and 1.
        z_loss: Adds `z_loss` · lse² for each row that is not ignored, lse being its log-sum-exp;
            averaged over those rows, and not weighted by class.
        softcap: If given, logits x become softcap · tanh(x / softcap), after the scale.
        scale: Logits are multiplied by it before anything else.
        inplace_backward: Write the gradient over the logits, if they are a contiguous tensor that
            needs a gradient and is no leaf. Whoever uses them later in autograd gets PyTorch's
            error.
        return_lse: Return the log-sum-exp of each row as well.
        loss_dtype: Of the loss; by default that of the input, or float32 under autocast.
        batch_invariant: As for `softmax`: of the losses and gradients of rows. A mean depends on
            the batch.
        group: If given, the logits are those of some classes, and the ranks of this group have the
            others, in their order. Targets and weights are those of all classes, the same on all
            ranks; probabilities are those of the classes here. Every rank has the same loss and
            calls backward for it. A `DTensor` needs no group; its rows may be divided as well, and
            a mean is over all of them.
        vocab_start: With a group, the first class here; by default parts follow each other.
        vocab_size: With `vocab_start`, how many classes there are on all ranks.

    Returns:
        The loss: a scalar, or with reduction "none" one for each target. With `return_lse`, a pair:
        the loss, and log-sum-exps in the shape of the targets, float32 (float64 for float64
        logits), 0 in ignored rows, not differentiable.

    Raises:
        TypeError: An argument is not a tensor, or the logits have another dtype.
        ValueError: `reduction` is unknown, `softcap` is not positive, `scale` or `z_loss` is not
            finite, or `z_loss` meets probabilities; shapes disagree, as in PyTorch.
        IndexError: A target is out of range (on a GPU, an assertion on the device).
        RuntimeError: Other arguments that PyTorch refuses, with its words.

    Examples:
        >>> import torch
        >>> from triton_softmax import cross_entropy
        >>> logits = torch.tensor([[1.0, 2.0, 3.0], [1.0, 3.0, 5.0]])
        >>> cross_entropy(logits, torch.tensor([2, 0]))
        tensor(2.2753)
        >>> cross_entropy(logits, torch.tensor([2, -100]), return_lse=True)
        (tensor(0.4076), tensor([3.4076, 0.0000]))
    """
    if not (isinstance(input, Tensor) and isinstance(target, Tensor)):
        raise TypeError("cross_entropy takes tensors as input and target")
    if has_torch_function_variadic(input, target, weight) and not torch.compiler.is_compiling():
        arguments = (input, target, weight, size_average, ignore_index, reduce, reduction)
        return torch.overrides.handle_torch_function(
            cross_entropy,
            (input, target, weight),
            *arguments,
            label_smoothing,
            z_loss=z_loss,
            softcap=softcap,
            scale=scale,
            inplace_backward=inplace_backward,
            return_lse=return_lse,
            loss_dtype=loss_dtype,
            batch_invariant=batch_invariant,
        )
    if size_average is not None or reduce is not None:
        reduction = _of_flags(size_average is not False, reduce is not False)
    if loss_dtype is None:
        autocast = torch.is_autocast_enabled(input.device.type) and input.device.type != "cpu"
        loss_dtype = torch.promote_types(input.dtype, torch.float32) if autocast else input.dtype
    implementation = invariance.chosen(None, batch_invariant)
    if distributed.divided(input, group, vocab_start):
        asked = (ignore_index, reduction, label_smoothing, z_loss, inplace_backward, implementation)
        where = (group, vocab_start, vocab_size, (*asked, loss_dtype))
        loss, lse = distributed.cross_entropy(
            input, target, weight, *where, softcap=softcap, scale=scale
        )
        return (loss, lse.detach()) if return_lse else loss
    _check(input, target, weight, reduction, label_smoothing, z_loss, softcap, scale, ignore_index)
    settings = Settings(
        0 if input.dim() == 1 else 1,
        ignore_index,
        reduction,
        label_smoothing,
        z_loss,
        loss_dtype,
        float(scale),
        None if softcap is None else float(softcap),
        implementation,
    )
    probabilities = target.shape == input.shape and target.is_floating_point()
    of_target = probabilities and target.requires_grad and torch.is_grad_enabled()
    in_operators = input.numel() == 0 or transformed() or of_target
    if not (input.is_cuda or checks.INTERPRETED):
        # PyTorch's operators alone have these where Triton compiles for no device.
        weighted = weight is not None and label_smoothing > 0.0
        in_operators |= probabilities or weighted or scale != 1.0 or softcap is not None
    if in_operators:
        by = _of_probabilities if probabilities else by_operators
        x = mapped_elements(input, Way(scale, softcap))
        loss, lse = by(x, target, weight, settings)
    else:
        loss, lse = by_kernel(input, target, weight, settings, inplace_backward)
    loss = loss.to(loss_dtype)
    return (loss, lse.detach()) if return_lse else loss


def _of_flags(size_average: bool, reduce: bool) -> str:
    """The reduction that two arguments of old meant."""
    reduction = ("mean" if size_average else "sum") if reduce else "none"
    warnings.warn(
        f"size_average and reduce are deprecated, please use reduction={reduction!r} instead",
        stacklevel=3,
    )
    return reduction


def _check(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: str,
    label_smoothing: float,
    z_loss: float,
    softcap: float | None,
    scale: float,
    ignore_index: int,
) -> None:
    check_dtype(x.dtype, "the input")
    if reduction not in REDUCTIONS:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    check_number(scale, "scale")
    check_number(z_loss, "z_loss")
    check_softcap(softcap)
    probabilities = target.shape == x.shape and x.dim() > 0
    if probabilities and z_loss and target.is_floating_point():
        raise ValueError("z_loss goes with classes as targets, not with probabilities")
    dim = 0 if x.dim() == 1 else 1
    fits = probabilities and target.is_floating_point() and ignore_index < 0
    if not probabilities and x.dim() > 0:
        fits = target.shape == x.shape[:dim] + x.shape[dim + 1 :]
        fits = fits and target.dtype in (torch.int64, torch.int32, torch.uint8)
    fits = fits and 0.0 <= label_smoothing <= 1.0
    fits = fits and (weight is None or weight.shape == (x.shape[dim],))
    if not fits:
        # PyTorch has words for all of this.
        like = target.long() if target.dtype in (torch.int32, torch.uint8) else target
        torch_functional.cross_entropy(
            x.detach(),
            like,
            None if weight is None else weight.to(x.dtype),
            ignore_index=ignore_index,
            reduction=reduction,
            label_smoothing=label_smoothing,
        )
        raise ValueError("these arguments do not go together")
    _check_targets(x, target, dim, ignore_index)


def _check_targets(x: Tensor, target: Tensor, dim: int, ignore_index: int) -> None:
    """On a CPU, where looking costs nothing, PyTorch's error for a class that is none."""
    if target.is_floating_point() or target.device.type != "cpu" or target.is_meta:
        return
    if torch.compiler.is_compiling() or transformed() or not target.numel():
        return
    wrong = (target != ignore_index) & ((target < 0) | (target >= x.shape[dim]))
    if wrong.any():
        raise IndexError(f"Target {target[wrong][0].item()} is out of bounds.")


_rows, _rows_in_place = (
    short(op, registration.KERNELS[op])
    for op in (registration.cross_entropy_rows, registration.cross_entropy_rows_)
)


# --8<-- [start:gradient-function]
class _CrossEntropy(Function):
    """The losses of rows, whose gradient is written by the pass that computes them."""

    @staticmethod
    def forward(ctx, x, dim, in_place, *arguments):
        rows, further = arguments[:6], arguments[6:]
        if in_place:
            dx = x.detach()
            loss, lse = _rows_in_place(dx, *rows, dim, *further)
            torch.autograd.graph.increment_version(dx)
        else:
            loss, lse, dx = _rows(x, *rows, dim, True, *further)
        ctx.save_for_backward(dx)
        ctx.dim = dim
        ctx.mark_non_differentiable(lse)
        ctx.set_materialize_grads(False)
        return loss, lse

    @staticmethod
    def backward(ctx, g, _):
        others = (None,) * (len(ctx.needs_input_grad) - 1)
        if g is None:
            return None, *others
        (dx,) = ctx.saved_tensors
        if not torch.compiler.is_compiling() and torch.is_grad_enabled():
            return _Final.apply(dx.detach().requires_grad_(), g, ctx.dim), *others
        return scaled(dx, g, ctx.dim), *others


def scaled(dx: Tensor, g: Tensor, dim: int) -> Tensor:
    """A gradient times what arrived for its rows: in place if nobody needs it again, and then
    without a pass over it where that is 1."""
    if torch.compiler.is_compiling() or not nobody_watches(g) or keeps_graph():
        return (dx * g.unsqueeze(dim)).to(dx.dtype)
    scale_rows(dx, g, dim)
    return dx


class _Final(Function):
    """The same where the gradient is to be differentiated again, which raises."""

    @staticmethod
    def forward(ctx, dx, g, dim):
        return (dx * g.unsqueeze(dim)).to(dx.dtype)

    @staticmethod
    def backward(ctx, _):
        raise RuntimeError(
            "cross_entropy has written its gradient in the forward pass, as numbers, and cannot "
            "differentiate it again; use torch.nn.functional.nll_loss on log_softmax for a second "
            "derivative"
        )


# --8<-- [end:gradient-function]

_differentiable = direct(_CrossEntropy)


def by_kernel(
    x: Tensor, target: Tensor, weight: Tensor | None, settings: Settings, in_place: bool
) -> tuple[Tensor, Tensor]:
    """(loss, lse) by our kernels."""
    n_classes, accumulator = x.shape[settings.dim], wide(x.new_empty(0)).dtype
    rows = None
    distribution = distribution_of(x, target, weight, settings)
    probabilities = target.is_floating_point()
    known = distribution is None and (x.is_cuda or checks.INTERPRETED)
    if known and not torch.compiler.is_compiling():
        rows = rows_by_kernel(x.detach(), target, weight, settings)
    if rows is None:
        shares = (
            shares_of_probabilities(x, settings)
            if probabilities
            else shares_of(target, weight, n_classes, accumulator, settings)
        )
        rows = rows_with(x.detach(), shares, settings.dim)
    further = (settings.scale, settings.softcap, distribution, settings.implementation)
    dim = settings.dim
    if torch.is_grad_enabled() and x.requires_grad:
        in_place = in_place and not x.is_leaf and x.is_contiguous()
        in_place = in_place and not torch.compiler.is_compiling()
        apply = _differentiable if nobody_watches(x) else _CrossEntropy.apply
        losses, lse = apply(x, dim, in_place, *rows, *further)
    else:
        losses, lse, _ = _rows(x.detach(), *rows, dim, False, *further)
    return reduced(losses, settings.reduction), lse


def reduced(losses: Tensor, reduction: str) -> Tensor:
    """The losses, or their sum, which is the mean if they have been divided before."""
    return losses if reduction == "none" else losses.sum()


def by_operators(
    x: Tensor, target: Tensor, weight: Tensor | None, settings: Settings
) -> tuple[Tensor, Tensor]:
    """(loss, lse) by PyTorch's operators around our log-softmax: any derivative of them exists."""
    dim, epsilon = settings.dim, settings.label_smoothing
    kept = target != settings.ignore_index
    classes = torch.where(kept, target, 0)
    x = torch.where(kept.unsqueeze(dim), wide(x), 0.0)
    y = log_softmax(x, dim)
    lse = torch.where(kept, logsumexp(x, dim), 0.0)
    each = kept.to(y.dtype)
    factor = each if weight is None else weight.to(y.dtype)[classes] * each
    losses = -y.gather(dim, classes.unsqueeze(dim)).squeeze(dim) * factor
    if epsilon > 0.0:
        spread = y if weight is None else y * along(weight.to(y.dtype), x, dim)
        smooth = -spread.sum(dim) * (epsilon / x.shape[dim])
        losses = (1.0 - epsilon) * losses + torch.where(kept, smooth, 0.0)
    if settings.reduction == "mean":
        losses = losses / factor.sum()
    if settings.z_loss:
        share = each / each.sum() if settings.reduction == "mean" else each
        losses = losses + settings.z_loss * share * lse * lse
    nothing = 0.0 / each.sum() if settings.reduction == "mean" else 0.0
    losses = torch.where(kept, losses, nothing)
    return reduced(losses, settings.reduction), lse


def _of_probabilities(
    x: Tensor, target: Tensor, weight: Tensor | None, settings: Settings
) -> tuple[Tensor, Tensor]:
    """The same for a distribution as target."""
    dim, epsilon = settings.dim, settings.label_smoothing
    y = log_softmax(wide(x), dim)
    target = target.to(y.dtype)
    if epsilon > 0.0:
        target = target * (1.0 - epsilon) + epsilon / x.shape[dim]
    if weight is not None:
        target = target * along(weight.to(y.dtype), x, dim)
    losses = -(y * target).sum(dim)
    if settings.reduction == "mean":
        losses = losses.sum() / (x.numel() // x.shape[dim]) if x.numel() else losses.sum() / 0.0
    elif settings.reduction == "sum":
        losses = losses.sum()
    return losses, logsumexp(wide(x), dim)
