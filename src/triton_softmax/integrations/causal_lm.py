"""The loss of a causal language model, as transformers defines it, without a float32 copy of the
logits."""

from typing import Any

import torch
from torch import Tensor

from ..losses import cross_entropy


def causal_lm_loss(
    logits: Tensor,
    labels: Tensor | None,
    vocab_size: int | None = None,
    num_items_in_batch: Tensor | float | None = None,
    ignore_index: int = -100,
    shift_labels: Tensor | None = None,
    **unused: Any,
) -> Tensor:
    """Return the loss of predicting each token from those before it, like `ForCausalLMLoss` of
    transformers.

    transformers casts 16-bit logits to float32, which takes twice their memory, and again for the
    gradient. Here the forward pass writes the gradient, in the dtype of the logits, which it
    leaves as they are.

    Args:
        logits: (…, T, C), in a floating-point dtype.
        labels: The token at each place, (…, T), on any device. The logits at a place predict the
            label at the next; nothing is left for the last one to predict.
        vocab_size: C; by default that of the logits.
        num_items_in_batch: What the sum of the losses is divided by, such as the number of tokens
            of all batches whose gradients accumulate: a number, or a tensor of any shape. By
            default the mean over kept labels.
        ignore_index: Places with this label have neither loss nor gradient.
        shift_labels: The labels, already shifted, in place of `labels`.
        unused: Other keywords that transformers passes, which have no effect.

    Returns:
        The loss, a float32 scalar, or in the shape of `num_items_in_batch`, as `nn.DataParallel`
        passes it. With nothing to predict a mean is NaN and a sum 0.

    Raises:
        RuntimeError: The loss is differentiated twice where kernels computed it.
        TypeError: Neither labels nor shifted labels are given.
        ValueError, TypeError, IndexError: As for `cross_entropy`.

    Examples:
        >>> import torch
        >>> from triton_softmax.integrations.causal_lm import causal_lm_loss
        >>> logits = torch.eye(3, dtype=torch.bfloat16).unsqueeze(0)
        >>> causal_lm_loss(logits, torch.tensor([[0, 1, 1]]))
        tensor(1.0514)
    """
    if shift_labels is None:
        if labels is None:
            raise TypeError("the loss needs labels or shift_labels")
        shifted = torch.nn.functional.pad(labels, (0, 1), value=ignore_index)
        shift_labels = shifted[..., 1:]
    x = logits.reshape(-1, logits.shape[-1] if vocab_size is None else vocab_size)
    n, weight = num_items_in_batch, None
    if n is not None:
        n = n.to(x.device) if isinstance(n, Tensor) else torch.full((), n, device=x.device)
    if n is not None and n.numel() == 1 and x.dtype != torch.float16:
        # As weights of classes, so that the kernel writes the gradient already divided: no pass
        # over it divides it later, and it is rounded once. In float16 it could become 0.
        dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
        weight = n.detach().to(dtype).reshape(1).expand(x.shape[1]).reciprocal()
    loss = cross_entropy(
        x,
        shift_labels.reshape(-1).to(x.device),
        weight,
        ignore_index=ignore_index,
        reduction="mean" if n is None else "sum",
        loss_dtype=torch.float32,
    )
    if n is None:
        return loss
    if weight is None:  # several numbers: a loss divided by each
        return loss / n
    loss = loss.reshape(n.shape)
    return loss.double() if n.dim() and n.dtype == torch.float64 else loss  # as a quotient
