"""Pure layers: modules that the `kernels` package of Hugging Face puts in the place of others.

`kernelize` gives a module of the user's model our `forward`, which finds what it needs, such as
`dim`, on that module. So a layer has no constructor, no state and no other method.
"""

from typing import Any

from torch import Tensor
from torch.nn import Module

from . import nn
from .integrations.causal_lm import causal_lm_loss


class Softmax(Module):
    """Stands in for `torch.nn.Softmax`."""

    can_torch_compile: bool = True
    forward = nn.Softmax.forward


class LogSoftmax(Module):
    """Stands in for `torch.nn.LogSoftmax`."""

    can_torch_compile: bool = True
    forward = nn.LogSoftmax.forward


class CrossEntropyLoss(Module):
    """Stands in for `torch.nn.CrossEntropyLoss`."""

    can_torch_compile: bool = True
    forward = nn.CrossEntropyLoss.forward


class ForCausalLMLoss(Module):
    """Stands in for a module with the arguments of transformers' `ForCausalLMLoss`."""

    can_torch_compile: bool = True

    def forward(
        self,
        logits: Tensor,
        labels: Tensor | None,
        vocab_size: int,
        num_items_in_batch: Tensor | float | None = None,
        ignore_index: int = -100,
        shift_labels: Tensor | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """Return `causal_lm_loss` of the arguments."""
        return causal_lm_loss(
            logits, labels, vocab_size, num_items_in_batch, ignore_index, shift_labels, **kwargs
        )
