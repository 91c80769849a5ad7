"""Pure layers: modules that the `kernels` package of Hugging Face puts in the place of others.

`kernelize` gives a module of the user's model our `forward`, which finds what it needs, such as
`dim`, on that module. So a layer has no constructor, no state and no other method.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from .functional import log_softmax, softmax
from .integrations.causal_lm import causal_lm_loss
from .losses import cross_entropy


class Softmax(Module):
    """Stands in for `torch.nn.Softmax`."""

    can_torch_compile: bool = True
    dim: int | None

    def forward(self, input: Tensor) -> Tensor:
        """Return `softmax(input, self.dim)`; without a `dim`, PyTorch's result and warning."""
        if self.dim is None:
            return torch.nn.functional.softmax(input, None, _stacklevel=5)
        return softmax(input, self.dim)


class LogSoftmax(Module):
    """Stands in for `torch.nn.LogSoftmax`."""

    can_torch_compile: bool = True
    dim: int | None

    def forward(self, input: Tensor) -> Tensor:
        """Return `log_softmax(input, self.dim)`; without a `dim`, PyTorch's result and warning."""
        if self.dim is None:
            return torch.nn.functional.log_softmax(input, None, _stacklevel=5)
        return log_softmax(input, self.dim)


class CrossEntropyLoss(Module):
    """Stands in for `torch.nn.CrossEntropyLoss`."""

    can_torch_compile: bool = True
    weight: Tensor | None
    ignore_index: int
    reduction: str
    label_smoothing: float

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return `cross_entropy` of the arguments, with the options of the module."""
        return cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


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
