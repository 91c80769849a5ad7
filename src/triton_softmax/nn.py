"""The modules `Softmax`, `LogSoftmax` and `CrossEntropyLoss`, like those of `torch.nn`."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from . import functional, losses
from .arguments import check_implementation


class _AlongDim(Module):
    def __init__(
        self, dim: int = -1, *, implementation: str | None = None, batch_invariant: bool = False
    ) -> None:
        super().__init__()
        check_implementation(implementation)
        self.dim = dim
        self.implementation = implementation
        self.batch_invariant = batch_invariant

    def extra_repr(self) -> str:
        chosen = "" if self.implementation is None else f", implementation={self.implementation!r}"
        invariant = ", batch_invariant=True" if self.batch_invariant else ""
        return f"dim={self.dim}{chosen}{invariant}"

    def _options(self) -> dict[str, Any]:
        return {"implementation": self.implementation, "batch_invariant": self.batch_invariant}


class Softmax(_AlongDim):
    """`softmax` along `dim` as a module without parameters, like `torch.nn.Softmax`.

    Arguments, inputs, results and errors are those of `softmax`.

    Examples:
        >>> import torch
        >>> from triton_softmax import Softmax
        >>> Softmax(dim=0)(torch.tensor([0.0, 0.0]))
        tensor([0.5000, 0.5000])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return `softmax(x, self.dim)`."""
        return functional.softmax(x, self.dim, **self._options())


class LogSoftmax(_AlongDim):
    """`log_softmax` along `dim` as a module without parameters, like `torch.nn.LogSoftmax`.

    Arguments and errors are those of `Softmax`.

    Examples:
        >>> import torch
        >>> from triton_softmax import LogSoftmax
        >>> LogSoftmax(dim=0)(torch.tensor([0.0, 0.0]))
        tensor([-0.6931, -0.6931])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return `log_softmax(x, self.dim)`."""
        return functional.log_softmax(x, self.dim, **self._options())


class CrossEntropyLoss(torch.nn.CrossEntropyLoss):
    """`cross_entropy` as a module, like `torch.nn.CrossEntropyLoss`.

    Arguments and errors are those of `cross_entropy`; `extras` are its keyword-only arguments.

    Examples:
        >>> import torch
        >>> from triton_softmax import CrossEntropyLoss
        >>> CrossEntropyLoss(z_loss=0.5)(torch.tensor([[0.0, 0.0]]), torch.tensor([1]))
        tensor(0.9334)
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        **extras: object,
    ) -> None:
        super().__init__(weight, size_average, ignore_index, reduce, reduction, label_smoothing)
        self.extras = extras

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return `cross_entropy(input, target, …)`."""
        return losses.cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
            **self.extras,  # pyright: ignore[reportArgumentType]
        )
