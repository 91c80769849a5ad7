"""`DTensor`s: taken apart into the shards of this rank, and put together again.

A softmax dimension that is sharded over one dimension of the mesh stays sharded, and so do all
others. Placements that are partial are reduced first. A shard whose rows are whole is the input of
an ordinary call, and one that has a part of them that of a call with a group.
"""

# pyright: reportCallIssue=false
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.distributed.tensor import DTensor, Replicate, Shard

from ..arguments import (
    LossOptions,
    Modifiers,
    check_dense,
    check_dim,
    check_int,
    check_sharded,
)
from ..plan.layout import strides_of
from . import sharded
from .process_group import agreed


class _Part(Function):
    """This rank's part of a `DTensor`, whose gradient lies in memory as the tensor does.

    `DTensor.to_local` gives a gradient the strides of equal parts. Where the parts are uneven the
    whole has other strides, and PyTorch 2.11 replicates a gradient whose strides differ from those
    of the tensor that it is accumulated for, in a message of the tensor's size.
    """

    @staticmethod
    def forward(ctx, x: DTensor) -> Tensor:
        ctx.of = x.device_mesh, x.placements, x.shape, x.stride()
        part = x.to_local()
        return part.view_as(part)

    @staticmethod
    def backward(ctx, g: Tensor) -> DTensor:
        mesh, placements, shape, stride = ctx.of
        order = sorted(range(len(shape)), key=lambda i: -stride[i])
        back = [order.index(i) for i in range(len(shape))]
        whole = torch.empty([shape[i] for i in order], device="meta").permute(back)
        kind = {"run_check": False, "shape": shape, "stride": whole.stride()}
        g = g.permute(order).contiguous().permute(back)
        return DTensor.from_local(g, mesh, placements, **kind)


part_of: Callable[[DTensor], Tensor] = _Part.apply


class Placed(NamedTuple):
    """Where a tensor lies, seen from one of its dimensions."""

    x: DTensor  # without partial placements
    dim: int  # the dimension, counted from the front
    over: int | None  # the dimension of the mesh that it is sharded over, if any
    group: Any  # of the ranks along that; None if it is not sharded

    @property
    def vocabulary(self) -> dict[str, int]:
        """The first element of this rank's part, by the rule of `torch.chunk`, and the number of
        all; nothing if it has them all."""
        if self.over is None:
            return {}
        size, mesh = self.x.shape[self.dim], self.x.device_mesh
        each = -(-size // mesh.size(self.over))
        start = min(size, each * mesh.get_local_rank(self.over))
        return {"vocab_start": start, "vocab_size": size}

    def without(self, keepdim: bool = False) -> list[Any]:
        """The placements of a tensor that lacks the dimension: replicated over what it is sharded
        over."""
        placements: list[Any] = list(self.x.placements)
        for i, each in enumerate(placements):
            if each.is_shard(self.dim):
                placements[i] = Replicate()
            elif each.is_shard() and not keepdim:
                placements[i] = Shard(each.dim - (each.dim > self.dim))
        return placements

    def local(self, t: Tensor, placements: Any) -> Tensor:
        """This rank's part of a tensor that belongs to the rows: a DTensor, or the whole on each
        rank, which is cut without a message."""
        return part_of(on_mesh_of(self.x, t).redistribute(placements=placements))

    def whole(self, local: Tensor, shape: torch.Size, placements: Any) -> DTensor:
        """A tensor of this shape of which this rank has `local`."""
        kind = {"run_check": False, "shape": shape, "stride": strides_of(shape)}
        return DTensor.from_local(local, self.x.device_mesh, placements, **kind)

    def of_rows(self, local: Tensor, keepdim: bool = False) -> DTensor:
        """A number for each row, of which this rank has `local`."""
        shape, dim = self.x.shape, self.dim
        shape = torch.Size((*shape[:dim], *(1,) * keepdim, *shape[dim + 1 :]))
        return self.whole(local, shape, self.without(keepdim))


def on_mesh_of(x: DTensor, t: Tensor) -> DTensor:
    """The tensor itself if it is a DTensor; else, as it is the whole on each rank, one on the mesh
    of x."""
    if isinstance(t, DTensor):
        return t
    mesh = x.device_mesh
    return DTensor.from_local(t, mesh, [Replicate()] * mesh.ndim, run_check=False)


def placed(x: DTensor, dim: int) -> Placed:
    """Look where x lies.

    Raises:
        IndexError: there is no such dimension.
        NotImplementedError: `dim` is sharded over several dimensions of the mesh, or x is sharded
            in another way than by `Shard`.
    """
    dim = check_dim(check_int(dim), x.dim())
    if any(each.is_partial() for each in x.placements):
        whole = [Replicate() if each.is_partial() else each for each in x.placements]
        x = x.redistribute(placements=whole)
    for each in x.placements:
        if type(each).__name__ not in ("Shard", "Replicate"):  # a compiler reads names alone
            raise NotImplementedError(f"a tensor with the placement {each} is not taken apart")
    over = [i for i, each in enumerate(x.placements) if each.is_shard(dim)]
    if len(over) > 1:
        names = x.device_mesh.mesh_dim_names or range(x.device_mesh.ndim)
        raise NotImplementedError(
            f"dimension {dim} is sharded over several dimensions of the mesh, "
            f"{[names[i] for i in over]}; redistribute it to one of them"
        )
    group = x.device_mesh.get_group(over[0]) if over else None
    return Placed(x, dim, over[0] if over else None, group)


def normalize(
    x: DTensor, function: Callable[..., Tensor], dim: Any, dtype: torch.dtype | None,
    invariant: bool, modifiers: tuple[Any, ...] | None, out: Any,
) -> DTensor:  # fmt: skip
    """Return `softmax` or `log_softmax`, placed as x is. Tensors among the modifiers are DTensors
    placed as x is, or whole on each rank."""
    check_sharded(modifiers, out)
    lies = placed(x, dim)
    options = {} if modifiers is None else Modifiers(*modifiers)._asdict()
    if isinstance(options.get("scale"), Tensor):
        raise NotImplementedError("the scale of a DTensor is a number")
    for name in ("bias", "where"):
        if isinstance(options.get(name), Tensor):
            options[name] = lies.local(options[name].expand(x.shape), lies.x.placements)
    more = {"group": lies.group, "batch_invariant": invariant}
    y = function(part_of(lies.x), lies.dim, dtype, **more, **options)
    return lies.whole(y, x.shape, lies.x.placements)


def logsumexp(
    x: DTensor, function: Callable[..., Tensor], dim: Any, keepdim: bool, invariant: bool
) -> DTensor:
    """Return `logsumexp`, replicated over the mesh dimension that `dim` was sharded over.

    Raises:
        NotImplementedError: several dimensions.
    """
    if isinstance(dim, (tuple, list)):
        if len(dim) != 1:
            raise NotImplementedError("logsumexp of a DTensor takes one dimension")
        (dim,) = dim
    lies = placed(x, dim)
    more = {"group": lies.group, "batch_invariant": invariant}
    return lies.of_rows(function(part_of(lies.x), lies.dim, keepdim, **more), keepdim)


def cross_entropy(
    x: DTensor, functions: Any, target: Tensor, weight: Tensor | None, options: LossOptions,
    in_place: bool, *_: Any,
) -> tuple[DTensor, DTensor]:  # fmt: skip
    """Return (loss, log-sum-exps) of `cross_entropy`: replicated over the mesh dimension of the
    classes; a loss that is one number, over all."""
    lies = placed(x, options.dim)
    if options.invariant and options.reduction != "none":  # one sum over all rows, as on one GPU
        kept = [each if i == lies.over else Replicate() for i, each in enumerate(lies.x.placements)]
        lies = lies._replace(x=lies.x.redistribute(placements=kept))
    x, mesh = lies.x, lies.x.device_mesh
    given = target.is_floating_point() and target.shape == x.shape
    target = lies.local(target, x.placements if given else lies.without())
    if isinstance(weight, DTensor):
        cut = [i == lies.over and each.is_shard() for i, each in enumerate(weight.placements)]
        placements = [Shard(0) if each else Replicate() for each in cut]
        weight = part_of(weight.redistribute(placements=placements))
    of_rows = [i for i, each in enumerate(x.placements) if each.is_shard() and i != lies.over]
    over_rows = tuple([mesh.get_group(i) for i in of_rows])
    where = tuple(lies.vocabulary.values()) or (None, None)
    result, lse = agreed(
        lies.group, sharded.cross_entropy, part_of(x), functions, target, weight, options,
        in_place, *where, over_rows,
    )  # fmt: skip
    if options.reduction == "none":
        return lies.of_rows(result), lies.of_rows(lse)
    return lies.whole(result, result.shape, [Replicate()] * mesh.ndim), lies.of_rows(lse)


def token_logprobs(
    x: DTensor, functions: Any, index: Tensor, entropy: bool, in_place: bool,
    temperature: float | Tensor, invariant: bool, scale: float, softcap: float | None, *_: Any,
) -> tuple[DTensor, DTensor]:  # fmt: skip
    """Return (log-probabilities, entropies), replicated over the mesh dimension of the classes."""
    check_dense(index, "index")
    lies = placed(x, -1)
    if isinstance(temperature, Tensor) and temperature.dim():
        temperature = lies.local(temperature, lies.without(keepdim=True))
    of_rows = lies.without()
    more = {"temperature": temperature, "scale": scale, "softcap": softcap, "group": lies.group}
    more |= {"inplace_backward": in_place, "batch_invariant": invariant, **lies.vocabulary}
    mine, here = part_of(lies.x), lies.local(index, of_rows)
    found, entropies = functions[0](mine, here, return_entropy=True, **more)
    return lies.whole(found, index.shape, of_rows), lies.of_rows(entropies)
