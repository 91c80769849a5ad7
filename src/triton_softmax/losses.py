"""Cross-entropy: the loss that follows most softmaxes, and its gradient in the same pass.

The kernel reads a row of logits once and writes its gradient, beside the loss as one number. The
backward pass then multiplies by what arrives, which is 1 where the loss itself is differentiated:
the loss's factor, 1/n of a mean, is known before and is in the gradient already.

Classes as targets go by the kernels of softmax. With a scale or a soft cap, with probabilities as
targets, and with class weights under label smoothing, it is the kernel of rows with score
modifiers; the last two read a second element for each class. Derivatives other than the first
(`torch.func`, forward mode) and a gradient at the probabilities come from PyTorch's operators
(`composite`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.overrides import handle_torch_function, has_torch_function_variadic

from . import arguments, composite, distributed, operators
from .arguments import (
    LossOptions,
    Modifiers,
    autocasts,
    check_classes,
    check_dense,
    check_dtype,
    check_loss,
    comparable,
    reduction_of_flags,
)
from .composite import RowScalars, distribution_of, picked
from .launch import Memo
from .operations.cross_entropy import (
    CROSS_ENTROPY,
    CROSS_ENTROPY_GRADIENT,
    CROSS_ENTROPY_SMOOTHED,
    CROSS_ENTROPY_SMOOTHED_GRADIENT,
)
from .operators import direct, keeps_graph, nobody_watches, readable, transformed
from .plan import LossPlan, row_scalars, scale_rows

_checked = Memo()
"""What `_decided` has found for plain calls that have been checked, by all that this looks at."""


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
    a transform of `torch.func`, in forward mode and in an exported program every derivative exists.

    Args:
        input: Logits, (C,), (N, C) or (N, C, d1, …), float16, bfloat16, float32 or float64.
        target: Classes (int64, int32 or uint8), of the shape of the input without C; or
            probabilities, of the shape of the input.
        weight: A factor for each class, (C,), of the dtype of the logits; under autocast, and with
            probabilities as targets, of any floating-point dtype.
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
            needs a gradient and is no leaf. Whoever has saved them for a backward pass gets
            PyTorch's error; whoever reads them afterwards reads the gradient.
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
        RuntimeError: Tensors lie on two devices; or other arguments that PyTorch refuses, with its
            words.

    Examples:
        >>> import torch
        >>> from triton_softmax import cross_entropy
        >>> logits = torch.tensor([[1.0, 2.0, 3.0], [1.0, 3.0, 5.0]])
        >>> cross_entropy(logits, torch.tensor([2, 0]))
        tensor(2.2753)
        >>> cross_entropy(logits, torch.tensor([2, -100]), return_lse=True)
        (tensor(0.4076), tensor([3.4076, 0.0000]))
    """
    tensors = isinstance(input, Tensor) and isinstance(target, Tensor)
    if weight is None:
        plain = tensors and nobody_watches(input, target)
    else:
        plain = tensors and nobody_watches(input, target, weight)
    if not plain and not torch.compiler.is_compiling():
        if has_torch_function_variadic(input, target, weight):
            return handle_torch_function(
                cross_entropy, (input, target, weight), input, target, weight, size_average,
                ignore_index, reduce, reduction, label_smoothing, z_loss=z_loss, softcap=softcap,
                scale=scale, inplace_backward=inplace_backward, return_lse=return_lse,
                loss_dtype=loss_dtype, batch_invariant=batch_invariant,
            )  # fmt: skip
    if not plain:
        check_dense(input, "the input")
        check_dense(target, "target")
    if target.dtype == torch.uint8:
        target = comparable(target)
    if target.shape == (1,) and input.dim() == 1 and not target.is_floating_point():
        target = target.squeeze(0)
    if size_average is not None or reduce is not None:
        reduction = reduction_of_flags(size_average, reduce)
    if loss_dtype is None:
        loss_dtype = input.dtype
        if not plain and autocasts(input):
            loss_dtype = composite.accumulator(loss_dtype)
    else:
        check_dtype(loss_dtype, "the loss")
    invariant = bool(batch_invariant or arguments.contexts)
    elsewhere = vocab_start is not None or not plain
    if group is not None or (elsewhere and distributed.on_mesh(input, vocab_start)):
        options = LossOptions(
            0 if input.dim() == 1 else 1, ignore_index, reduction, label_smoothing, z_loss,
            loss_dtype, scale, softcap, invariant,
        )  # fmt: skip
        loss, lse = distributed.cross_entropy(
            input, target, weight, group, vocab_start, vocab_size, options, inplace_backward
        )
        return (loss, lse.detach()) if return_lse else loss
    key = known = None
    wanted = input.requires_grad and torch.is_grad_enabled()
    in_place = inplace_backward and wanted and not input.is_leaf
    if plain:
        key = (
            input.dtype, input.shape, input.stride(), input.device, input.data_ptr() & 15,
            target.dtype, target.shape, target.stride(), target.device, target.data_ptr() & 15,
            wanted, in_place, ignore_index, reduction, label_smoothing, z_loss, type(z_loss),
            softcap, type(softcap), scale, type(scale), loss_dtype, invariant,
        )  # fmt: skip
        if weight is not None:
            key += (weight.dtype, weight.shape, weight.stride(), weight.device)
            key += (weight.data_ptr() & 15, weight.requires_grad and torch.is_grad_enabled())
        try:
            known = _checked.get(key)
        except TypeError:  # what cannot be hashed is refused below
            key = None
    if known is None:
        check_loss(
            input, target, weight, reduction, label_smoothing, z_loss, softcap, scale, ignore_index
        )
        options = LossOptions(
            0 if input.dim() == 1 else 1, ignore_index, reduction, label_smoothing, z_loss,
            loss_dtype, float(scale), None if softcap is None else float(softcap), invariant,
        )  # fmt: skip
        known = _decided(input, target, weight, options, wanted, in_place, plain)
        if key is not None:
            known = _checked.of(key, lambda: known)
    options, by_kernels, with_distribution, planned = known
    if planned is not None:
        in_one = reduction != "none"
        if wanted:
            loss, lse = _differentiable_plan(input, planned, target, weight, options.dim, in_one)
        else:
            loss, lse = planned(input, target, weight)
            loss = loss.sum() if in_one else loss
        loss = loss if loss.dtype == loss_dtype else loss.to(loss_dtype)
        return (loss, lse.detach()) if return_lse else loss
    probabilities = target.is_floating_point()
    if target.device.type == "cpu" and not probabilities:
        if plain or readable(target):
            message = "Target {} is out of bounds."
            check_classes(target, input.shape[options.dim], message, ignore_index)
    others = probabilities and (target.requires_grad or weight is not None and weight.requires_grad)
    if by_kernels and not (others and torch.is_grad_enabled()) and (plain or not transformed()):
        distribution = None
        if with_distribution:
            distribution = distribution_of(input, target, weight, options)
        losses, lse = _by_kernels(
            input, target, weight, options, distribution, inplace_backward, plain
        )
    else:
        x = composite.modified_elements(input, Modifiers(options.scale, options.softcap))
        losses, lse = composite.cross_entropy(x, target, weight, options)
    loss = losses if reduction == "none" else losses.sum()
    if reduction == "mean" and not losses.numel():
        loss = loss / 0.0  # NaN, as a mean of nothing is
    if loss.dtype != loss_dtype:
        loss = loss.to(loss_dtype)
    return (loss, lse.detach()) if return_lse else loss


def _decided(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    options: LossOptions,
    gradient: bool,
    in_place: bool,
    plain: bool,
) -> tuple[LossOptions, bool, bool, LossPlan | None]:
    """Decide whether kernels take a call, whether they take a distribution, and whether one plan
    does all of it."""
    with_distribution = target.is_floating_point()
    with_distribution |= weight is not None and options.label_smoothing > 0.0
    by_kernels = x.numel() > 0
    if not (x.is_cuda or arguments.INTERPRETED):
        modified = options.scale != 1.0 or options.softcap is not None
        by_kernels = by_kernels and not (with_distribution or modified)
    planned = None
    if plain and x.is_cuda and by_kernels and not with_distribution:
        as_they_lie = target.is_contiguous() and (weight is None or weight.is_contiguous())
        if as_they_lie and options.scale == 1.0 and options.softcap is None:
            planned = _plan(x, target, weight, options, gradient, in_place and x.is_contiguous())
    return options, by_kernels, with_distribution, planned


def _plan(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    options: LossOptions,
    gradient: bool,
    in_place: bool,
) -> LossPlan | None:
    """Return the plan of a call whose kernels are those of softmax; None if `targets_kernel` does
    not take it."""
    if options.label_smoothing == 0.0:
        op = CROSS_ENTROPY_GRADIENT if gradient else CROSS_ENTROPY
    else:
        op = CROSS_ENTROPY_SMOOTHED_GRADIENT if gradient else CROSS_ENTROPY_SMOOTHED
    dtype = None if gradient else composite.accumulator(x.dtype)
    plan = LossPlan(op, x, target, weight, options, dtype, in_place)
    return plan if plan.targets else None


# --8<-- [start:gradient-function]
class _CrossEntropy(Function):
    """The losses of rows, whose gradient is written by the pass that computes them."""

    @staticmethod
    def forward(ctx, x, plain, in_place, dim, *rest):
        scalars, further = rest[:6], rest[6:]
        if in_place:
            dx = x.detach()
            call = operators.cross_entropy_rows_in_place
            loss, lse = (call.kernel if plain else call.overload)(dx, *scalars, dim, *further)
            torch.autograd.graph.increment_version(dx)
        else:
            call = operators.cross_entropy_rows
            call = call.kernel if plain else call.overload
            loss, lse, dx = call(x, *scalars, dim, True, *further)
        ctx.save_for_backward(dx, lse)
        ctx.dim = dim
        ctx.set_materialize_grads(False)
        return loss, lse

    @staticmethod
    def backward(ctx, g, _):
        others = (None,) * (len(ctx.needs_input_grad) - 1)
        if g is None:
            return None, *others
        dx, lse = ctx.saved_tensors
        if not torch.compiler.is_compiling() and torch.is_grad_enabled():
            return Final.apply(dx, g, ctx.dim, lse), *others
        return scaled(dx, g, ctx.dim), *others


class _Planned(_CrossEntropy):
    """The loss of a `LossPlan`, of each row or of all in one."""

    @staticmethod
    def forward(ctx, x, plan, target, weight, dim, in_one):
        dx, losses, lse = plan(x, target, weight)
        if dx is x:
            dx = x.detach()
            torch.autograd.graph.increment_version(dx)
        loss = losses.sum() if in_one else losses
        ctx.save_for_backward(dx, lse)
        ctx.dim = dim
        ctx.set_materialize_grads(False)
        return loss, lse


def scaled(dx: Tensor, g: Tensor, dim: int) -> Tensor:
    """Return a gradient times what arrived for its rows, or for all of them: in place if it is not
    needed again, and then without a pass over it where that is 1."""
    if torch.compiler.is_compiling() or not nobody_watches(g) or keeps_graph():
        return (dx * (g.unsqueeze(dim) if g.dim() else g)).to(dx.dtype)
    scale_rows(dx, g, dim)
    return dx


class Final(Function):
    """A gradient times what arrived for its rows, which cannot be differentiated again. It takes an
    output of the loss's Function only so that a second derivative comes this way."""

    @staticmethod
    def forward(ctx, dx, g, dim, lse):
        return (dx * (g.unsqueeze(dim) if g.dim() else g)).to(dx.dtype)

    @staticmethod
    def backward(ctx, _):
        raise RuntimeError(
            "cross_entropy has written its gradient in the forward pass, as numbers, and cannot "
            "differentiate it again; use torch.nn.functional.nll_loss on log_softmax for a second "
            "derivative"
        )


# --8<-- [end:gradient-function]

_differentiable = direct(_CrossEntropy)
_differentiable_plan = direct(_Planned)


def _by_kernels(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    options: LossOptions,
    distribution: Tensor | None,
    in_place: bool,
    plain: bool,
) -> tuple[Tensor, Tensor]:
    """Return the losses of rows and their log-sum-exps."""
    dim, ignore_index, reduction, smoothing, z_loss, _, scale, softcap, invariant = options
    found = None
    if distribution is None and plain and (x.is_cuda or arguments.INTERPRETED):
        mean = reduction == "mean"
        found = row_scalars(x, target, weight, dim, ignore_index, mean, smoothing, z_loss)
    if found is None:
        scalars = _scalars(x.detach(), target, weight, options)
    else:
        marked, of_each = found
        scalars = (marked, *of_each.unbind())
        if smoothing == 0.0:
            scalars = scalars[:4] + (None, None)
    further = (scale, softcap, distribution, invariant)
    if x.requires_grad and torch.is_grad_enabled():
        in_place = in_place and not x.is_leaf and x.is_contiguous()
        in_place = in_place and not torch.compiler.is_compiling()
        apply = _differentiable if plain else _CrossEntropy.apply
        return apply(x, plain, in_place, dim, *scalars, *further)
    call = operators.cross_entropy_rows
    if plain:
        return call.kernel(x, *scalars, dim, None, *further)
    return call.overload(x.detach(), *scalars, dim, False, *further)[:2]


def _scalars(
    x: Tensor, target: Tensor, weight: Tensor | None, options: LossOptions
) -> tuple[Tensor | None, ...]:
    """Return the numbers of rows that the kernel takes, by PyTorch's operators."""
    if target.is_floating_point():
        found = composite.scalars_of_probabilities(x, options)
    else:
        dtype = composite.accumulator(x.dtype)
        found = composite.scalars_of_classes(target, weight, x.shape[options.dim], dtype, options)
    return with_logits(x, found, options.dim)


def with_logits(x: Tensor, scalars: RowScalars, dim: int) -> tuple[Tensor | None, ...]:
    """Return the numbers of rows that the kernel takes: the scalars, and the targets' logits."""
    return scalars.target, picked(x, scalars.target, dim), *scalars[1:]
