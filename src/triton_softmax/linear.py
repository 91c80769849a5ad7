"""Cross-entropy fused with its linear layer, in chunks of rows, to save the memory of the logits.

A language model's logits are its largest tensor by far, and only the loss needs them. So they are
computed for some rows at a time, in one buffer, which `cross_entropy` overwrites with their
gradient; two matrix products turn that into the gradients of the layer, and the next rows reuse the
buffer. The matrix products are PyTorch's.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.overrides import has_torch_function
from torch.utils.checkpoint import checkpoint

from . import arguments, composite
from .arguments import PLAIN, LossOptions
from .composite import RowScalars, accumulator, scalars_of_classes
from .losses import Final, differentiable_losses, reduced, run_losses, scaled
from .modes import by_composite, is_batched, is_plain_eager, readable, version_of
from .plan import key_of
from .plan.launch import plans

BYTES = 1 << 28
"""The default size of the logits buffer, large enough for efficient matrix products; twice that
where the weight's gradient accumulates in numbers of twice as many bytes, so that the chunks are
half as many and move as many bytes of it."""


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float | None = None,
    scale: float = 1.0,
    chunk_size: int | None = None,
    accum_dtype: torch.dtype | None = None,
    loss_dtype: torch.dtype | None = None,
) -> Any:
    """Return `cross_entropy(linear(input, linear_weight, linear_bias), target, …)`, with the logits
    of only `chunk_size` rows in memory at a time.

    The forward pass computes the gradients. With reduction "none" each row's incoming gradient is
    then unknown, and in float16 a loss scale, so the backward pass recomputes the logits instead.
    PyTorch's function of this name also takes class probabilities, a weight of more than two
    dimensions, and `options=`, in whose place `chunk_size` and `accum_dtype` stand.

    Args:
        input: (…, K), float16, bfloat16, float32 or float64.
        linear_weight: (C, K), in the dtype of the input. Autocast converts both, and the bias.
        target: Classes, int64, int32 or uint8, in the shape of the input without K.
        linear_bias: (C,), or one number for all classes, in the dtype of the input.
        weight, reduction, ignore_index, label_smoothing, z_loss, softcap, scale, loss_dtype: As for
            `cross_entropy`. An `ignore_index` of None is -100.
        chunk_size: Rows per chunk; by default as many as fill 512 MiB of logits, or 256 MiB where
            `accum_dtype` is the weight's.
        accum_dtype: The dtype in which gradients of weight and bias add up over chunks. By default
            float32 for 16 bits: their error then does not grow with the number of chunks, and they
            take twice their memory until the last one. The weight's dtype saves that, and rounds
            after each chunk.

    Returns:
        The loss: a scalar, or with reduction "none" one per target.

    Raises:
        TypeError, ValueError, IndexError, RuntimeError: As for `cross_entropy`; a ValueError also
            if `chunk_size` is not positive, or `accum_dtype` neither the weight's nor float32.
        NotImplementedError: A tensor is a `DTensor`.

    Examples:
        >>> import torch
        >>> from triton_softmax import linear_cross_entropy
        >>> linear_cross_entropy(torch.eye(2), torch.eye(2), torch.tensor([0, 1]))
        tensor(0.3133)
    """
    operands = (input, linear_weight, target, linear_bias, weight)
    if has_torch_function(operands) and not torch.compiler.is_compiling():
        return arguments.pass_on(linear_cross_entropy, operands, locals())
    tensors = []
    for each in operands:
        if each is not None:
            tensors.append(each)
    plain = is_plain_eager(*tensors)
    if not plain and isinstance(input, Tensor) and arguments.autocasts(input):
        if input.dtype != torch.float64:
            dtype = torch.get_autocast_dtype(input.device.type)
            layer: Any = (input, linear_weight, linear_bias)
            input, linear_weight, linear_bias = [
                t.to(dtype) if isinstance(t, Tensor) else t for t in layer
            ]
            loss_dtype = loss_dtype or torch.float32
    numbers = label_smoothing, z_loss, softcap, scale
    if softcap is not None or not (type(label_smoothing) is type(z_loss) is type(scale) is float):
        numbers = arguments.check_loss_numbers(*numbers)
    if type(ignore_index) is not int:
        ignore_index = -100 if ignore_index is None else ignore_index
        ignore_index = arguments.check_int(ignore_index, "ignore_index")
    if chunk_size is not None and type(chunk_size) is not int:
        chunk_size = arguments.check_int(chunk_size, "chunk_size")
    key = plan = None
    if plain:
        refused = weight is not None and weight.requires_grad and torch.is_grad_enabled()
        head = (
            linear_cross_entropy, ignore_index, reduction, chunk_size, accum_dtype, refused,
            loss_dtype, arguments.contexts > 0, *numbers,
        )  # fmt: skip
        key = key_of(head, operands)
        try:
            plan = plans.get(key)
        except TypeError:  # the checks below reject an unhashable argument
            key = None
    if plan is None:
        if loss_dtype is not None:
            arguments.check_dtype(loss_dtype, "the loss")
        operands = (input, linear_weight, target, linear_bias, weight)  # as autocast has cast them
        accum_dtype = arguments.check_linear(operands, chunk_size, accum_dtype)
        label_smoothing, z_loss, softcap, scale = numbers
        options = LossOptions(
            1, ignore_index, reduction, label_smoothing, z_loss, loss_dtype or input.dtype, scale,
            softcap, arguments.contexts > 0,
        )  # fmt: skip
        no_logits, no_targets = linear_weight.detach()[:, :0].T, target.reshape(-1)[:0]
        if target.dtype == torch.uint8:
            no_targets = no_targets.long()
        arguments.check_loss(no_logits, no_targets, weight, options)
        if chunk_size is None:
            row_bytes = len(linear_weight) * input.element_size() ** 2 // accum_dtype.itemsize
            chunk_size = max(1, BYTES // max(1, row_bytes))
        kernels = plain or (all(type(t) in PLAIN for t in tensors) and readable(target))
        kernels = kernels and arguments.by_kernels(input) and not by_composite()
        kernels = kernels and len(linear_weight) > 0
        plan = LinearPlan(options, chunk_size, accum_dtype, kernels)
        if key is not None:
            plan = plans.keep(key, plan)
    x = input.reshape(input.shape[:-1].numel(), input.shape[-1])
    flat = target.reshape(-1)
    if flat.dtype == torch.uint8:  # a negative `ignore_index` differs from all targets
        flat = flat.long()
    options = plan.options
    if flat.device.type == "cpu" and (plain or readable(flat)):
        arguments.check_classes(flat, len(linear_weight), ignore_index)
    scalars = scalars_of_classes(flat, weight, len(linear_weight), accumulator(x.dtype), options)
    losses: Any = _LinearCrossEntropy.apply if plan.kernels else _recomputed
    loss = reduced(losses(x, linear_weight, linear_bias, plan, *scalars), options, len(x))
    return loss.view(target.shape) if reduction == "none" else loss


class LinearPlan(NamedTuple):
    """How a kind of call is run."""

    options: LossOptions
    chunk_size: int
    accum_dtype: torch.dtype
    kernels: bool
    """Whether kernels compute the losses and their gradients, and not PyTorch's operators."""


class _LinearCrossEntropy(Function):
    """The losses of rows. If they are summed, the forward pass computes their gradients; else the
    backward pass does, when it knows the incoming gradient of each row; and in float16, where they
    could be 0 until a loss scale multiplies them."""

    @staticmethod
    def forward(ctx, x, linear_weight, bias, plan, *scalars):
        layer, ctx.plan = (x, linear_weight, bias), plan
        later = ctx.later = plan.options.reduction == "none" or x.dtype == torch.float16
        wanted = (False,) * 3 if later else ctx.needs_input_grad[:3]
        losses, gradients = _over_chunks(*layer, plan, RowScalars(*scalars), wanted)
        ctx.save_for_backward(losses, *((*layer, *scalars) if later else gradients))
        return losses

    @staticmethod
    def backward(ctx, g):
        losses, *saved = ctx.saved_tensors
        options = ctx.plan.options
        wanted, each = ctx.needs_input_grad[:3], g[:1]  # summed losses have one factor
        gradients = saved
        if ctx.later:
            layer, rows, each = saved[:3], RowScalars(*saved[3:]), torch.ones_like(g[:1])
            if is_batched(g):
                gradients = _of_operators(layer, options, rows, wanted, g)
            else:
                rows = rows.times(g)
                layer = [t if t is None else t.detach() for t in layer]
                _, gradients = _over_chunks(*layer, ctx.plan, rows, wanted)
        again, results = torch.is_grad_enabled(), []
        for gradient in gradients:
            if gradient is not None and (again or gradients is saved):
                flat = gradient.reshape(1, -1)
                flat = Final.apply(flat, each, 1, losses) if again else scaled(flat, each, 1)
                gradient = flat.view(gradient.shape)
            results.append(gradient)
        return *results, *(None,) * (len(ctx.needs_input_grad) - 3)


def _over_chunks(
    x: Tensor,
    linear_weight: Tensor,
    bias: Tensor | None,
    plan: LinearPlan,
    rows: RowScalars,
    wanted: Sequence[bool],
) -> tuple[Tensor, list[Tensor | None]]:
    """Return the losses of rows, and those `wanted` of the gradients of their sum at the inputs,
    the weight and the bias, by kernels."""
    options, n, wide, _ = plan
    buffer = x.new_empty(min(n, len(x)), len(linear_weight))
    dx = x.new_empty(x.shape) if wanted[0] else None
    dw = linear_weight.new_zeros(linear_weight.shape, dtype=wide) if wanted[1] else None
    db = bias.new_zeros(bias.shape, dtype=wide) if bias is not None and wanted[2] else None
    tensors = [buffer]
    for each in rows:
        if each is not None:
            tensors.append(each)
    plain = is_plain_eager(*tensors)
    gradient = any(wanted)
    losses = []
    for start in range(0, len(x), n):
        chunk = x[start : start + n]
        logits = torch.mm(chunk, linear_weight.T, out=buffer[: len(chunk)])
        if bias is not None:
            logits += bias
        of_chunk = rows if len(x) <= n else rows.chunk(start, start + n)
        *_, loss, _ = run_losses(plain, logits, of_chunk, options, gradient, gradient)
        losses.append(loss)
        # If a gradient is needed, the buffer now holds the gradient of the logits.
        if dx is not None:
            torch.mm(logits, linear_weight, out=dx[start : start + n])
        if dw is not None:
            _add_product(dw, logits.T, chunk)
        if db is not None:
            db += logits.sum(0, dtype=wide).sum_to_size(db.shape)
    gradients: list[Tensor | None] = []
    for each in (dx, dw, db):
        gradients.append(None if each is None else each.to(x.dtype))
    return torch.cat(losses), gradients


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add the matrix product of a and b to a matrix of their dtype or a wider one."""
    if total.dtype == a.dtype:
        total.addmm_(a, b)
    elif a.is_cuda:
        torch.addmm(total, a, b, out_dtype=total.dtype, out=total)
    else:  # PyTorch has this product for GPUs alone
        total += a @ b


def _of_operators(
    layer: Sequence[Any], options: LossOptions, rows: RowScalars, wanted: Sequence[bool], g: Tensor
) -> list[Tensor | None]:
    """Return the gradients of a layer for a batch of incoming ones, by PyTorch's operators."""
    with torch.enable_grad():
        leaves: list[Any] = [
            t if t is None else t.detach().requires_grad_(w) for t, w in zip(layer, wanted)
        ]
        losses, _ = composite.row_losses(torch.nn.functional.linear(*leaves), rows, options)
        which = [t for t, w in zip(leaves, wanted) if w]
        found = iter(torch.autograd.grad(losses, which, g))
    return [next(found) if w else None for w in wanted]


def _recomputed(
    x: Tensor, linear_weight: Tensor, bias: Tensor | None, plan: LinearPlan, *scalars: Tensor
) -> Tensor:
    """Return the losses of rows where PyTorch's operators compute or differentiate them; a program
    that is not traced recomputes the logits in the backward pass."""
    rows, (options, n, wide, _) = RowScalars(*scalars), plan
    tensors = [t for t in (x, linear_weight, bias, rows.distribution) if t is not None]
    versions = [version_of(t) for t in tensors]
    traced = by_composite()
    again = torch.is_grad_enabled() and any([t.requires_grad for t in tensors])
    again = again and not (traced or torch.compiler.is_compiling())
    parts: list[tuple[Any, ...]] = [(x, *rows)]
    if not (torch.compiler.is_compiling() and arguments.guess(len(x) <= n, True)):
        starts = range(0, max(1, len(x)), n)
        parts = [(x[i : i + n], *rows.chunk(i, i + n)) for i in starts]
    layer = [linear_weight, bias]
    if len(parts) > 1:  # each chunk then has a narrow copy of its own, and a wide one their sum
        layer = [t if t is None else t.to(wide) for t in layer]

    def losses_of(chunk: Tensor, *of_chunk: Any) -> Tensor:
        if versions != [version_of(t) for t in tensors]:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an "
                "inplace operation: an argument of linear_cross_entropy"
            )
        narrow: list[Any] = [t if t is None else t.to(x.dtype) for t in layer]
        logits = torch.nn.functional.linear(chunk, *narrow)
        of_rows = RowScalars(*of_chunk)
        if traced or not arguments.by_kernels(logits):
            return composite.row_losses(logits, of_rows, options)[0]
        return differentiable_losses(logits, of_rows, options, plain=False)[0]

    run = partial(checkpoint, losses_of, use_reentrant=False) if again else losses_of
    return torch.cat([run(*part) for part in parts])
