"""Cross-entropy fused with its linear layer, in chunks of rows, to save the memory of the logits.

A language model's logits are its largest tensor by far, and only the loss needs them. So they are
computed for some rows at a time, in one buffer, which `cross_entropy` overwrites with their
gradient; two matrix products turn that into the gradients of the layer, and the next rows reuse the
buffer. The matrix products are PyTorch's.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import Parameter
from torch.overrides import has_torch_function
from torch.utils.checkpoint import checkpoint

from . import arguments, composite
from .arguments import LossOptions
from .composite import RowScalars, accumulator, scalars_of_classes
from .losses import Final, differentiable_losses, reduced, run_losses, scaled
from .operators import by_composite, is_given, nobody_watches, readable, version_of

BYTES = 1 << 28
"""The default size of the logits buffer, large enough for efficient matrix products."""


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float | None = None,
    scale: float = 1.0,
    chunk_size: int | None = None,
) -> Any:
    """Return `cross_entropy(linear(input, linear_weight, linear_bias), target, …)`, with the logits
    of only `chunk_size` rows in memory at a time.

    The forward pass computes the gradients. With reduction "none" each row's incoming gradient is
    then unknown, so the backward pass recomputes the logits instead. Gradients of the weight
    accumulate in its dtype.

    Args:
        input: (N, K) or (…, K).
        linear_weight: (C, K), in the dtype of the input. Autocast converts both, and the bias.
        target: Classes, int64, int32 or uint8, in the shape of the input without K.
        linear_bias: (C,).
        weight, reduction, ignore_index, label_smoothing, z_loss, softcap, scale: As for
            `cross_entropy`. An `ignore_index` of None ignores no target.
        chunk_size: Rows per chunk; by default as many as fill 256 MiB of logits.

    Returns:
        The loss: a scalar, or with reduction "none" one per target.

    Raises:
        ValueError: The shapes do not match, or `chunk_size` is not positive.
        TypeError, IndexError, RuntimeError: As for `cross_entropy`.

    Examples:
        >>> import torch
        >>> from triton_softmax import linear_cross_entropy
        >>> linear_cross_entropy(torch.eye(2), torch.eye(2), torch.tensor([0, 1]))
        tensor(0.3133)
    """
    operands = (input, linear_weight, target, linear_bias, weight)
    if has_torch_function(operands) and not torch.compiler.is_compiling():
        return arguments.pass_on(linear_cross_entropy, operands, locals())
    loss_dtype = None
    if isinstance(input, Tensor) and arguments.autocasts(input) and input.dtype != torch.float64:
        dtype = torch.get_autocast_dtype(input.device.type)
        layer: Any = (input, linear_weight, linear_bias)
        input, linear_weight, linear_bias = [
            t.to(dtype) if isinstance(t, Tensor) else t for t in layer
        ]
        loss_dtype = torch.float32
    arguments.check_linear(input, linear_weight, target, linear_bias, weight, chunk_size)
    if ignore_index is None:
        ignore_index = -(2**31)
    ignore_index = arguments.check_int(ignore_index, "ignore_index")
    label_smoothing, z_loss, softcap, scale = arguments.check_loss_numbers(
        label_smoothing, z_loss, softcap, scale
    )
    options = LossOptions(
        1, ignore_index, reduction, label_smoothing, z_loss, loss_dtype or input.dtype, scale,
        softcap, arguments.contexts > 0,
    )  # fmt: skip
    x, flat = input.reshape(-1, input.shape[-1]), target.reshape(-1)
    if flat.dtype == torch.uint8:  # a negative `ignore_index` differs from all targets
        flat = flat.long()
    no_logits = linear_weight.detach()[:, :0].T
    arguments.check_loss(no_logits, flat[:0], weight, options)
    traced = torch.compiler.is_compiling()
    if flat.device.type == "cpu" and readable(flat):
        arguments.check_classes(flat, len(linear_weight), ignore_index)
    scalars = scalars_of_classes(flat, weight, len(linear_weight), accumulator(x.dtype), options)
    layer = (x, linear_weight, linear_bias, chunk_size, options, *scalars)
    plain = all(each is None or type(each) in (Tensor, Parameter) for each in operands)
    plain = plain and arguments.by_kernels(x) and readable(flat) and not (traced or by_composite())
    losses = _LinearCrossEntropy.apply if plain and reduction != "none" else _recomputed
    loss = reduced(losses(*layer), options)
    if reduction == "none":
        return loss.view(target.shape)
    return loss / 0.0 if reduction == "mean" and not len(x) else loss  # NaN, the mean of nothing


def _rows_at_once(x: Tensor, n_classes: int, chunk_size: int | None) -> int:
    return chunk_size or max(1, BYTES // (n_classes * x.element_size()))


class _LinearCrossEntropy(Function):
    """The losses of rows; their sum's gradients are computed in the forward pass."""

    @staticmethod
    def forward(ctx, x, linear_weight, bias, chunk_size, options, *scalars):
        rows = RowScalars(*scalars)
        n = _rows_at_once(x, len(linear_weight), chunk_size)
        buffer = x.new_empty(min(n, len(x)), len(linear_weight))
        wanted = ctx.needs_input_grad
        dx = x.new_empty(x.shape) if wanted[0] else None
        dw = linear_weight.new_zeros(linear_weight.shape) if wanted[1] else None
        db = torch.zeros_like(bias) if bias is not None and wanted[2] else None
        plain = nobody_watches(buffer, *filter(is_given, scalars))
        losses = []
        for start in range(0, len(x), n):
            chunk = x[start : start + n]
            logits = torch.mm(chunk, linear_weight.T, out=buffer[: len(chunk)])
            if bias is not None:
                logits += bias
            of_chunk = rows.chunk(start, start + n)
            gradient = any(wanted[:3])
            *_, loss, _ = run_losses(plain, logits, of_chunk, options, gradient, gradient)
            losses.append(loss)
            # If a gradient is needed, the buffer now holds the gradient of the logits.
            if dx is not None:
                torch.mm(logits, linear_weight, out=dx[start : start + n])
            if dw is not None:
                dw.addmm_(logits.T, chunk)
            if db is not None:
                db += logits.sum(0)
        of_rows = torch.cat(losses)
        ctx.save_for_backward(dx, dw, db, of_rows)
        ctx.n_more = len(scalars) + 2
        return of_rows

    @staticmethod
    def backward(ctx, g):
        # The losses are summed, so the incoming gradient is the same for all rows.
        each = g[:1]
        *gradients, of_rows = ctx.saved_tensors
        again = torch.is_grad_enabled()
        found = []
        for gradient in gradients:
            if gradient is not None:
                flat = gradient.reshape(1, -1)
                flat = Final.apply(flat, each, 1, of_rows) if again else scaled(flat, each, 1)
                gradient = flat.view(gradient.shape)
            found.append(gradient)
        return *found, *(None,) * ctx.n_more


def _recomputed(
    x: Tensor,
    linear_weight: Tensor,
    bias: Tensor | None,
    chunk_size: int | None,
    options: LossOptions,
    *scalars: Tensor,
) -> Tensor:
    """Return the losses of rows, with logits recomputed in the backward pass: for calls whose
    gradient is not yet known in the forward pass, and where PyTorch's operators compute."""
    rows = RowScalars(*scalars)
    tensors = [t for t in (x, linear_weight, bias, rows.distribution) if t is not None]
    versions = [version_of(t) for t in tensors]
    traced = by_composite()
    again = torch.is_grad_enabled() and any([t.requires_grad for t in tensors])
    again = again and not (traced or torch.compiler.is_compiling())

    def losses_of(chunk: Tensor, *of_chunk: Any) -> Tensor:
        if versions != [version_of(t) for t in tensors]:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an "
                "inplace operation: an argument of linear_cross_entropy"
            )
        logits = torch.nn.functional.linear(chunk, linear_weight, bias)
        of_rows = RowScalars(*of_chunk)
        if traced or not arguments.by_kernels(logits):
            return composite.row_losses(logits, of_rows, options)[0]
        return differentiable_losses(logits, of_rows, options, plain=False)[0]

    n = _rows_at_once(x, len(linear_weight), chunk_size)
    losses: list[Any] = []
    for start in range(0, max(1, len(x)), n):
        chunk = (x[start : start + n], *rows.chunk(start, start + n))
        run = partial(checkpoint, losses_of, use_reentrant=False) if again else losses_of
        losses.append(run(*chunk))
    return torch.cat(losses)
