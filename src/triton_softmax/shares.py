"""What a cross-entropy is told of its rows besides their logits: targets, factors, shares."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .targets import numbers_of_targets
from .ways import wide


class Settings(NamedTuple):
    """The arguments of a cross-entropy that are no tensors, checked."""

    dim: int
    """Of the classes."""
    ignore_index: int
    reduction: str
    label_smoothing: float
    z_loss: float
    dtype: torch.dtype
    """Of the loss."""
    scale: float = 1.0
    softcap: float | None = None
    implementation: str | None = None
    """Of the batch-invariant kernels, if they are asked for."""


class Shares(NamedTuple):
    """What the kernel is told of each row besides its logits, all of the shape of the targets."""

    target: Tensor
    """The class; −1 where the row is ignored."""
    factor: Tensor
    """Of the loss: its class weight, over n for a mean."""
    z_factor: Tensor
    """Of the squared log-sum-exp."""
    at_target: Tensor | None
    """The share of the factor that the target keeps; None without label smoothing."""
    everywhere: Tensor | None
    """The share that every class has, or a distribution."""

    def chunk(self, start: int, end: int) -> Shares:
        """Those of some rows."""
        parts = [None if each is None else each[start:end] for each in self]
        return Shares(*parts)  # pyright: ignore[reportArgumentType]


def shares_of(
    target: Tensor,
    weight: Tensor | None,
    n_classes: int,
    accumulator: torch.dtype,
    settings: Settings,
) -> Shares:
    """The shares of all rows. Nothing here waits for the device."""
    kept = target != settings.ignore_index
    classes = torch.where(kept, target, 0).long()
    each = kept.to(accumulator)
    factor = each if weight is None else weight.to(accumulator)[classes] * each
    z_factor = settings.z_loss * each
    spread = each if weight is not None else factor  # then every class has a weight of its own
    if settings.reduction == "mean":
        z_factor = z_factor / each.sum()
        spread = spread / factor.sum()
        factor = factor / factor.sum()
    marked = torch.where(kept, classes, -1)
    if settings.label_smoothing == 0.0:
        return Shares(marked, factor, z_factor, None, None)
    everywhere = spread * (settings.label_smoothing / n_classes)
    at_target = factor * (1.0 - settings.label_smoothing)
    return Shares(marked, factor, z_factor, at_target, everywhere)


def shares_of_probabilities(x: Tensor, settings: Settings) -> Shares:
    """The same where every row is kept and no class counts more than its probability."""
    accumulator = wide(x.new_empty(0)).dtype
    shape = x.shape[: settings.dim] + x.shape[settings.dim + 1 :]
    share = 1.0 / max(1, math.prod(shape)) if settings.reduction == "mean" else 1.0

    def full(value: float, dtype: torch.dtype) -> Tensor:
        return torch.full((), value, dtype=dtype, device=x.device).expand(shape)

    zero, share = full(0.0, accumulator), full(share, accumulator)
    return Shares(full(-2, torch.int64), zero, zero, zero, share)


def distribution_of(
    x: Tensor, target: Tensor, weight: Tensor | None, settings: Settings
) -> Tensor | None:
    """What counts each class beside the target, in the shape of x: probabilities, or the weights of
    classes under label smoothing. As it lies, unless probabilities are smoothed or weighted."""
    accumulator, epsilon = wide(x.new_empty(0)).dtype, settings.label_smoothing
    of_classes = None if weight is None else along(weight.to(accumulator), x, settings.dim)
    if not target.is_floating_point():
        return None if of_classes is None or epsilon == 0.0 else of_classes.expand(x.shape)
    if epsilon > 0.0:
        target = target.to(accumulator) * (1.0 - epsilon) + epsilon / x.shape[settings.dim]
    return target if of_classes is None else target * of_classes


def rows_with(x: Tensor, shares: Shares, dim: int) -> tuple[Tensor | None, ...]:
    """The numbers of the row that the operators take: the shares, and the logits of the targets."""
    classes = shares.target.clamp(min=0)
    picked = x.gather(dim, classes.unsqueeze(dim)).squeeze(dim)
    return shares.target, picked, *shares[1:]


def rows_by_kernel(
    x: Tensor, target: Tensor, weight: Tensor | None, settings: Settings
) -> tuple[Tensor | None, ...] | None:
    """What `rows_with` returns, by one kernel; None where it does not do."""
    mean, smoothing = settings.reduction == "mean", settings.label_smoothing
    found = numbers_of_targets(
        x, target, weight, settings.dim, settings.ignore_index, mean, smoothing, settings.z_loss
    )
    if found is None:
        return None
    marked, (picked, factor, z_factor, at_target, everywhere) = found
    if smoothing == 0.0:
        return marked, picked, factor, z_factor, None, None
    return marked, picked, factor, z_factor, at_target, everywhere


def along(weight: Tensor, x: Tensor, dim: int) -> Tensor:
    """The weights of classes, as a tensor that goes with x."""
    return weight.view([-1 if i == dim else 1 for i in range(x.dim())])
