"""The public `softmax`, `log_softmax` and `logsumexp`, with the semantics of PyTorch's functions.

A plain eager call goes straight to a plan. Any other call (a `torch.func` transform, a dispatch
mode, tracing, autocast, a tensor subclass) goes through an operator, which has a rule for each. An
input that is not a tensor but has `__torch_function__`, such as a `torch.fx` proxy, handles the
call itself.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.overrides import has_torch_function

from . import arguments, composite, distributed, modes, operators
from .arguments import PLAIN, Modifiers, cast
from .modes import is_plain_eager
from .operators import (
    ModifiedDerivative,
    Normalization,
    differentiable,
    differentiable_modified,
    run_rows,
)
from .plan import run_one
from .plan.modified import run_modified


def _normalize(
    function: Callable[..., Tensor], op: Normalization, input: Any, dim: Any, dtype: Any,
    axis: int | None, batch_invariant: bool, scale: Any, softcap: Any, bias: Any, where: Any,
    causal: bool, sink: Any, safe: bool, out: Any, group: Any,
) -> Tensor:  # fmt: skip
    """Return the result of `function`, whose operator is `op` and whose arguments are the rest."""
    if axis is not None:
        try:
            dim, axis = arguments.check_axis(dim, axis), None
        except Exception as error:
            distributed.tell(group, error)
            raise
    if batch_invariant or arguments.contexts:
        batch_invariant = True
    modifiers = None
    if not (scale is softcap is bias is where is sink is out is None) or causal or safe:
        modifiers = (scale, softcap, bias, where, causal, sink, safe)
    elif group is None and type(dim) is int and is_plain_eager(input):
        x = input if dtype is None else cast(input, dtype)
        if x.requires_grad and torch.is_grad_enabled():
            return differentiable(x, (op, True, dim, dtype, batch_invariant))
        return run_one(x, (op.operation, dim, dtype, batch_invariant))
    options = (dim, dtype, batch_invariant)
    if group is not None or (type(input) not in PLAIN and distributed.on_mesh(input)):
        given = (function, *options, modifiers, out)
        return distributed.agreed(group, distributed.normalize, input, *given)
    if modifiers is not None:
        return _normalize_modified(function, op, input, *options, modifiers, out)
    if not isinstance(input, Tensor):
        return arguments.pass_on(function, (input,), locals())
    arguments.check_dense(input, "the input")
    x = input if dtype is None else cast(input, dtype)
    return op.overload(x, arguments.check_int(dim), dtype, batch_invariant)


def softmax(
    input: Tensor,
    dim: int = -1,
    dtype: torch.dtype | None = None,
    *,
    axis: int | None = None,
    batch_invariant: bool = False,
    scale: float | Tensor | None = None,
    softcap: float | None = None,
    where: Tensor | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
    safe: bool = False,
    sink: float | Tensor | None = None,
    out: Tensor | None = None,
    group: ProcessGroup | None = None,
) -> Tensor:
    """Return exp(x) / sum(exp(x)) of the input x along `dim`, as `torch.softmax`.

    A CPU tensor uses PyTorch's own operators, unless Triton was imported with TRITON_INTERPRET=1:
    then its interpreter runs the kernel. Differentiable any number of times, in reverse and forward
    mode (with a group once, in reverse). Saved are the result, and what score modifiers need.

    Args:
        input: A tensor of any shape, 0-d and empty included, and any strides; float16, bfloat16,
            float32 or float64. Another dtype needs `dtype=`.
        dim: The dimension to normalize over; may be negative.
        dtype: The dtype to cast the input to first, one of the four.
        axis: An alias of `dim`.
        batch_invariant: Give a row the same bits in every batch, and however a group shards it,
            forward and backward; see the context manager of that name.
        group: The input is this rank's shard of a tensor sharded along `dim` over this group, in
            the order of ranks; shards may differ in size or be empty. A `DTensor` needs no group.
        scale: Multiplies x, after the cast: a number, a 0-d tensor, or one value per row, a tensor
            of the input's shape with size 1 along `dim`. A temperature is 1 / scale.
        softcap: A positive number c: x becomes c·tanh(x / c) after the scale.
        where: A bool tensor. Where it is False the result is 0 (-inf for log-softmax), whatever x
            or the incoming gradient holds. A fully masked row is NaN, as in PyTorch, unless `safe`.
        bias: A floating-point tensor, added after the soft cap.
        causal: Mask the elements above the diagonal of the last two dimensions, of equal size, with
            `dim` the last. They are not read.
        safe: A row that is fully masked, or only -inf, gives 0 (-inf for log-softmax) and no
            gradient, nor does what arrives at a -inf. An unmasked NaN or +inf still gives NaN.
        sink: An extra element of each row that takes its share but is not in the result: a number,
            or a floating-point tensor with size 1 along `dim`; for 4-d scores also one value per
            head (dimension 1). +inf takes everything, -inf nothing.
        out: The tensor to write the result to, of its shape and dtype, with any strides; or the
            input itself. Not with gradients.

    The score modifiers `scale`, `softcap`, `bias`, `where` and `causal`, `sink`, `safe` apply in
    this order. Tensors broadcast to the input without copies, and floating-point ones get a
    gradient.

    Returns:
        A contiguous tensor with the shape of the input, and its dtype or `dtype`. A row that holds
        a NaN or +inf, or only -inf, is NaN.

    Raises:
        TypeError: The input is not a dense tensor, its dtype (or `dtype`) is not one of the four,
            `dim` is no integer or meets `axis`, `where` is not bool, another tensor not floating.
        IndexError: `dim` is out of range.
        ValueError: `scale` is not finite, `softcap` not positive; a tensor does not broadcast;
            `causal` or `out` has another shape, or `out` another dtype, or it overlaps itself; a
            group meets a `DTensor` or different calls.
        RuntimeError: Triton does not support the device; tensors are on two devices; `out` is
            given although an argument requires a gradient.
        NotImplementedError: Sharded rows meet `causal`, `sink`, `out`, or a gradient of a scale or
            of a bias that is the same along the row; a `DTensor` meets a tensor `scale`.

    Examples:
        >>> import torch
        >>> from triton_softmax import softmax
        >>> x = torch.tensor([[1.0, 2.0, 3.0], [1.0, 3.0, 5.0]], dtype=torch.float64)
        >>> softmax(x)
        tensor([[0.0900, 0.2447, 0.6652],
                [0.0159, 0.1173, 0.8668]], dtype=torch.float64)
        >>> softmax(torch.tensor([1, 2]), dtype=torch.float32)
        tensor([0.2689, 0.7311])
        >>> softmax(x, scale=0.5, where=torch.tensor([True, True, False]), sink=0.0)
        tensor([[0.3072, 0.5065, 0.0000],
                [0.2312, 0.6285, 0.0000]], dtype=torch.float64)
    """
    return _normalize(
        softmax, operators.softmax, input, dim, dtype, axis, batch_invariant, scale, softcap,
        bias, where, causal, sink, safe, out, group,
    )  # fmt: skip


def log_softmax(
    input: Tensor,
    dim: int = -1,
    dtype: torch.dtype | None = None,
    *,
    axis: int | None = None,
    batch_invariant: bool = False,
    scale: float | Tensor | None = None,
    softcap: float | None = None,
    where: Tensor | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
    safe: bool = False,
    sink: float | Tensor | None = None,
    out: Tensor | None = None,
    group: ProcessGroup | None = None,
) -> Tensor:
    """Return x - log(sum(exp(x))) of the input x along `dim`, as `torch.log_softmax`.

    Arguments, shapes, dtypes and errors are those of `softmax`. The result comes from x, not from
    the logarithm of softmax, which would be -inf where softmax rounds to zero.

    Examples:
        >>> import torch
        >>> from triton_softmax import log_softmax
        >>> log_softmax(torch.tensor([0.0, -1000.0]))
        tensor([    0., -1000.])
    """
    return _normalize(
        log_softmax, operators.log_softmax, input, dim, dtype, axis, batch_invariant, scale,
        softcap, bias, where, causal, sink, safe, out, group,
    )  # fmt: skip


def logsumexp(
    input: Tensor,
    dim: int | Sequence[int] = -1,
    keepdim: bool = False,
    *,
    axis: int | Sequence[int] | None = None,
    batch_invariant: bool = False,
    group: ProcessGroup | None = None,
) -> Tensor:
    """Return log(sum(exp(x))) of the input x along `dim`, as `torch.logsumexp`.

    Differentiable any number of times. The backward pass saves only x and computes softmax(x) from
    it, so it loses no digits if the result is large.

    Args:
        input: A tensor of any shape and strides; float16, bfloat16, float32 or float64. Integers
            and booleans are cast to the default dtype.
        dim: The dimension to reduce, or several; for a 0-d tensor also none.
        keepdim: Whether to keep the reduced dimensions, with size 1.
        axis: An alias of `dim`.
        batch_invariant: As for `softmax`.
        group: As for `softmax`; every rank returns the result over all shards.

    Returns:
        A contiguous tensor with the dtype of the input and its shape without `dim`, or with size 1
        there. An empty row, or a row of only -inf, gives -inf.

    Raises:
        TypeError: The input is not a tensor, its dtype is complex or otherwise unsupported, or
            `dim` is neither an integer nor a tuple or list of integers.
        IndexError: `dim` is out of range.
        ValueError: `dim` names a dimension twice, or is an empty tuple; or as for `softmax`.
        NotImplementedError: Several dimensions of a `DTensor`.
        RuntimeError: Triton does not support the device.

    Examples:
        >>> import torch
        >>> from triton_softmax import logsumexp
        >>> x = torch.tensor([[1.0, 2.0, 3.0], [1.0, 3.0, 5.0]], dtype=torch.float64)
        >>> logsumexp(x)
        tensor([3.4076, 5.1429], dtype=torch.float64)
        >>> logsumexp(x, dim=(0, 1), keepdim=True)
        tensor([[5.3053]], dtype=torch.float64)
    """
    if axis is not None:
        dim = arguments.check_axis(dim, axis)
    x, invariant = input, batch_invariant or bool(arguments.contexts)
    plain = type(dim) is int and group is None and is_plain_eager(x)
    if not plain:
        placed = type(x) not in PLAIN and distributed.on_mesh(x)
        several = isinstance(dim, (tuple, list)) and isinstance(x, Tensor)
        if several and (group is not None or not placed):
            return _logsumexp_of_dims(x, dim, keepdim, invariant, group)
        if group is not None or placed:
            given = logsumexp, dim, keepdim, invariant
            return distributed.agreed(group, distributed.logsumexp, x, *given)
        if not isinstance(x, Tensor):
            given = {"input": x, "dim": dim, "keepdim": keepdim, "batch_invariant": invariant}
            return arguments.pass_on(logsumexp, (x,), given)
        arguments.check_dense(x, "the input")
        dim = arguments.check_int(dim)
    if not (x.is_floating_point() or x.is_complex()):  # as PyTorch's function does
        arguments.check_dense(x, "the input")
        x = x.to(torch.get_default_dtype())
    if not plain:
        lse = operators.logsumexp.overload(x, dim, None, invariant)
    elif x.requires_grad and torch.is_grad_enabled():
        lse = differentiable(x, (operators.logsumexp, True, dim, None, invariant))
    else:
        lse = run_one(x, (operators.LOGSUMEXP, dim, None, invariant))  # pyright: ignore
    return lse.unsqueeze(dim) if keepdim and x.dim() else lse  # pyright: ignore


def _logsumexp_of_dims(x: Tensor, dim: Any, keepdim: bool, invariant: bool, group: Any) -> Tensor:
    """Reduce several dimensions as one: move them to the end and flatten them."""
    arguments.check_dense(x, "the input")
    dims = [arguments.check_dim(arguments.check_int(each), x.dim()) for each in dim]
    if len(set(dims)) < len(dims):
        raise ValueError(f"dim names a dimension twice: {tuple(dims)}")
    if x.dim() == 0:
        return logsumexp(x, 0, batch_invariant=invariant, group=group)
    if not dims:
        raise ValueError("dim is an empty tuple; name at least one dimension")
    if len(dims) == 1:  # with the bits that it has as an integer
        return logsumexp(x, dims[0], keepdim, batch_invariant=invariant, group=group)
    rows = x.movedim(dims, list(range(-len(dims), 0))).flatten(-len(dims))
    lse = logsumexp(rows, -1, batch_invariant=invariant, group=group)
    if keepdim:
        return lse.reshape([1 if i in dims else size for i, size in enumerate(x.shape)])
    return lse


# Score modifiers. One kernel applies them all (`kernels.modified_rows`). Transforms of
# `torch.func`, forward mode, empty tensors, and CPU tensors outside the interpreter use PyTorch's
# operators.


def _normalize_modified(
    function: Callable[..., Tensor],
    op: Normalization,
    x: Any,
    dim: Any,
    dtype: Any,
    invariant: bool,
    modifiers: tuple[Any, ...],
    out: Any,
) -> Tensor:
    """Return softmax or log-softmax of a tensor on one device, with modifiers as they were
    given."""
    scale, softcap, bias, where, causal, sink, safe = modifiers
    bare = invariant and scale is softcap is bias is where is sink is None and not (causal or safe)
    tensors = [x]
    for each in (bias, where, out):
        if each is not None:
            tensors.append(each)
    for each in (scale, softcap, sink):
        if isinstance(each, Tensor):
            tensors.append(each)
    plain = type(dim) is int and isinstance(x, Tensor) and is_plain_eager(*tensors)
    if not plain:
        watched = has_torch_function(tensors) and not torch.compiler.is_compiling()
        if watched or not isinstance(x, Tensor):
            named = {"input": x, "dim": dim, "dtype": dtype, "batch_invariant": invariant}
            named |= {"out": out, **Modifiers(*modifiers)._asdict()}
            return arguments.pass_on(function, tensors if watched else (x,), named)
        arguments.check_dense(x, "the input")
    if dtype is not None:
        x = cast(x, dtype)
    elif not plain and x.device.type != "cpu" and arguments.autocasts(x):
        dtype = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else None
    dtype = dtype or x.dtype
    given = Modifiers(1.0, None, bias, where, bool(causal), None, bool(safe))
    if not (scale is softcap is sink is None):
        given = arguments.as_modifiers(x, dim, modifiers)
    ndim = x.dim()
    check: Any = partial(arguments.check_modified, x, dim, dtype, given)
    if not plain or out is not None or not ndim:
        dim, check = check(), None
    elif -ndim <= dim < 0:
        dim += ndim
    if out is not None:
        arguments.check_out(out, x, dtype, tensors)
        if modes.transformed():
            raise RuntimeError("out does not support transforms of torch.func or forward mode")
    if not ndim:  # a row of one element
        x = x.reshape(1)
        rows: Any = [each.reshape(1) if isinstance(each, Tensor) else each for each in given]
        given = Modifiers(*rows)
    scale, bias, sink = given.scale, given.bias, given.sink
    if torch.compiler.is_compiling() and type(scale) is float and scale != 1.0:
        # A compiler would make a number of an operator a constant.
        scale = x.new_ones((), dtype=arguments.accumulator(dtype)) * scale
        given = given._replace(scale=scale)
    log = op is operators.log_softmax
    empty = not x.numel() if plain else arguments.is_empty(x)
    composed = empty or (not arguments.INTERPRETED and x.device.type == "cpu")
    if not plain and (composed or modes.by_composite()):
        y = composite.modified_softmax(log, x, dim, dtype, given)
    elif (
        torch.is_grad_enabled()
        and not composed
        and (
            x.requires_grad
            or (isinstance(scale, Tensor) and scale.requires_grad)
            or (bias is not None and bias.requires_grad)
            or (sink is not None and sink.requires_grad)
        )
    ):
        apply = differentiable_modified if plain else ModifiedDerivative.apply
        call = (plain, given, log, dim, dtype, invariant, None, check)
        (y,) = apply(x, scale, bias, sink, call)
    elif bare or not plain:  # `out` alone changes no bits
        given = None if bare else given
        y = run_rows(plain, op.operation, (x,), (), dim, dtype, given, invariant)[0]
    else:
        to = out if out is not None and ndim and _may_be_written(out, x, given) else None
        options = {"invariant": invariant, "check": check, "out": to}
        y = run_modified(op.operation, (x,), (), given, dim, dtype, **options)[0]
        if to is not None:
            torch.autograd.graph.increment_version(to)
            return to
    y = y if ndim else y.reshape(())
    return y if out is None else out.copy_(y)


def _may_be_written(out: Tensor, x: Tensor, modifiers: Modifiers) -> bool:
    """Return whether a kernel may write to `out`: it reads nothing there but what it overwrites."""
    memory = out.untyped_storage().data_ptr()
    tensors = [each for each in (x, *modifiers) if isinstance(each, Tensor)]
    shared = [each for each in tensors if each.untyped_storage().data_ptr() == memory]
    same = (x.data_ptr(), x.stride(), x.dtype) == (out.data_ptr(), out.stride(), out.dtype)
    return not shared or (same and all(each is x for each in shared))
