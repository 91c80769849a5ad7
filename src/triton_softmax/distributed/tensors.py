"""`DTensor`s: taken apart into the shards of this rank, and put together again.

A softmax dimension that is sharded over one dimension of the mesh stays sharded, and so do all
others. Placements that are partial are reduced first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate, Shard

from ..checks import check_dim, check_dtype
from . import losses
from . import softmax as shards
from .losses import Loss


class Lying(NamedTuple):
    """Where a tensor lies, seen from one of its dimensions."""

    x: DTensor
    """Without partial placements."""
    dim: int
    """The dimension, counted from the front."""
    over: int | None
    """The dimension of the mesh that it is sharded over, if any."""
    group: Any
    """Of the ranks along that; None if it is not sharded."""
    rows_over: tuple[int, ...]
    """Dimensions of the mesh that other dimensions are sharded over."""

    def start(self, dim_size: int) -> int:
        """The first element of this rank's part, by the rule of `torch.chunk`."""
        if self.over is None:
            return 0
        each = -(-dim_size // self.x.device_mesh.size(self.over))
        return min(dim_size, each * self.x.device_mesh.get_local_rank(self.over))


def lying(x: DTensor, dim: int) -> Lying:
    """Look where x lies.

    Raises:
        IndexError: there is no such dimension.
        NotImplementedError: `dim` is sharded over several dimensions of the mesh, or x is sharded
            in another way than by `Shard`.
    """
    check_dtype(x.dtype, "the input")
    dim = check_dim(dim, x.dim())
    if any(each.is_partial() for each in x.placements):
        whole = [Replicate() if each.is_partial() else each for each in x.placements]
        x = x.redistribute(placements=whole)
    for each in x.placements:
        if type(each) not in (Shard, Replicate):
            raise NotImplementedError(f"a tensor with the placement {each} is not taken apart")
    over = [i for i, each in enumerate(x.placements) if each.is_shard(dim)]
    if len(over) > 1:
        names = x.device_mesh.mesh_dim_names or ()
        which = ", ".join(repr(names[i]) if names else str(i) for i in over)
        raise NotImplementedError(
            f"dimension {dim} is sharded over several dimensions of the mesh ({which}); "
            "redistribute it to one of them"
        )
    rows = tuple(i for i, each in enumerate(x.placements) if each.is_shard() and i not in over)
    group = x.device_mesh.get_group(over[0]) if over else None
    return Lying(x, dim, over[0] if over else None, group, rows)


def _assembled(local: Tensor, like: DTensor, shape: torch.Size, placements) -> DTensor:
    """A tensor of this shape of which this rank has `local`."""
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(
        local, like.device_mesh, placements, run_check=False, shape=shape, stride=stride
    )


def normalized(name: str, x: Any, dim: int, dtype: Any, implementation: Any) -> DTensor:
    """`softmax` or `log_softmax`, placed as x is."""
    if dtype is not None:
        check_dtype(dtype, "the argument dtype")
        x = x.to(dtype)
    x, dim, over, group, _ = lying(x, dim)
    local = x.to_local()
    if over is None:
        from .. import functional

        y = getattr(functional, name)(local, dim)
    else:
        y = shards.normalized(name, local, dim, None, group, implementation)
    return _assembled(y, x, x.shape, x.placements)


def with_maps(
    name: str, x: Any, dim: int, dtype: Any, implementation: Any, arguments: tuple[Any, ...]
) -> DTensor:
    """The same with maps. Tensors among them are DTensors placed as x is, or whole on each rank."""
    lies = lying(x if dtype is None else x.to(dtype), dim)
    x, dim, over, group, _ = lies
    placements = list(x.placements)
    cut = [
        _placed_as(each.expand(x.shape), lies, placements) if isinstance(each, Tensor) else each
        for each in arguments[2:4]  # where and bias
    ]
    if any(isinstance(each, Tensor) for each in arguments[:2]):
        raise NotImplementedError("the scale of a DTensor is a number")
    local, (scale, softcap, _, _, *others) = x.to_local(), arguments
    all_of_them = (scale, softcap, *cut, *others)
    if over is None:
        from .. import functional

        names = ("scale", "softcap", "where", "bias", "causal", "safe", "sink")
        y = getattr(functional, name)(local, dim, **dict(zip(names, all_of_them)))
    else:
        y = shards.with_maps(name, local, dim, None, group, implementation, all_of_them)
    return _assembled(y, x, x.shape, x.placements)


def _without(placements, dim: int, keepdim: bool = False) -> list:
    """The placements of a tensor that lacks a dimension: replicated over its mesh dimension."""

    def of(each):
        if not each.is_shard():
            return each
        if each.dim == dim:
            return Replicate()
        return Shard(each.dim - (each.dim > dim and not keepdim))

    return [of(each) for each in placements]


def logsumexp(x: DTensor, dim: Any, keepdim: bool, implementation: Any) -> DTensor:
    """`logsumexp`, replicated over the mesh dimension that `dim` was sharded over.

    Raises:
        NotImplementedError: several dimensions.
    """
    if not isinstance(dim, int):
        if len(dim) != 1:
            raise NotImplementedError("logsumexp of a DTensor takes one dimension")
        (dim,) = dim
    x, dim, over, group, _ = lying(x, dim)
    local = x.to_local()
    if over is None:
        from .. import functional

        lse = functional.logsumexp(local, dim, keepdim)
    else:
        lse = shards.logsumexp(local, dim, keepdim, group, implementation)
    shape = [1 if i == dim else size for i, size in enumerate(x.shape) if i != dim or keepdim]
    placements = _without(x.placements, dim, keepdim)
    return _assembled(lse, x, torch.Size(shape), placements)


def _placed_as(t: Tensor, lies: Lying, placements: list) -> Tensor:
    """This rank's part of a tensor that belongs to the rows: a DTensor, or the whole on each rank.
    What is whole is cut without a message."""
    mesh = lies.x.device_mesh
    if not isinstance(t, DTensor):
        t = DTensor.from_local(t, mesh, [Replicate()] * mesh.ndim, run_check=False)
    return t.redistribute(placements=placements).to_local()


def cross_entropy(
    x: DTensor, target: Tensor, weight: Tensor | None, loss: Loss, **more: Any
) -> tuple[DTensor, DTensor]:
    """(loss, log-sum-exps) of `losses.cross_entropy`: replicated over the mesh dimension of the
    classes; a loss that is one number, over all."""
    lies = lying(x, 0 if x.dim() == 1 else 1)
    x, dim, over, group, rows_over = lies
    mesh, total = x.device_mesh, x.shape[dim]
    of_rows = _without(x.placements, dim)
    given = target.is_floating_point() and target.shape == x.shape
    target = _placed_as(target, lies, list(x.placements) if given else of_rows)
    if isinstance(weight, DTensor):
        placements = [Shard(0) if i == over else Replicate() for i in range(mesh.ndim)]
        weight = weight.redistribute(placements=placements).to_local()
    loss = loss._replace(over_rows=tuple(mesh.get_group(i) for i in rows_over))
    result, lse = losses.cross_entropy(
        x.to_local(),
        target,
        weight,
        loss,
        group,
        vocab_start=lies.start(total),
        vocab_size=total,
        **more,
    )
    shape = torch.Size([size for i, size in enumerate(x.shape) if i != dim])
    lse = _assembled(lse, x, shape, of_rows)
    if loss.reduction == "none":
        return _assembled(result, x, shape, of_rows), lse
    return _assembled(result, x, result.shape, [Replicate()] * mesh.ndim), lse


def token_logprobs(
    x: DTensor, index: Tensor, return_entropy: bool, in_place: bool, implementation: Any
) -> tuple[DTensor, DTensor]:
    """(log-probabilities, entropies), replicated over the mesh dimension of the classes."""
    lies = lying(x, -1)
    x, dim, _, group, _ = lies
    of_rows = _without(x.placements, dim)
    local_index = _placed_as(index, lies, of_rows)
    found, entropy = losses.token_logprobs(
        x.to_local(),
        local_index,
        return_entropy,
        in_place,
        implementation,
        group,
        vocab_start=lies.start(x.shape[dim]),
        vocab_size=x.shape[dim],
    )
    shape = torch.Size(x.shape[:-1])
    return _assembled(found, x, index.shape, of_rows), _assembled(entropy, x, shape, of_rows)
