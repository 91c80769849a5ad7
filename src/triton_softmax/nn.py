"""The modules `Softmax`, `LogSoftmax` and `CrossEntropyLoss`, like those of `torch.nn`.

Each `forward` works for PyTorch's module of its name too, which has no `extras`.
"""

import torch
from torch import Tensor
from torch.nn import Module

from . import functional, losses


class _AlongDim(Module):
    def __init__(self, dim: int = -1, *, batch_invariant: bool = False) -> None:
        super().__init__()
        self.dim = dim
        self.extras = {"batch_invariant": batch_invariant}

    def extra_repr(self) -> str:
        given = [f", {name}={value!r}" for name, value in self.extras.items() if value]
        return f"dim={self.dim}{''.join(given)}"


class Softmax(_AlongDim):
    """`softmax` along `dim` as a module without parameters, like `torch.nn.Softmax`.

    Arguments, inputs, results and errors are those of `softmax`; a `dim` of None is guessed.

    Examples:
        >>> import torch
        >>> from triton_softmax import Softmax
        >>> Softmax(dim=0)(torch.tensor([0.0, 0.0]))
        tensor([0.5000, 0.5000])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return `softmax(input, self.dim)`; without a `dim`, PyTorch's result and warning."""
        if self.dim is None:
            return torch.nn.functional.softmax(input, None, _stacklevel=5)
        return functional.softmax(input, self.dim, **getattr(self, "extras", {}))


class LogSoftmax(_AlongDim):
    """`log_softmax` along `dim` as a module without parameters, like `torch.nn.LogSoftmax`.

    Arguments are those of `Softmax`, inputs, results and errors those of `log_softmax`.

    Examples:
        >>> import torch
        >>> from triton_softmax import LogSoftmax
        >>> LogSoftmax(dim=0)(torch.tensor([0.0, 0.0]))
        tensor([-0.6931, -0.6931])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return `log_softmax(input, self.dim)`; without a `dim`, PyTorch's result and warning."""
        if self.dim is None:
            return torch.nn.functional.log_softmax(input, None, _stacklevel=5)
        return functional.log_softmax(input, self.dim, **getattr(self, "extras", {}))


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
        for name in extras.keys() - (losses.cross_entropy.__kwdefaults__ or {}).keys():
            raise TypeError(f"CrossEntropyLoss got an unexpected keyword argument {name!r}")
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
            **getattr(self, "extras", {}),
        )
