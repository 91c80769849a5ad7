"""Cross-entropy, with its gradient computed in the forward pass.

The kernel reads each row of logits once and writes its gradient along with its loss. The gradient
already includes the loss's factor, such as 1/n for a mean, so the backward pass only multiplies by
the incoming gradient, which is 1 if the loss itself is differentiated. In float16 1/n comes with
the incoming gradient, after a loss scale.

Class targets use the softmax kernels. A scale, a soft cap, probability targets, and class weights
with label smoothing use the score-modifier kernel; the last two read a second element per class.
PyTorch's operators (`composite`) provide the gradient at the probabilities and every derivative but
the first.
"""

import warnings
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.overrides import has_torch_function_variadic

from . import arguments, composite, distributed, modes, operators
from .arguments import LossOptions, Modifiers
from .composite import RowScalars, picked
from .modes import by_composite, direct, is_plain_eager, keeps_graph, readable
from .operations.cross_entropy import OF_DISTRIBUTION, PLAIN, SMOOTHED
from .plan import key_of
from .plan.launch import plans
from .plan.losses import LossPlan, scale_rows


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

    If the logits require a gradient, the forward pass computes it in one read and one write of the
    logits. PyTorch's operators compute a gradient at probability targets, forward mode, transforms
    of `torch.func`, and calls on a CPU without Triton's interpreter. The first derivative is exact;
    a second raises, except where PyTorch's operators compute, and in exported programs.

    Args:
        input: Logits, (C,), (N, C) or (N, C, d1, …), float16, bfloat16, float32 or float64.
        target: Classes (int64, int32 or uint8), of the shape of the input without C; or
            probabilities, of the shape of the input.
        weight: A factor for each class, (C,), in the dtype of the logits or, unless that is
            float64, of `loss_dtype`; under autocast or with probability targets, any of the four.
        size_average, reduce: Deprecated, as in PyTorch.
        ignore_index: Rows with this target have neither loss nor gradient, whatever they hold.
        reduction: "none", "mean" or "sum".
        label_smoothing: The share of the target that is spread over all classes, between 0 and 1.
        z_loss: Adds `z_loss` · lse² for each row that is not ignored, where lse is its log-sum-exp;
            a mean is over these rows, without class weights.
        softcap: If given, logits x become softcap · tanh(x / softcap), after the scale.
        scale: Multiplies the logits first.
        inplace_backward: Where kernels compute, write the gradient over the logits, a contiguous
            tensor that requires a gradient and is neither a leaf nor a view of one. Reading them
            afterwards reads the gradient; a backward pass that saved them raises PyTorch's error.
        return_lse: Return the log-sum-exp of each row as well.
        loss_dtype: Dtype of the loss; by default the input's, or float32 under autocast.
        batch_invariant: As for `softmax`, for the losses and gradients of rows. A mean depends on
            the batch.
        group: The logits are one shard of the classes, in the order of this group's ranks. Targets
            and weights cover all classes and are the same on all ranks; probabilities cover this
            shard. Every rank returns the same loss and calls backward on it. A `DTensor` needs no
            group; its rows may be sharded as well, and a mean is over all of them.
        vocab_start: With a group, the first class of this shard; by default shards are contiguous.
        vocab_size: With a group, the number of classes on all ranks: with `vocab_start`, or alone
            as a check that each rank passes its own classes, not all.

    Returns:
        The loss: a scalar, or with reduction "none" one per target. With `return_lse` also the
        log-sum-exps, in the shape of the targets, float32 (float64 for float64 logits), 0 in
        ignored rows, not differentiable.

    Raises:
        TypeError: An argument is not a dense tensor, or has another type or dtype than given here.
        ValueError: `reduction` is unknown, `softcap` is not positive, `scale` or `z_loss` is not
            finite, or `z_loss` meets probabilities; the numbers of rows disagree, or the ranks.
        IndexError: A target is out of range (on a GPU, an assertion on the device).
        RuntimeError: Tensors are on two devices, other shapes disagree, or PyTorch rejects a value.

    Examples:
        >>> import torch
        >>> from triton_softmax import cross_entropy
        >>> logits = torch.tensor([[1.0, 2.0, 3.0], [1.0, 3.0, 5.0]])
        >>> cross_entropy(logits, torch.tensor([2, -100]), return_lse=True)
        (tensor(0.4076), tensor([3.4076, 0.0000]))
    """
    tensors = (input, target) if weight is None else (input, target, weight)
    plain = is_plain_eager(*tensors)
    if not plain and not torch.compiler.is_compiling():
        if has_torch_function_variadic(input, target, weight):
            return arguments.pass_on(cross_entropy, (input, target, weight), locals())
    if not plain:
        arguments.check_dense(input, "the input")
        arguments.check_dense(target, "target")
    if target.dtype == torch.uint8:  # a negative `ignore_index` differs from all targets
        target = target.long()
    if input.dim() == 1 and target.shape == (1,) and not target.is_floating_point():
        target = target.squeeze(0)
    if size_average is not None or reduce is not None:
        reduction = "none" if reduce is False else "sum" if size_average is False else "mean"
        words = (
            f"size_average and reduce are deprecated, please use reduction={reduction!r} instead"
        )
        warnings.warn(words, stacklevel=2)
    if loss_dtype is None:
        loss_dtype = input.dtype
        if not plain and arguments.autocasts(input):
            loss_dtype = composite.accumulator(loss_dtype)
    else:
        arguments.check_dtype(loss_dtype, "the loss")
    numbers = label_smoothing, z_loss, softcap, scale
    if softcap is not None or not (type(label_smoothing) is type(z_loss) is type(scale) is float):
        numbers = arguments.check_loss_numbers(*numbers)
    label_smoothing, z_loss, softcap, scale = numbers
    if type(ignore_index) is not int:
        ignore_index = arguments.check_int(ignore_index, "ignore_index")
    invariant = batch_invariant or bool(arguments.contexts)
    elsewhere = group is None and not (plain and vocab_start is vocab_size is None)
    meshed = elsewhere and distributed.on_mesh(input, vocab_start, vocab_size)
    divided = group is not None or meshed
    wanted = input.requires_grad and torch.is_grad_enabled()
    if wanted and input.dtype == torch.float16 and reduction == "mean" and not meshed:
        kinds = input.dtype, loss_dtype
        if weight is None or (group is None and not z_loss and _weighs(weight, target, kinds)):
            # Divided in the forward pass, a gradient would be 0 before a loss scale multiplies it.
            if weight is not None and weight.dtype != torch.float16:
                weight = weight.float()
            loss, lse = cross_entropy(
                input, target, weight, None, ignore_index, None, "sum", label_smoothing,
                z_loss=z_loss, softcap=softcap, scale=scale, inplace_backward=inplace_backward,
                return_lse=True, loss_dtype=torch.float32, batch_invariant=invariant, group=group,
                vocab_start=vocab_start, vocab_size=vocab_size,
            )  # fmt: skip
            total = _counted(target, weight, ignore_index)  # with nothing counted, no gradient
            loss = loss / total.masked_fill(total == 0, 1) + loss.new_zeros(()) / total
            loss = loss.to(loss_dtype)
            return (loss, lse) if return_lse else loss
    in_place = inplace_backward and modes.may_be_overwritten(input, input)
    key = plan = None
    if plain and not divided:
        head = (
            cross_entropy, wanted, in_place, ignore_index, reduction, loss_dtype, invariant,
            label_smoothing, z_loss, softcap, scale,
        )  # fmt: skip
        if weight is not None:  # refused if it requires a gradient
            head += (weight.requires_grad and torch.is_grad_enabled(),)
        key = key_of(head, tensors)
        try:
            plan = plans.get(key)
        except TypeError:  # the checks below reject an unhashable argument
            key = None
    if plan is None:
        options = LossOptions(
            0 if input.dim() == 1 else 1, ignore_index, reduction, label_smoothing, z_loss,
            loss_dtype, scale, softcap, invariant,
        )  # fmt: skip
        if divided:
            functions = cross_entropy, losses_of_part
            loss, lse = distributed.agreed(
                group, distributed.cross_entropy, input, functions, target, weight, options,
                inplace_backward, vocab_start, vocab_size,
            )  # fmt: skip
            return (loss, lse.detach()) if return_lse else loss
        arguments.check_loss(input, target, weight, options)
        on_host = reads_classes_on_host(target, input.shape[options.dim], plain)
        if key is not None:
            plan = LossPlan(input, target, weight, options, wanted, in_place, on_host)
            plan = plans.keep(key, plan)
    else:
        options, on_host = plan.options, plan.reads_classes
    if on_host:
        arguments.check_classes(target, input.shape[options.dim], ignore_index)
    if plan is not None and plan.targets:
        if wanted:
            loss, lse = _differentiable_plan(input, (plan, target, weight, return_lse))
        else:
            losses, *lses = plan(input, target, weight, return_lse)
            loss, lse = reduced(losses, options), lses[0] if return_lse else losses
    else:
        others = target.is_floating_point() and any(
            t is not None and t.requires_grad for t in (target, weight)
        )
        beyond = (others and torch.is_grad_enabled()) or (not plain and by_composite())
        if arguments.by_kernels(input) and not beyond:
            scalars = composite.scalars(input, target, weight, options)
            loss, lse = differentiable_losses(input, scalars, options, plain, in_place)
        else:
            loss, lse = composite.cross_entropy(input, target, weight, options)
        loss = reduced(loss, options, lse.numel())
    return (loss, lse.detach()) if return_lse else loss


def _weighs(weight: Any, target: Tensor, kinds: tuple[torch.dtype, ...]) -> bool:
    """Return whether `check_loss` accepts the dtype of class weights, except under autocast."""
    fits = isinstance(weight, Tensor)
    return fits and (weight.dtype in kinds or target.is_floating_point())


def _counted(target: Tensor, weight: Tensor | None, ignore_index: int) -> Tensor:
    """Return what a mean divides the sum of losses by."""
    if target.is_floating_point():
        dim = min(1, target.dim() - 1)
        n_rows = (target.shape[:dim] + target.shape[dim + 1 :]).numel()
        return target.new_full((), n_rows if target.shape[dim] else 0, dtype=torch.float32)
    kept = (target != ignore_index).reshape(-1)  # a row, too
    if weight is None or not len(weight):
        return kept.sum()
    return (weight.float()[target.reshape(-1).where(kept, 0).long()] * kept).sum()


def reads_classes_on_host(target: Tensor, n_classes: int, plain: bool) -> bool:
    """Return whether targets are checked by reading them: classes in CPU memory. Without classes in
    the logits every target is wrong, and PyTorch would read beside them."""
    if target.is_floating_point() or not (target.device.type == "cpu" or not n_classes):
        return False
    return plain or readable(target)


def losses_of_part(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    options: LossOptions,
    in_place: bool,
    scalars: RowScalars | None = None,
) -> tuple[Tensor, Tensor]:
    """Return (loss, log-sum-exps) of the rows of a matrix, whole or in part, for a checked call.
    Without scalars, the call is plain and has a class for each row."""
    wanted = x.requires_grad and torch.is_grad_enabled()
    in_place = in_place and modes.may_be_overwritten(x, x)
    if scalars is not None:
        plain = not torch.compiler.is_compiling()
        losses, lse = differentiable_losses(x, scalars, options, plain, in_place)
        return reduced(losses, options), lse
    tensors = (x, target) if weight is None else (x, target, weight)
    key = key_of((losses_of_part, options, wanted, in_place), tensors)
    plan = plans.get(key)
    plan = plan or plans.keep(key, LossPlan(x, target, weight, options, wanted, in_place))
    if wanted:
        return _differentiable_plan(x, (plan, target, weight, True))
    losses, lse = plan(x, target, weight)
    return reduced(losses, options), lse


def reduced(losses: Tensor, options: LossOptions, n_rows: Any = None) -> Tensor:
    """Return the losses of rows, or their sum, in the dtype of the loss. A mean of none is NaN; a
    plan, without `n_rows`, has some."""
    loss = losses if options.reduction == "none" else losses.sum()
    if n_rows is not None and options.reduction == "mean":
        if torch.compiler.is_compiling() or not n_rows:
            loss = loss + loss.new_zeros(()) / n_rows
    return loss if loss.dtype == options.dtype else loss.to(options.dtype)


class _CrossEntropy(Function):
    """The losses of rows, with their gradient computed in the forward pass."""

    @staticmethod
    def forward(ctx, x, plain, in_place, options, *scalars):
        rows = RowScalars(*scalars)
        dx, losses, lse = run_losses(plain, x.detach(), rows, options, True, in_place)
        if in_place:
            torch.autograd.graph.increment_version(dx)
        ctx.save_for_backward(dx, lse)
        ctx.dim = options.dim
        ctx.set_materialize_grads(False)
        return losses, lse

    @staticmethod
    def backward(ctx, g, _):
        others = (None,) * (len(ctx.needs_input_grad) - 1)
        if g is None:
            return None, *others
        dx, lse = ctx.saved_tensors
        g = g if g.dtype == lse.dtype else g.to(lse.dtype)
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            return Final.apply(dx, g, ctx.dim, lse), *others
        return scaled(dx, g, ctx.dim), *others


class _Planned(_CrossEntropy):
    """The loss of a `LossPlan`, and the log-sum-exps if requested, else any row results.
    `arguments` are in one object, because `apply` inspects each argument."""

    @staticmethod
    def forward(ctx, x, arguments):
        plan, target, weight, with_lse = arguments
        options = plan.options
        dx, losses, *lses = plan(x, target, weight, with_lse or options.reduction == "none")
        if dx is x:
            dx = x.detach()
            torch.autograd.graph.increment_version(dx)
        lse = lses[0] if lses else losses
        ctx.save_for_backward(dx, lse)
        ctx.dim = options.dim
        ctx.set_materialize_grads(False)
        return reduced(losses, options), lse


def scaled(dx: Tensor, g: Tensor, dim: int) -> Tensor:
    """Return a gradient times the incoming gradient of each row, or of all. In place if it is not
    needed again; then a factor of 1 costs no pass over it."""
    if not is_plain_eager(dx, g):
        return _product(dx, g, dim)
    dx = dx.clone() if keeps_graph() else dx
    scale_rows(dx, g, dim)
    return dx


def _product(dx: Tensor, g: Tensor, dim: int) -> Tensor:
    g = g.to_dense()  # a sparse factor that is broadcast gives wrong products in PyTorch
    # A factor without dimensions would be rounded to the dtype of dx first, on a GPU.
    return (dx * (g.unsqueeze(dim) if g.dim() else g.view((1,) * dx.dim()))).to(dx.dtype)


class Final(Function):
    """A gradient times the incoming one, which raises if differentiated again. It takes `lse`, an
    output of the loss's Function, only so that a second derivative reaches it."""

    @staticmethod
    def forward(ctx, dx, g, dim, lse):
        return _product(dx, g, dim)

    @staticmethod
    def backward(ctx, _):
        raise RuntimeError(
            "cross_entropy has written its gradient in the forward pass, as numbers, and cannot "
            "differentiate it again; use torch.nn.functional.nll_loss on log_softmax for a second "
            "derivative"
        )


_differentiable = direct(_CrossEntropy)
_differentiable_plan = direct(_Planned)


def differentiable_losses(
    x: Tensor, scalars: RowScalars, options: LossOptions, plain: bool, in_place: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the losses and log-sum-exps of rows by kernels; see `run_losses`."""
    if x.requires_grad and torch.is_grad_enabled():
        apply = _differentiable if plain else _CrossEntropy.apply
        return apply(x, plain, in_place, options, *scalars)
    losses, lse = run_losses(plain, x.detach(), scalars, options, False)
    return losses, lse


def run_losses(
    plain: bool,
    x: Tensor,
    scalars: RowScalars,
    options: LossOptions,
    gradient: bool,
    in_place: bool = False,
) -> tuple[Tensor, ...]:
    """Return the gradient of the losses, if requested, and the loss and log-sum-exp of each row.
    See `run_rows` for `plain` and `in_place`."""
    target, b, z, c, q = scalars
    numbers: tuple[Any, ...]
    part = options.part
    at_target = picked(x, target, options.dim) if part is None else part.picked(x, target)
    with_gradient = int(gradient)  # torch.compile of PyTorch 2.11 takes no bool as an index
    op, numbers = PLAIN[with_gradient], (target, at_target, b, z)
    if c is not None:
        op, numbers = (SMOOTHED if q is None else OF_DISTRIBUTION)[with_gradient], (*numbers, c)
    modifiers, after = None, {}
    if part is not None:
        after["part"] = part
    if options.scale != 1.0 or options.softcap is not None or q is not None:
        if part is None or plain:
            modifiers = Modifiers(options.scale, options.softcap)
            after["after"] = gradient
    dtype = x.dtype if gradient else composite.accumulator(x.dtype)
    given = (op, (x,) if q is None else (x, q), numbers, options.dim, dtype)
    return operators.run_rows(plain, *given, modifiers, options.invariant, in_place, **after)
