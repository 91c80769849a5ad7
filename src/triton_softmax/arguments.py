"""Check arguments, define the option types, and provide the batch-invariant context.

The checks look at types, shapes, dtypes and devices, and at values only in CPU memory. All checks
of arguments are here.
"""

import contextlib
import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.nn import Parameter
from torch.nn import functional as torch_functional
from torch.overrides import handle_torch_function, has_torch_function

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""The dtypes that the kernels read and write."""

CLASS_DTYPES = (torch.int64, torch.int32)
"""The dtypes of class indices."""

PLAIN = (Tensor, Parameter)
"""The tensor types that live on one device."""

INTERPRETED = not isinstance(tl.sum, triton.JITFunction)
"""Whether Triton was imported with TRITON_INTERPRET=1, so that kernels run on CPU tensors."""


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of sums over a row: float32, or float64 for float64."""
    return torch.promote_types(dtype, torch.float32)


# Options.


class Modifiers(NamedTuple):
    """The score modifiers of a softmax, in the order in which they apply.

    Tensors broadcast to the input. `scale` and `sink` have one number per row (size 1 along the
    softmax dimension), or are 0-d.
    """

    scale: float | Tensor = 1.0
    softcap: float | None = None
    bias: Tensor | None = None
    where: Tensor | None = None
    causal: bool = False
    sink: Tensor | None = None
    safe: bool = False


class LossOptions(NamedTuple):
    """The checked non-tensor arguments of a cross-entropy."""

    dim: int
    """The dimension of the classes."""
    ignore_index: int
    reduction: str
    label_smoothing: float
    z_loss: float
    dtype: torch.dtype
    """The dtype of the loss."""
    scale: float = 1.0
    softcap: float | None = None
    invariant: bool = False
    part: "Part | None" = None


class Part(NamedTuple):
    """What is here of rows whose other columns lie on other ranks."""

    start: int  # the first column here
    total: int  # columns on all ranks
    widest: int  # of the largest part; 0 if ranks do not know it of each other
    ranks: int
    group: Any
    exchange: Any  # (message, group) → those of all ranks, a line for each, and what to wait for

    def columns(self, index: Tensor, n_cols: int) -> Tensor:
        """Return the columns of classes here, of n_cols; −1 for those of other ranks."""
        column = index - self.start
        return torch.where((column >= 0) & (column < n_cols), column, -1)

    def picked(self, x: Tensor, columns: Tensor) -> Tensor:
        """Return the element of each row in a column; 0 if it is not here."""
        here = (columns >= 0) & (columns < x.shape[1])
        if not x.shape[1]:
            return x.new_zeros(columns.shape)
        found = x.gather(1, columns.masked_fill(~here, 0).unsqueeze(1)).squeeze(1)
        return found.masked_fill(~here, 0.0)


contexts = 0
"""The number of open `batch_invariant` contexts."""


class batch_invariant(contextlib.ContextDecorator):  # noqa: N801
    """Make every call of this library `batch_invariant`, in all threads, within this context or a
    function decorated with it.

    A batch-invariant call gives a row the same bits in every batch, at every position, and however
    a group shards it. By default these determine the order of a row's sums, and so how they round.
    A backward pass follows its forward call, wherever it runs.

    Examples:
        >>> import torch
        >>> from triton_softmax import batch_invariant, softmax
        >>> x = torch.randn(5, 1001)
        >>> with batch_invariant():
        ...     alone, together = softmax(x[3:4]), softmax(x)
        >>> torch.equal(alone[0], together[3])
        True
    """

    def __enter__(self) -> "batch_invariant":
        global contexts
        contexts += 1
        return self

    def __exit__(self, *exception: object) -> None:
        global contexts
        contexts -= 1


def row_length(x: Tensor, dim: int, part: Part | None) -> int:
    """Return the length of a whole row; other ranks may hold the rest."""
    return x.shape[dim] if part is None else part.total


# Any call.


def pass_on(function: Any, tensors: Sequence[Any], given: dict[str, Any]) -> Any:
    """Hand a call to the `__torch_function__` of one of its tensors, or of a mode; a TypeError if
    there is none. `given` has all arguments by name, and possibly other names: `locals()` will
    do."""
    if not has_torch_function(tensors):
        raise TypeError(f"the input must be a torch.Tensor, not {type(tensors[0]).__name__}")
    code, defaults = function.__code__, function.__kwdefaults__
    positional = [given[name] for name in code.co_varnames[: code.co_argcount]]
    given = {**defaults, **given}
    keywords = {name: given[name] for name in defaults if given[name] is not defaults[name]}
    return handle_torch_function(function, tensors, *positional, **keywords)


def check_int(value: Any, name: str = "dim") -> int:
    """Return an argument as an int, or raise a TypeError. Under tracing, a symbolic int becomes its
    value, since the shape of a result depends on it."""
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, not {type(value).__name__}") from None


def check_axis(dim: Any, axis: Any) -> Any:
    """Return `axis`, NumPy's name for `dim`; raise a TypeError if both are given."""
    if dim != -1:
        raise TypeError("dim and axis are two names of one argument; give one of them")
    return axis


def check_dim(dim: int, ndim: int) -> int:
    """Return `dim` counted from the front; a 0-d tensor counts as 1-d, as in PyTorch.

    Raises:
        IndexError: there is no such dimension.

    >>> check_dim(-1, 3), check_dim(0, 0)
    (2, 0)
    """
    n = max(ndim, 1)
    if not -n <= dim < n:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {dim})"
        )
    return dim % n


def check_input(x: Any) -> None:
    """Raise a TypeError unless x is a dense tensor of one of `DTYPES`."""
    check_dense(x, "the input")
    check_dtype(x.dtype, "the input")


def check_dtype(dtype: torch.dtype, what: str) -> None:
    """Raise a TypeError that names `what` unless its dtype is one of `DTYPES`."""
    if dtype not in DTYPES:
        names = ", ".join(str(known).removeprefix("torch.") for known in DTYPES)
        raise TypeError(
            f"{what} has dtype {str(dtype).removeprefix('torch.')}; expected one of {names}"
        )


def cast(x: Tensor, dtype: Any) -> Tensor:
    """Return x, cast to `dtype` as in PyTorch if kernels cannot read it: integers, bools, complex
    numbers and 8-bit floats. Raise a TypeError if `dtype` is not one of `DTYPES`."""
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"dtype must be a torch.dtype or None, not {type(dtype).__name__}")
    check_dtype(dtype, "the argument dtype")
    return x if x.dtype in DTYPES else x.to(dtype)


def check_device(device: torch.device) -> None:
    """Raise a RuntimeError if the device has neither kernels nor composites in their place."""
    if device.type not in ("cuda", "xpu", "cpu"):
        raise RuntimeError(
            f"Triton has no kernels for device {str(device)!r}; expected cuda, xpu or cpu"
        )


def is_empty(x: Tensor) -> bool:
    """Return whether a tensor has no elements; False if a compiler cannot know, as of the rows that
    a mask keeps. Operators take such a tensor even if it turns out to have none."""
    return guess(x.numel() == 0, False) if torch.compiler.is_compiling() else not x.numel()


def guess(condition: Any, otherwise: bool) -> bool:
    """Return a condition on sizes that a compiler traces; `otherwise` if data decide the sizes."""
    from torch.fx.experimental import symbolic_shapes  # which takes longer to import than PyTorch

    known = symbolic_shapes.guard_or_true if otherwise else symbolic_shapes.guard_or_false
    return known(condition)


def by_kernels(x: Tensor) -> bool:
    """Return whether kernels compute a call on x, and not PyTorch's operators."""
    return (x.device.type != "cpu" or INTERPRETED) and not is_empty(x)


def check_arguments(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> int:
    """Check the arguments common to all functions, and return `dim` counted from the front."""
    check_input(x)
    if dtype is not None:
        check_dtype(dtype, "the argument dtype")
    return check_dim(dim, x.dim())


def check_dense(t: Any, what: str) -> None:
    """Raise a TypeError that names `what` unless t is a dense (strided) tensor."""
    if not isinstance(t, Tensor):
        raise TypeError(f"{what} must be a tensor, not {type(t).__name__}")
    if t.is_nested or t.layout != torch.strided or t.is_quantized:
        kind = "nested" if t.is_nested else "quantized" if t.is_quantized else t.layout
        raise TypeError(f"{what} must be a dense tensor, not a {kind} one")


def check_operands(x: Tensor, **others: Any) -> None:
    """Check that the others are dense tensors on the device of the input x, or None: a kernel takes
    addresses, and cannot tell invalid ones or those of another device."""
    for name, other in others.items():
        if other is None:
            continue
        check_dense(other, name)
        if other.device != x.device:
            raise RuntimeError(f"{name} is on {other.device}, and the input on {x.device}")


def check_alike(x: Tensor, *others: Tensor, shape: torch.Size) -> None:
    """Check that tensors have the shape `shape` and are on the device of the input x."""
    for other in others:
        if other.shape != shape:
            raise ValueError(f"expected a tensor of shape {tuple(shape)}, not {tuple(other.shape)}")
        check_operands(x, **{"another input": other})


def check_match(fits: bool, name: str, t: Tensor, other: str, x: Tensor) -> None:
    """Raise a ValueError that names the shapes of two tensors unless they fit."""
    if not fits:
        raise ValueError(
            f"{name} of shape {tuple(t.shape)} does not match {other} of shape {tuple(x.shape)}"
        )


# Score modifiers.


def check_number(value: Any, name: str, positive: bool = False, finite: bool = True) -> float:
    """Return a number (of Python or NumPy, or in a 0-d tensor without a gradient) as a float, if it
    is finite or need not be, and positive if it has to be."""
    if not isinstance(value, (int, float)) and getattr(value, "ndim", None) == 0:
        value = value if getattr(value, "requires_grad", False) else value.item()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        or_none = " or None" if name == "softcap" else ""
        raise TypeError(f"{name} must be a number{or_none}, not {type(value).__name__}")
    if finite and not (0 if positive else -math.inf) < value < math.inf:
        raise ValueError(f"{name} must be {'positive and ' * positive}finite, not {value}")
    return float(value)


def check_modifier(t: Any, name: str, x: Tensor, shape: torch.Size) -> None:
    """Check that a modifier, if given, broadcasts to `shape` and has a fitting dtype."""
    if t is None:
        return
    check_operands(x, **{name: t})
    if not (t.dtype == torch.bool if name == "where" else t.is_floating_point()):
        wanted = "bool" if name == "where" else "floating-point numbers"
        raise TypeError(f"{name} must hold {wanted}, not {t.dtype}")
    sizes = zip(reversed(t.shape), reversed(shape))
    if t.dim() > len(shape) or any(a not in (1, b) for a, b in sizes):
        raise ValueError(
            f"{name} of shape {tuple(t.shape)} does not broadcast to {tuple(shape)}, for an input "
            f"of shape {tuple(x.shape)}"
        )


def as_modifiers(x: Tensor, dim: Any, modifiers: tuple[Any, ...]) -> Modifiers:
    """Return score modifiers, as they were given, with numbers as floats or tensors, and a sink per
    head as one per row. Numbers are checked here, at every call."""
    scale, softcap, bias, where, causal, sink, safe = modifiers
    if not isinstance(scale, Tensor):
        scale = 1.0 if scale is None else check_number(scale, "scale")
    if softcap is not None:
        softcap = check_number(softcap, "softcap", positive=True)
    if sink is not None and not isinstance(sink, Tensor):
        sink = check_number(sink, "sink", finite=False)
        sink = torch.full((), sink, dtype=accumulator(x.dtype), device=x.device)
    elif sink is not None and x.dim() == 4 and dim in (3, -1):
        check_dense(sink, "sink")  # a nested tensor has no shape
        if sink.shape == (x.shape[1],):
            sink = sink.view(1, -1, 1, 1)
    return Modifiers(scale, softcap, bias, where, bool(causal), sink, bool(safe))


def check_modified(x: Tensor, dim: Any, dtype: torch.dtype | None, modifiers: Modifiers) -> int:
    """Check a call with score modifiers but for their numbers; return `dim` from the front."""
    dim = check_arguments(x, check_int(dim), dtype)
    if not x.is_meta:
        check_device(x.device)
    of_rows = torch.Size([1 if i == dim else size for i, size in enumerate(x.shape)])
    scale, _, bias, where, causal, sink, _ = modifiers
    if isinstance(scale, Tensor):
        check_modifier(scale, "scale", x, of_rows)
        if scale.dim() and scale.shape != of_rows:
            raise ValueError(
                f"scale must be a number, or have no dimension or the shape {tuple(of_rows)}, not "
                f"{tuple(scale.shape)}"
            )
    check_modifier(bias, "bias", x, x.shape)
    check_modifier(where, "where", x, x.shape)
    if causal and (x.dim() < 2 or dim != x.dim() - 1 or x.shape[-1] != x.shape[-2]):
        raise ValueError(
            "causal takes dim=-1 and as many queries as keys in the last two dimensions, not "
            f"dim={dim} of shape {tuple(x.shape)}"
        )
    check_modifier(sink, "sink", x, of_rows)
    return dim


def check_out(out: Any, x: Tensor, dtype: torch.dtype, tensors: Sequence[Tensor]) -> None:
    """Check the `out` tensor of a result in the shape of x, from these tensors."""
    check_operands(x, out=out)
    if out.shape != x.shape or out.dtype != dtype:
        raise ValueError(
            f"out must have shape {tuple(x.shape)} and dtype {dtype}, not {tuple(out.shape)} and "
            f"{out.dtype}"
        )
    reach = 0  # the last offset along dimensions of smaller strides
    for stride, size in sorted(zip(out.stride(), out.shape)):
        if size > 1 and stride <= reach:
            raise ValueError(f"out overlaps itself: its strides are {out.stride()}")
        reach += stride * (size - 1)
    if torch.is_grad_enabled() and any(each.requires_grad for each in tensors):
        raise RuntimeError("out goes without gradients, and an argument requires one")


# Losses and log-probabilities.


def check_loss_numbers(
    label_smoothing: Any = 0.0, z_loss: Any = 0.0, softcap: Any = None, scale: Any = 1.0
) -> tuple[float, float, float | None, float]:
    """Return the numbers of a loss or of log-probabilities as floats."""
    smoothing = check_number(label_smoothing, "label_smoothing")
    if not 0.0 <= smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    if softcap is not None:
        softcap = check_number(softcap, "softcap", positive=True)
    return smoothing, check_number(z_loss, "z_loss"), softcap, check_number(scale, "scale")


def check_loss(x: Tensor, target: Tensor, weight: Tensor | None, options: LossOptions) -> None:
    """Check the arguments of a cross-entropy, except for the values of the targets; the options are
    those of the call as they were given. Where PyTorch raises an error, it is PyTorch's."""
    dim, ignore_index, reduction, label_smoothing, z_loss, _, scale, softcap, _, part = options
    check_input(x)
    check_operands(x, target=target, weight=weight)
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    check_loss_numbers(label_smoothing, z_loss, softcap, scale)
    probabilities = target.shape == x.shape and x.dim() > 0
    if probabilities and z_loss and target.is_floating_point():
        raise ValueError("z_loss goes with class targets, not with probabilities")
    fits = probabilities and target.dtype in DTYPES and ignore_index < 0
    if not probabilities and x.dim() > 0:
        fits = target.shape == x.shape[:dim] + x.shape[dim + 1 :]
        fits = fits and target.dtype in CLASS_DTYPES
    fits = fits and (weight is None or weight.shape == (row_length(x, dim, part),))
    if not fits:
        torch_functional.cross_entropy(
            x.detach(),
            target.long() if target.dtype == torch.int32 else target,
            None if weight is None else weight.to(x.dtype),
            ignore_index=ignore_index,
            reduction=reduction,
            label_smoothing=label_smoothing,
        )
        raise ValueError(
            f"target of shape {tuple(target.shape)} and dtype {target.dtype} does not match "
            f"logits of shape {tuple(x.shape)}"
        )
    if weight is None:
        return
    classes = not target.is_floating_point()
    wider = autocasts(x) or weight.dtype == options.dtype
    same = weight.dtype == x.dtype or not classes or (wider and x.dtype != torch.float64)
    if not same or weight.dtype not in DTYPES:
        raise RuntimeError(
            f"weight must have the dtype of the logits, {x.dtype}, not {weight.dtype}"
        )
    if classes and weight.requires_grad and torch.is_grad_enabled():
        raise RuntimeError("weight requires a gradient, which class targets do not give it")


def autocasts(x: Tensor) -> bool:
    """Return whether autocast is on for the device of x."""
    device = x.device.type
    return device in ("cpu", "cuda", "xpu") and torch.is_autocast_enabled(device)


def check_classes(classes: Tensor, n_classes: int, ignore_index: int | None = None) -> None:
    """Raise an IndexError in PyTorch's words if a class is out of range; with an `ignore_index`, in
    those for targets. This reads the values; for classes on a GPU a kernel asserts instead."""
    wrong = (classes < 0) | (classes >= n_classes)
    if ignore_index is not None:
        wrong &= classes != ignore_index
    if wrong.any():
        first = classes[wrong][0].item()
        raise IndexError(
            f"index {first} is out of bounds"
            if ignore_index is None
            else f"Target {first} is out of bounds."
        )


def check_linear(
    operands: tuple[Any, ...], chunk_size: int | None, accum_dtype: torch.dtype | None
) -> torch.dtype:
    """Check the operands of a `linear_cross_entropy`, tensors or None in this order; return the
    dtype in which its gradients accumulate."""
    input, linear_weight, target, linear_bias, _ = operands
    names = "input", "linear_weight", "target", "linear_bias", "weight"
    named = dict(zip(names, operands, strict=True))
    for name, each in named.items():
        if type(each).__name__ == "DTensor":
            raise NotImplementedError(
                f"{name} is a DTensor, and linear_cross_entropy takes whole tensors: pass "
                f"{name}.full_tensor(), or this rank's rows by {name}.to_local(); for a vocabulary "
                "that is sharded, pass the logits to cross_entropy as a DTensor"
            )
    check_input(input)
    check_dense(linear_weight, "linear_weight")
    check_dense(target, "target")
    check_operands(input, **named)
    for name in ("linear_weight", "linear_bias"):
        each = named[name]
        if each is not None and each.dtype != input.dtype:
            raise RuntimeError(f"{name} has dtype {each.dtype}, and the input {input.dtype}")
    fits = input.shape[-1:] == linear_weight.shape[1:] and linear_weight.dim() == 2
    check_match(fits, "linear_weight", linear_weight, "an input", input)
    if linear_bias is not None:
        fits = linear_bias.shape in ((), (1,), linear_weight.shape[:1])
        check_match(fits, "linear_bias", linear_bias, "a linear_weight", linear_weight)
    check_match(target.shape == input.shape[:-1], "target", target, "an input", input)
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"chunk_size must be positive, not {chunk_size}")
    offered = (linear_weight.dtype, accumulator(linear_weight.dtype))
    if accum_dtype is not None and accum_dtype not in offered:
        raise ValueError(f"accum_dtype must be one of {offered}, not {accum_dtype}")
    return offered[1] if accum_dtype is None else accum_dtype


def check_index(logits: Tensor, index: Tensor | None, row_mask: Tensor | None = None) -> None:
    """Check logits, tokens, except for their values, and a mask of rows."""
    check_input(logits)
    check_operands(logits, index=index, row_mask=row_mask)
    if logits.dim() == 0:
        raise ValueError("logits need a dimension of classes")
    if index is not None:
        if index.dtype not in CLASS_DTYPES:
            raise TypeError(f"index must hold int64 or int32, not {index.dtype}")
        fits = logits.shape[:-1] in (index.shape, index.shape[:-1])
        check_match(fits, "index", index, "logits", logits)
    if row_mask is not None:
        if row_mask.dtype not in (torch.bool, *CLASS_DTYPES):
            raise TypeError(f"row_mask must hold bool, int32 or int64, not {row_mask.dtype}")
        check_match(row_mask.shape == logits.shape[:-1], "row_mask", row_mask, "logits", logits)


def check_temperature(temperature: Any, logits: Tensor) -> Any:
    """Return a temperature: a float, or a floating-point tensor with one number in all or per
    row."""
    if not isinstance(temperature, Tensor):
        return check_number(temperature, "temperature", positive=True)
    check_operands(logits, temperature=temperature)
    if temperature.dtype not in DTYPES:
        raise TypeError(f"temperature must hold floating-point numbers, not {temperature.dtype}")
    shape = (*logits.shape[:-1], 1)
    if temperature.shape not in ((), shape):
        raise ValueError(f"temperature must have the shape {shape}, not {tuple(temperature.shape)}")
    return temperature


# Rows sharded over several devices.


def check_group(group: object) -> None:
    """Raise a TypeError unless `group` is a process group that includes this rank."""
    if not isinstance(group, ProcessGroup):
        raise TypeError(
            f"group must be a torch.distributed.ProcessGroup that this rank is in, not "
            f"{type(group).__name__}"
        )


def check_shard(x: Any) -> None:
    """Raise a TypeError or a ValueError unless the input x of a call with a group is a tensor that
    may be a shard of the rows."""
    if not isinstance(x, Tensor):
        raise TypeError(f"the input must be a torch.Tensor, not {type(x).__name__}")
    if type(x).__name__ == "DTensor":
        raise ValueError("a DTensor knows the group of each of its dimensions: leave out group=")


def check_sharded(modifiers: tuple[Any, ...] | None, out: Any) -> None:
    """Raise a NotImplementedError for arguments that sharded rows do not support."""
    given = Modifiers() if modifiers is None else Modifiers(*modifiers)
    if given.causal or given.sink is not None or out is not None:
        raise NotImplementedError("causal, sink and out do not support sharded rows")


def check_modifiers_of_part(x: Tensor, dim: int, modifiers: tuple[Any, ...]) -> Modifiers:
    """Return `as_modifiers` of a shard of the rows, after `check_modified`. Also raise a
    NotImplementedError if a scale or bias that is broadcast along rows requires a gradient."""
    checked = as_modifiers(x, dim, modifiers)
    check_modified(x, dim, None, checked)
    for t in (checked.scale, checked.bias):
        if isinstance(t, Tensor) and t.requires_grad and t.shape[dim - x.dim() :][:1] in ((), (1,)):
            raise NotImplementedError("gradients of scale and bias are not summed over ranks")
    return checked


def check_loss_of_part(
    x: Tensor, target: Tensor, weight: Tensor | None, total: int | None, options: LossOptions
) -> None:
    """Check the arguments of a cross-entropy with sharded classes: expand tensors to the shapes of
    all classes, without memory, for `check_loss`. If the call does not say how many there are in
    `total`, they are as many as have a weight, and the ranks compare that with their parts."""
    if total is None:
        total = max(1, x.shape[options.dim])
        if weight is not None and weight.dim() == 1 and len(weight) != x.shape[options.dim]:
            total = len(weight)
    shape = [total if i == options.dim else size for i, size in enumerate(x.shape)]
    like = x.detach().new_empty(()).expand(shape)
    if target.is_floating_point() and target.shape == x.shape:
        target = target.detach().new_empty(()).expand(shape)
    if weight is not None and weight.shape == (x.shape[options.dim],):
        weight = weight.detach().new_empty(()).expand(total)
    check_loss(like, target, weight, options)
