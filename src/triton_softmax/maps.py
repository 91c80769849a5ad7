"""Softmax and log-softmax with maps: scale, soft cap, bias, masks, a sink, a place for the result.

The order is: cast to `dtype`, scale, soft cap, bias, masks, sink, safe. One kernel does all of it
(`mapped`); a transform of `torch.func`, forward mode, an empty tensor, and a CPU without Triton's
interpreter get the same from `by_operators`, PyTorch's operators around our softmax.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from . import checks, mapped, registration
from .eager import direct, nobody_watches, short, transformed
from .operations.log_softmax import LOG_SOFTMAX, LOG_SOFTMAX_VJP
from .operations.softmax import SOFTMAX, SOFTMAX_VJP
from .ways import Way, wide

_ops = torch.ops.triton_softmax


def with_maps(
    log: bool, x: Tensor, dim: int, dtype: torch.dtype, way: Way, invariant: bool
) -> Tensor:
    """Softmax, or its logarithm, of x with maps; arguments are checked, `dim` counts from the
    front, and x has been cast where it was no number that kernels take."""
    if x.dim() == 0:
        inner = way._replace(
            **{
                name: getattr(way, name).reshape(1)
                for name in ("scale", "bias", "where", "sink")
                if isinstance(getattr(way, name), Tensor)
            }
        )
        return with_maps(log, x.reshape(1), 0, dtype, inner, invariant).reshape(())
    if transformed() or x.numel() == 0 or (x.device.type == "cpu" and not checks.INTERPRETED):
        return by_operators(log, x, dim, dtype, way, invariant)
    tensors = [each for each in (x, *way) if isinstance(each, Tensor)]
    if all(map(nobody_watches, tensors)):
        if not (torch.is_grad_enabled() and any(each.requires_grad for each in tensors)):
            return _forward(log, x, dim, dtype, way, invariant, False)[0]
        differentiable = _differentiable
    else:
        differentiable = _ops.mapped_softmax.default
    scale, factor = (way.scale, 1.0) if isinstance(way.scale, Tensor) else (None, way.scale)
    return differentiable(
        x, scale, way.bias, way.where, way.sink, factor, way.softcap, way.causal, way.safe, log,
        dim, dtype, invariant,
    )[0]  # fmt: skip


def into(
    out: Any, log: bool, x: Tensor, dim: int, dtype: torch.dtype, way: Way, invariant: bool
) -> Tensor:
    """The same, written to `out`, which is returned.

    Raises:
        TypeError: `out` is no tensor.
        ValueError: it has another shape or dtype, or overlaps itself.
        RuntimeError: it is elsewhere, or a gradient is wanted.
    """
    if not isinstance(out, Tensor):
        raise TypeError(f"out must be a tensor, not {type(out).__name__}")
    if out.shape != x.shape or out.dtype != dtype:
        raise ValueError(
            f"out must have shape {tuple(x.shape)} and dtype {dtype}, not {tuple(out.shape)} and "
            f"{out.dtype}"
        )
    if out.device != x.device:
        raise RuntimeError(f"out is on {out.device}, and the input on {x.device}")
    if any(stride == 0 and size > 1 for stride, size in zip(out.stride(), out.shape)):
        raise ValueError("out overlaps itself: it is expanded")
    tensors = [each for each in (x, out, *way) if isinstance(each, Tensor)]
    if torch.is_grad_enabled() and any(each.requires_grad for each in tensors):
        raise RuntimeError("out goes without gradients, and an argument needs one")
    if transformed():
        raise RuntimeError("out goes with no transform of torch.func, and not with forward mode")
    scale, factor = (way.scale, 1.0) if isinstance(way.scale, Tensor) else (None, way.scale)
    arguments = (
        scale, way.bias, way.where, way.sink, factor, way.softcap, way.causal, way.safe, log, dim,
        invariant,
    )  # fmt: skip
    if out is x:
        _ops.mapped_softmax_.default(out, *arguments)
    else:
        _ops.mapped_softmax_out.default(x, *arguments, out)
    if not torch.compiler.is_compiling():
        torch.autograd.graph.increment_version(out)
    return out


# --8<-- [start:by-operators]
def kept_places(x: Tensor, way: Way) -> Tensor | None:
    """Which places are not masked, broadcast to x; None if all."""
    kept = way.where
    if way.causal:
        n = x.shape[-1]
        below = torch.ones(n, n, dtype=torch.bool, device=x.device).tril()
        kept = below if kept is None else kept & below
    return kept


def mapped_elements(x: Tensor, way: Way) -> Tensor:
    """What softmax is taken of at places that are not masked, in float32 for 16-bit x."""
    z = wide(x)
    if isinstance(way.scale, Tensor):
        z = z * way.scale.to(z.dtype)
    elif way.scale != 1.0:
        z = z * way.scale
    if way.softcap is not None:
        z = way.softcap * torch.tanh(z / way.softcap)
    return z if way.bias is None else z + way.bias.to(z.dtype)


def by_operators(
    log: bool, x: Tensor, dim: int, dtype: torch.dtype, way: Way, invariant: bool
) -> Tensor:
    """The same by PyTorch's operators around our softmax, of which every derivative exists."""
    implementation = checks.BATCH_INVARIANT if invariant else None
    empty = -math.inf if log else 0.0
    z = mapped_elements(x.to(dtype), way)
    kept = kept_places(x, way)
    if kept is not None:
        z = torch.where(kept, z, -math.inf)
    gone = z == -math.inf
    dead = gone.all(dim, keepdim=True)
    if way.safe:
        z = torch.where(dead, 0.0, z)  # any number; what follows is thrown away
    function = registration.log_softmax if log else registration.softmax
    if way.sink is None:
        y = function(z, dim, None, implementation)
    else:
        most = torch.finfo(z.dtype).max
        sink = way.sink.to(z.dtype)
        sink = torch.where(sink == math.inf, most, sink)
        dead = dead & (sink == -math.inf)
        shape = [1 if i == dim else size for i, size in enumerate(z.shape)]
        both = torch.cat([z, sink.expand(shape)], dim)
        y = function(both, dim, None, implementation).narrow(dim, 0, z.shape[dim])
        y = torch.where((way.sink == math.inf) & (y == y), empty, y)
    if way.safe:
        y = torch.where(gone, empty, y)
    elif kept is not None:
        y = torch.where(kept, y, torch.where(dead, math.nan, empty).to(y.dtype))
    return y.to(dtype).contiguous()


# --8<-- [end:by-operators]


def _forward(
    log: bool,
    x: Tensor,
    dim: int,
    dtype: torch.dtype,
    way: Way,
    invariant: bool,
    share: bool,
    out: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """(y,), or (y, the sink's share)."""
    return mapped.run(
        LOG_SOFTMAX if log else SOFTMAX,
        (x,),
        (),
        way,
        dim,
        dtype,
        empty=-math.inf if log else 0.0,
        of_sink=share,
        invariant=invariant,
        out=out,
    )


def backward_by_operators(
    log: bool, dy: Tensor, y: Tensor, x: Tensor | None, dim: int, way: Way
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """The gradients at x and at the mapped elements, at a scale of each row, and the sum of the
    row, as a function of y, dy and x that can be differentiated again."""
    dy, y = wide(dy), wide(y)
    kept = kept_places(y, way)
    if way.safe:
        there = y != (-math.inf if log else 0.0)
        kept = there if kept is None else kept & there
    p = y.exp() if log else y
    if kept is not None:
        dy, p = torch.where(kept, dy, 0.0), torch.where(kept, p, 0.0)
    # eq: softmax-vjp, log-softmax-vjp
    total = (dy if log else dy * p).sum(dim, keepdim=True)
    dz = dy - p * total if log else p * (dy - total)
    du, of_scale = dz, None
    if way.softcap is not None:
        assert x is not None
        u = mapped_elements(x, way._replace(softcap=None, bias=None))
        slope = 1.0 - torch.tanh(u / way.softcap) ** 2
        du = torch.where(dz == 0.0, 0.0, dz * slope)
    if x is not None:
        product = torch.where(du == 0.0, 0.0, du * wide(x))
        of_scale = product.sum(dim, keepdim=True)
    scale = way.scale.to(du.dtype) if isinstance(way.scale, Tensor) else way.scale
    return du * scale, dz, of_scale, total


# The operators. Each is a pass of the kernel; the first has a derivative.

_library = torch.library.Library("triton_softmax", "FRAGMENT")
_MAPS = (
    "Tensor? scale, Tensor? bias, Tensor? where, Tensor? sink, float factor, float? softcap, "
    "bool causal, bool safe, bool log, int dim"
)
_library.define(
    f"mapped_softmax(Tensor x, {_MAPS}, ScalarType dtype, bool invariant) -> (Tensor, Tensor)"
)
_library.define(f"mapped_softmax_(Tensor(a!) x, {_MAPS}, bool invariant) -> ()")
_library.define(f"mapped_softmax_out(Tensor x, {_MAPS}, bool invariant, Tensor(a!) out) -> ()")
_library.define(
    "mapped_softmax_backward(Tensor grad_output, Tensor output, Tensor? x, Tensor? scale, "
    "Tensor? where, float factor, float? softcap, bool causal, bool safe, bool log, int dim, "
    "ScalarType input_dtype, ScalarType? of_mapped, bool of_scale, bool of_sink, bool invariant) "
    "-> (Tensor, Tensor, Tensor, Tensor)"
)


def _way(scale, bias, where, sink, factor, softcap, causal, safe) -> Way:
    return Way(factor if scale is None else scale, softcap, bias, where, causal, sink, safe)


def _softmax_kernel(x, scale, bias, where, sink, *arguments):
    factor, softcap, causal, safe, log, dim, dtype, invariant = arguments
    way = _way(scale, bias, where, sink, factor, softcap, causal, safe)
    share = sink is not None
    results = _forward(log, x, dim, dtype, way, invariant, share)
    return results if share else (*results, x.new_empty(0, dtype=wide(results[0][:0]).dtype))


def _softmax_shape(x, scale, bias, where, sink, *arguments):
    *_, dim, dtype, _ = arguments
    share = [0] if sink is None else [*x.shape[:dim], *x.shape[dim + 1 :]]
    of_rows = torch.promote_types(dtype, torch.float32)
    y = torch.empty(x.shape, dtype=dtype, device=x.device)
    return y, torch.empty(share, dtype=of_rows, device=x.device)


def _softmax_out_kernel(x, *arguments):
    scale, bias, where, sink, factor, softcap, causal, safe, log, dim, invariant, out = arguments
    way = _way(scale, bias, where, sink, factor, softcap, causal, safe)
    if x.numel() == 0:
        return
    if x.device.type == "cpu" and not checks.INTERPRETED:
        out.copy_(by_operators(log, x, dim, out.dtype, way, invariant))
        return
    memory = out.untyped_storage().data_ptr()
    tensors = [each for each in (x, *way) if isinstance(each, Tensor)]
    shared = [each for each in tensors if each.untyped_storage().data_ptr() == memory]
    same = (x.data_ptr(), x.stride(), x.dtype) == (out.data_ptr(), out.stride(), out.dtype)
    if not shared or (same and all(each is x for each in shared)):
        _forward(log, x, dim, out.dtype, way, invariant, False, out)
    else:  # a row would be read after others have been written over it
        out.copy_(_forward(log, x, dim, out.dtype, way, invariant, False)[0])


def _softmax_in_place_kernel(x, *arguments):
    _softmax_out_kernel(x, *arguments, x)


def _nothing(*_):
    return None


def _backward_kernel(dy, y, x, scale, where, *arguments):
    factor, softcap, causal, safe, log, dim, in_dtype, of_mapped, of_scale, of_sink, invariant = (
        arguments
    )
    way = _way(scale, None, where, None, factor, softcap, causal, safe)
    found = list(
        mapped.run(
            LOG_SOFTMAX_VJP if log else SOFTMAX_VJP,
            (y, dy),
            (),
            way,
            dim,
            in_dtype,
            before=False,
            after=True,
            empty=-math.inf if log else 0.0,
            x=x,
            of_mapped=of_mapped,
            of_scale=of_scale,
            of_sink=of_sink,
            invariant=invariant,
        )
    )
    dx = found.pop(0)
    nothing = dx.new_empty(0, dtype=torch.promote_types(y.dtype, torch.float32))
    of_mapped = found.pop(0) if of_mapped is not None else dx.new_empty(0)
    of_scale = found.pop(0) if of_scale else nothing
    return dx, of_mapped, of_scale, found.pop(0) if of_sink else torch.empty_like(nothing)


def _backward_shape(dy, y, x, scale, where, *arguments):
    dim, in_dtype, of_mapped, of_scale, of_sink, _ = arguments[5:]
    without = [*y.shape[:dim], *y.shape[dim + 1 :]]
    with_one = [*y.shape[:dim], 1, *y.shape[dim + 1 :]]

    def like(shape, dtype):
        return torch.empty(shape, dtype=dtype, device=y.device)

    of_rows = torch.promote_types(y.dtype, torch.float32)
    return (
        like(y.shape, in_dtype),
        like([0], in_dtype) if of_mapped is None else like(y.shape, of_mapped),
        like(with_one if of_scale else [0], of_rows),
        like(without if of_sink else [0], of_rows),
    )


# --8<-- [start:gradient]
def _setup(ctx, inputs, output):
    x, scale, bias, where, sink, *ctx.numbers, ctx.dtype, ctx.invariant = inputs
    y, share = output
    needs = ctx.needs_input_grad
    with_x = ctx.numbers[1] is not None or needs[1]  # of a soft cap, or of a scale of each row
    ctx.save_for_backward(y, x if with_x else None, scale, where, share if needs[4] else None)
    ctx.in_dtype = x.dtype
    ctx.like = [None if t is None else (t.shape, t.dtype) for t in (scale, bias, sink)]
    ctx.mark_non_differentiable(share)
    ctx.set_materialize_grads(False)


def _backward(ctx, dy, _):
    none = (None,) * (len(ctx.needs_input_grad) - 5)
    if dy is None:
        return None, None, None, None, None, *none
    y, x, scale, where, share = ctx.saved_tensors
    factor, softcap, causal, safe, log, dim = ctx.numbers
    needs = ctx.needs_input_grad
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        # Somebody wants a derivative of this as well, and gets it from operators that have one.
        way = _way(scale, None, where, None, factor, softcap, causal, safe)
        dx, dz, of_scale, total = backward_by_operators(log, dy, y, x, dim, way)
        share = None
        if needs[4]:
            share = 1.0 - (wide(y).exp() if log else wide(y)).sum(dim, keepdim=True)
    else:
        further = needs[2] and (scale is not None or factor != 1.0 or softcap is not None)
        further = further or (needs[2] and y.dtype != ctx.in_dtype)
        dx, dz, of_scale, total = _mapped_softmax_backward(
            dy, y, x, scale, where, *ctx.numbers, ctx.in_dtype, y.dtype if further else None,
            needs[1], needs[4], ctx.invariant,
        )  # fmt: skip
        dz = dz if further else dx
        if needs[4]:
            total, share = total.unsqueeze(dim), share.unsqueeze(dim)
    # eq: maps-sink-gradient
    of_sink = None if share is None or total is None else -share * total
    of_scale, of_bias, of_sink = (
        None if t is None or shape is None or not wanted else _summed(t, *shape)
        for t, shape, wanted in zip(
            (of_scale, dz, of_sink), ctx.like, (needs[1], needs[2], needs[4]), strict=True
        )
    )
    return dx.to(ctx.in_dtype) if needs[0] else None, of_scale, of_bias, None, of_sink, *none


def _summed(t: Tensor, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """A gradient at what was broadcast from `shape`."""
    return t.sum_to_size(shape).to(dtype)


# --8<-- [end:gradient]


class _Mapped(Function):
    """The same derivative for plain eager calls."""

    @staticmethod
    def forward(ctx, *inputs):
        output = _softmax_kernel(*inputs)
        _setup(ctx, inputs, output)
        return output

    @staticmethod
    def backward(ctx, *gradients):
        return _backward(ctx, *gradients)


_differentiable = direct(_Mapped)
_mapped_softmax_backward = short(_ops.mapped_softmax_backward.default, _backward_kernel)

for _op, _kernel, _shape in (
    (_ops.mapped_softmax.default, _softmax_kernel, _softmax_shape),
    (_ops.mapped_softmax_.default, _softmax_in_place_kernel, _nothing),
    (_ops.mapped_softmax_out.default, _softmax_out_kernel, _nothing),
    (_ops.mapped_softmax_backward.default, _backward_kernel, _backward_shape),
):
    _library.impl(_op, _kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(_op, _shape, lib=_library)
torch.library.register_autograd(
    "triton_softmax::mapped_softmax", _backward, setup_context=_setup, lib=_library
)
