"""Register the operators `torch.ops.triton_softmax.*`, and let plain eager calls bypass them.

An operator tells PyTorch how to treat a function: its kernel, the shape of its result under
tracing, its derivative, and its rules for `vmap`, autocast and Inductor. Kernels compute values and
first derivatives. For anything more (transforms of `torch.func`, forward mode, second derivatives),
PyTorch differentiates the equivalent composite of its own operators (`composite`).

Plain eager calls bypass the dispatcher to save host time (`modes.is_plain_eager`), through one
small `torch.autograd.Function` if they need a gradient.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from . import composite, inductor
from .arguments import Modifiers, Part, check_arguments, check_dense, check_dim
from .composite import accumulator
from .modes import direct, is_batched, is_plain_eager, transformed
from .operations.logsumexp import LOGSUMEXP, LOGSUMEXP_VJP
from .operations.operation import NAMED, Operation
from .operations.softmax import LOG_SOFTMAX, LOG_SOFTMAX_VJP, SOFTMAX, SOFTMAX_VJP
from .plan import Fallback, plan_of, run_one
from .plan.layout import on_vectors
from .plan.modified import plan_of_part, run_modified
from .plan.tokens import TokenCall, gradient_of_tokens, plan_of_tokens, run_tokens

# --- the table

NAMESPACE = re.sub(r"\W", "_", __name__.rpartition(".")[0])
"""Of the operators: the name of the package, so that copies of it under other names, such as a
kernel from the Hub, live in one process with this one."""

_library = torch.library.Library(NAMESPACE, "DEF")
_operators = getattr(torch.ops, NAMESPACE)


class Operator:
    """An operator in PyTorch's table, registered as `overload`.

    `kernel` computes on plain tensors, on every backend, and checks the arguments; `shape`, the
    fake kernel, returns results without data for tracing. `empty` operators launch nothing where
    the first input has no elements, of which a compiled program learns as late as this if data
    decide its size.
    """

    def __init__(
        self,
        schema: str,
        kernel: Callable[..., Any],
        shape: Callable[..., Any],
        empty: bool = False,
    ):
        _library.define(schema)
        self.overload = getattr(_operators, schema.partition("(")[0]).default
        names = [each.name for each in self.overload._schema.arguments]

        def on_dense(*args, **further):
            # PyTorch's dispatcher has unwrapped, negated and filled tensors that are not plain, but
            # it also lets in those whose layout has no strides.
            for name, given in zip(names, args):
                for t in given if isinstance(given, (list, tuple)) else [given]:
                    if isinstance(t, Tensor):
                        check_dense(t, name)
            x = args[0][0] if isinstance(args[0], list) else args[0]
            if x.numel() or not empty:
                return kernel(*args, **further)
            results = shape(*args, **further)
            for each in results:
                each.zero_()
            return results

        _library.impl(self.overload, on_dense, "CompositeExplicitAutograd")
        torch.library.register_fake(self.overload, shape, lib=_library)


def _like_rows(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Return a fake tensor with one scalar per row."""
    shape = [*x.shape[:dim], *x.shape[dim + 1 :]]
    return torch.empty(shape, dtype=dtype or accumulator(x.dtype), device=x.device)


def _nothing(x: Tensor) -> Tensor:
    """Return an empty tensor, in place of row scalars that were not requested."""
    return x.new_empty(0, dtype=accumulator(x.dtype))


# --- softmax, log-softmax and log-sum-exp, forward and backward

_DEFAULTS = (None, False)


class Normalization(Operator):
    """Softmax, log-softmax or log-sum-exp, or the backward pass of one.

    A backward operator takes (grad_output, saved, …), its operation these two swapped. `vjp` is the
    backward operator, None if this is one; `alone` a twin without an autograd rule, for Inductor.
    """

    def __init__(self, name: str, operation: Operation, vjp: "Normalization | None" = None):
        self.operation, self.vjp = operation, vjp
        given = "Tensor grad_output, Tensor saved, int dim, ScalarType? input_dtype=None"
        if vjp is not None:
            given = "Tensor x, int dim, ScalarType? dtype=None"
        schema = f"{name}({given}, bool batch_invariant=False) -> Tensor"
        super().__init__(schema, self._kernel, self._shape)
        _library.impl(self.overload, self._differentiated, "Autograd")
        self.alone = Operator(f"_{schema}", self._kernel, self._shape).overload
        torch.library.register_vmap(self.overload, self._batched, lib=_library)
        if vjp is not None:
            for device, key in (("cuda", "AutocastCUDA"), ("xpu", "AutocastXPU")):
                _library.impl(self.overload, _autocast(self, device), key)

    def inputs_and_options(self, args: tuple[Any, ...]) -> tuple[tuple[Tensor, ...], tuple]:
        """Return the operation's inputs and (dim, dtype, batch_invariant), with omitted
        defaults."""
        n_tensors = 2 if self.vjp is None else 1
        given = args[n_tensors:]
        return args[:n_tensors][::-1], given + _DEFAULTS[len(given) - 1 :]

    def _kernel(self, *args):
        inputs, options = self.inputs_and_options(args)
        return plan_of(self.operation, inputs, *options)(*inputs)

    def _shape(self, *args):
        inductor.enter(_NORMALIZATIONS)
        (x, *_), (dim, dtype, _) = self.inputs_and_options(args)
        dim = check_arguments(x, dim, dtype)
        if self.operation.reduces:
            return _like_rows(x, dim, dtype or x.dtype)
        return torch.empty(x.shape, dtype=dtype or x.dtype, device=x.device)

    def composite(self, *args):
        """Compute the operation with PyTorch's operators."""
        (x, *more), (dim, dtype, _) = self.inputs_and_options(args)
        dim = check_arguments(x, dim, dtype)
        return composite.KERNEL_OF[self.operation](x, *more, dim, dtype or x.dtype)

    def _differentiated(self, *args):
        # PyTorch's `register_autograd` covers reverse mode only: under `torch.func.jvp` such an
        # operator silently returns a zero tangent, and under `torch.func.grad` it raises. A
        # composite has every derivative, at every level of nested transforms.
        wanted = torch.is_grad_enabled() and torch._C._any_requires_grad(*args)
        if transformed() or (wanted and self.vjp is None):
            return self.composite(*args)
        if wanted:
            (x,), options = self.inputs_and_options(args)
            return differentiable(x, (self, False, *options))
        with torch._C._AutoDispatchBelowAutograd():
            return self.overload(*args)

    def _batched(self, info, in_dims, *args):
        """The rule for `torch.vmap`: move the mapped dimension to the front, and shift `dim` by
        one."""
        inputs, (dim, *options) = self.inputs_and_options(args)
        x, *others = [
            each.expand(info.batch_size, *each.shape) if at is None else each.movedim(at, 0)
            for each, at in zip(inputs, in_dims[: len(inputs)][::-1])
        ]
        dim = check_dim(dim, x.dim() - 1) + 1
        if x.dim() > 1:
            return self.overload(*others, x, dim, *options), 0
        if not self.operation.numbers:
            others = [each.unsqueeze(1) for each in others]
        y = self.overload(*others, x.unsqueeze(1), dim, *options)
        return y.reshape(info.batch_size), 0


def _autocast(op: Operator, device_type: str):
    """Return the autocast rule, as for PyTorch's operator of the same name: on a GPU, compute in
    float32 unless the caller names a dtype or the input is float64. A CPU has no rule."""

    def kernel(x, dim, dtype=None, *options):
        narrow = x.is_floating_point() and x.dtype != torch.float64
        if dtype is None and narrow and x.device.type == device_type:
            dtype = torch.float32
        torch.set_autocast_enabled(device_type, False)
        try:
            return op.overload(x, dim, dtype, *options)
        finally:
            torch.set_autocast_enabled(device_type, True)

    return kernel


class FirstDerivative(Function):
    """Softmax, log-softmax and log-sum-exp with a first derivative by kernels, from the saved
    output, or input for log-sum-exp. `arguments` is one object, because `apply` inspects each
    argument."""

    @staticmethod
    def forward(ctx, x, arguments):
        op, plain, dim, dtype, invariant = arguments
        if plain:
            y = run_one(x, (op.operation, dim, dtype, invariant))
        else:
            with torch._C._AutoDispatchBelowAutograd():
                y = op.overload(x, dim, dtype, invariant)
        ctx.save_for_backward(x if op is logsumexp else y)
        ctx.arguments = op.vjp, dim, x.dtype, invariant
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    def backward(ctx, dy):
        if dy is None:
            return None, None
        (saved,) = ctx.saved_tensors
        vjp, dim, dtype, invariant = ctx.arguments
        if torch.is_grad_enabled() or not is_plain_eager(dy, saved):
            # A second derivative, a batched gradient, ...
            return vjp.overload(dy, saved, dim, dtype, invariant), None
        inputs = saved, dy
        return plan_of(vjp.operation, inputs, dim, dtype, invariant)(saved, dy), None


differentiable = direct(FirstDerivative)

softmax_backward = Normalization("softmax_backward", SOFTMAX_VJP)
log_softmax_backward = Normalization("log_softmax_backward", LOG_SOFTMAX_VJP)
logsumexp_backward = Normalization("logsumexp_backward", LOGSUMEXP_VJP)
softmax = Normalization("softmax", SOFTMAX, softmax_backward)
log_softmax = Normalization("log_softmax", LOG_SOFTMAX, log_softmax_backward)
logsumexp = Normalization("logsumexp", LOGSUMEXP, logsumexp_backward)

_NORMALIZATIONS = (
    softmax, log_softmax, logsumexp, softmax_backward, log_softmax_backward, logsumexp_backward,
)  # fmt: skip


# --- softmax and log-softmax with score modifiers, in the order of `Modifiers`

_FORWARD, _BACKWARD = (SOFTMAX, LOG_SOFTMAX), (SOFTMAX_VJP, LOG_SOFTMAX_VJP)
"""Each indexed by `log`."""


def as_schema_arguments(modifiers: Modifiers) -> tuple[Any, ...]:
    """Return modifiers as an operator's schema has them."""
    scale, *others = modifiers
    return (scale, 1.0, *others) if isinstance(scale, Tensor) else (None, scale, *others)


class Saved(NamedTuple):
    """What the gradient of a call with score modifiers needs besides tensors."""

    modifiers: Modifiers
    """Without its tensors."""
    log: bool
    dim: int
    dtype: torch.dtype
    invariant: bool
    part: Part | None
    like_bias: tuple[torch.Size, torch.dtype] | None
    """The shape and dtype of the gradients at bias and sink; None if they get none."""
    like_sink: tuple[torch.Size, torch.dtype] | None


class ModifiedDerivative(Function):
    """Softmax and log-softmax with score modifiers and a first derivative by kernels. Modifiers
    that may get a gradient are inputs; `arguments` packs all of them, and the rest of the call."""

    @staticmethod
    def forward(ctx, x, scale, bias, sink, arguments):
        plain, modifiers, log, dim, dtype, invariant, part, check = arguments
        op, named = _FORWARD[int(log)], {"invariant": invariant, "of_sink": sink is not None}
        if plain:
            named |= {"part": part, "check": check}
            y, *share = run_modified(op, (x,), (), modifiers, dim, dtype, **named)
        else:
            y, *share = run_rows(False, op, (x,), (), dim, dtype, modifiers, **named)
        _, of_scale, of_bias, of_sink, _ = ctx.needs_input_grad
        factor, scale = (1.0, scale) if isinstance(scale, Tensor) else (scale, None)
        with_x = of_scale or modifiers.softcap is not None
        of_rows = scale, modifiers.where, share[0] if of_sink else None
        ctx.save_for_backward(y, x if with_x else None, *of_rows)
        ctx.saved = Saved(
            Modifiers(factor, modifiers.softcap, causal=modifiers.causal, safe=modifiers.safe),
            log, dim, x.dtype, invariant, part,
            (bias.shape, bias.dtype) if of_bias else None,
            (sink.shape, sink.dtype) if of_sink else None,
        )  # fmt: skip
        ctx.set_materialize_grads(False)
        return (y,)

    @staticmethod
    def backward(ctx, dy):
        if dy is None:
            return (None,) * 5
        y, x, scale, where, share = tensors = ctx.saved_tensors
        modifiers, log, dim, dtype, invariant, part, like_bias, like_sink = ctx.saved
        of_scale = ctx.needs_input_grad[1]
        scaled = scale is not None or modifiers.scale != 1.0 or modifiers.softcap is not None
        modifiers = modifiers._replace(where=where)
        if scale is not None:
            modifiers = modifiers._replace(scale=scale)
        dscale: Any = None
        row_sum: Any = None
        dsink = None
        plain = is_plain_eager(dy, *[t for t in tensors if t is not None])
        again = torch.is_grad_enabled() or (not plain and is_batched(dy))
        if again and part is None and not torch.compiler.is_compiling():
            # A second or a batched derivative, which only the composite has, of whole rows.
            dx, dz, dscale, row_sum = composite.modified_softmax_backward(
                log, dy, y, x, dim, modifiers
            )
            if like_sink:
                p = composite.upcast(y)
                rest = 1.0 - (p.exp() if log else p).sum(dim, keepdim=True)
                # The digits of the one, the derivative of the other.
                share = share.unsqueeze(dim) + (rest - rest.detach())
        else:
            both = like_bias is not None and (scaled or y.dtype != dtype)
            dx, *more = run_rows(
                plain, _BACKWARD[int(log)], (y, dy), (), dim, dtype, modifiers, invariant,
                part=part, before=False, after=True, x=x, of_modified=y.dtype if both else None,
                of_scale=of_scale, of_sink=like_sink is not None,
            )  # fmt: skip
            # Slices, since Dynamo of torch 2.11 makes a tuple of this list.
            dz, more = (more[0], more[1:]) if both else (dx, more)
            dscale, more = (more[0], more[1:]) if of_scale else (None, more)
            if like_sink:
                row_sum, share = more[0].unsqueeze(dim), share.unsqueeze(dim)
        if of_scale and scale is not None:
            dscale = dscale.sum_to_size(scale.shape).to(scale.dtype)
        if like_sink:  # eq: modifiers-sink-gradient
            dsink = (-share * row_sum).sum_to_size(like_sink[0]).to(like_sink[1])
        dbias = dz.sum_to_size(like_bias[0]).to(like_bias[1]) if like_bias else None
        dx = dx if dx.dtype == dtype else dx.to(dtype)
        return dx, dscale if of_scale else None, dbias, dsink, None


differentiable_modified = direct(ModifiedDerivative)


# --- any operation, with or without modifiers; `losses` and `logprobs` define further derivatives


def run_rows(
    plain: bool,
    op: Operation,
    elements: tuple[Tensor, ...],
    numbers: tuple[Tensor, ...],
    dim: int,
    dtype: torch.dtype,
    modifiers: Modifiers | None = None,
    invariant: bool = False,
    in_place: bool = False,
    part: Part | None = None,
    **further: Any,
) -> tuple[Tensor, ...]:
    """Run an operation outside autograd: directly in a plain call, in any other by an operator that
    PyTorch does not look into. The arguments and results are those of `run_modified`. Without
    modifiers the kernel of the layout runs instead; in place, the elements of the result are
    written over the first input. Of parts of rows, calls that are not plain have no modifiers."""
    out, inputs = elements[0] if in_place else None, (*elements, *numbers)
    if part is not None and modifiers is None:
        return of_parts(op, inputs, dtype, part, invariant, out=out)[0]
    if not plain and part is None:
        some = as_schema_arguments(modifiers or Modifiers(1.0))  # a number, no symbol
        options = dim, dtype, modifiers is not None, *some
        if in_place:
            x, *rest = elements
            more = rows_in_place.overload(x, rest, numbers, op.name, *options, invariant, **further)
            return x, *more
        return tuple(rows.overload(elements, numbers, op.name, *options, invariant, **further))
    if modifiers is None:
        results = plan_of(op, inputs, dim, dtype, invariant)(*inputs, out=out)
        return results if isinstance(results, tuple) else (results,)
    given = (op, elements, numbers, modifiers, dim, dtype)
    return run_modified(*given, invariant=invariant, part=part, out=out, **further)


def _rows_kernel(
    elements, numbers, name, dim, dtype, modified, scale, factor, *args, in_place=False, **further
):
    *others, invariant = args
    modifiers = Modifiers(factor if scale is None else scale, *others) if modified else None
    given = NAMED[name], tuple(elements), tuple(numbers), dim, dtype, modifiers
    return run_rows(True, *given, invariant, in_place, **further)


def _rows_shape(
    elements, numbers, name, dim, dtype, *_, of_modified=None, of_scale=False, of_sink=False, **__
):
    op, x = NAMED[name], elements[0]
    of_row = _like_rows(x, dim, accumulator(dtype))
    found = [] if op.reduces else [torch.empty(x.shape, dtype=dtype, device=x.device)]
    found += [torch.empty_like(of_row) for _ in range(op.row_results)]
    if of_modified is not None:
        found.append(torch.empty(x.shape, dtype=of_modified, device=x.device))
    if of_scale:
        found.append(torch.empty_like(of_row).unsqueeze(dim))
    return [*found, of_row] if of_sink else found


_ROWS = (
    "Tensor[] numbers, str operation, int dim, ScalarType dtype, bool modified, Tensor? scale, "
    "float factor, float? softcap, Tensor? bias, Tensor? where, bool causal, Tensor? sink, "
    "bool safe, bool batch_invariant, *, bool before=True, bool after=False, Tensor? x=None, "
    "ScalarType? of_modified=None, bool of_scale=False, bool of_sink=False)"
)
"""`modified` says whether there are modifiers. A scale is a tensor `scale` or a number `factor`."""

rows = Operator(
    f"rows(Tensor[] elements, {_ROWS} -> Tensor[]",
    lambda *args, **further: list(_rows_kernel(*args, **further)),
    _rows_shape,
    empty=True,
)
rows_in_place = Operator(
    f"rows_(Tensor(a!) first, Tensor[] elements, {_ROWS} -> (Tensor, Tensor)",
    lambda x, elements, *args, **further: tuple(
        _rows_kernel((x, *elements), *args, in_place=True, **further)[1:]
    ),
    lambda x, elements, *args, **further: (*_rows_shape((x, *elements), *args, **further)[1:],),
    empty=True,
)
"""It writes the elements of the result over the first input, and returns two numbers for each row:
PyTorch cannot trace an operator that writes and returns a list."""


_TOKENS = (
    "Tensor x, Tensor? token, Tensor? mask, Tensor? scale, float factor, float before, "
    "float? softcap"
)


def _token_rows_kernel(*args):
    found, *others = run_tokens(args[:4], TokenCall(*args[4:]))
    return _nothing(args[0]) if args[1] is None else found, *others


def _token_rows_shape(x, token, *_):
    like = _like_rows(x, x.dim() - 1)
    found = _nothing(x) if token is None else torch.empty_like(like)
    return found, like, like.new_empty(3, *like.shape)


def _token_gradient_kernel(*args):
    call = TokenCall(*args[4:7], entropy=False, invariant=False)
    return list(gradient_of_tokens(args[:4], call, *args[7:]))


token_rows = Operator(
    f"token_rows({_TOKENS}, bool entropy, bool invariant) -> (Tensor, Tensor, Tensor)",
    _token_rows_kernel,
    _token_rows_shape,
    empty=True,
)
token_gradient = Operator(
    f"token_gradient({_TOKENS}, Tensor saved, Tensor g, Tensor? g_entropy, bool of_scale) "
    "-> Tensor[]",
    _token_gradient_kernel,
    lambda x, *args: [
        torch.empty(x.shape, dtype=x.dtype, device=x.device),
        *[_like_rows(x, x.dim() - 1)] * args[-1],
    ],
    empty=True,
)


# --- rows of which ranks have parts: between two operators a message passes


def _in_ranks(ranks: int) -> Part:
    """Return what kernels have to know of a part whose ranks do not know how long others are."""
    return Part(0, 0, 0, ranks, None, None)


def of_parts(
    op: Operation, inputs: tuple[Tensor, ...], dtype: torch.dtype, part: Any,
    invariant: bool = False, lines: Any = None, out: Tensor | None = None,
) -> tuple[tuple[Tensor, ...], Tensor]:  # fmt: skip
    """Return the results of an operation on matrices of whose rows ranks have parts, and the
    messages of all ranks from which they follow, unless an earlier call has received these."""
    if torch.compiler.is_compiling():
        given = [*inputs[: op.inputs]], [*inputs[op.inputs :]]
        if lines is None:
            message = published_rows.overload(*given, op.name, dtype, part.ranks)
            lines, _ = part.exchange(message, part.group)
        return tuple(written_rows.overload(*given, lines, op.name, dtype)), lines
    plan: Any = plan_of_part(op, inputs, dtype, part, invariant)
    if invariant:  # it may copy its inputs first, and nobody asks for its messages
        results = plan(*inputs, out=out)
    else:
        if lines is None:
            lines, work = part.exchange(plan.publish(*inputs), part.group)
            if work is not None:
                work.wait()
        results = plan.write(lines, *inputs, out=out)
    return results if isinstance(results, tuple) else (results,), lines


def _published_rows(elements, numbers, name, dtype, ranks):
    inputs = (*elements, *numbers)
    return plan_of_part(NAMED[name], inputs, dtype, _in_ranks(ranks), False).publish(*inputs)


def _written_rows(elements, numbers, lines, name, dtype):
    inputs, part = (*elements, *numbers), _in_ranks(len(lines))
    return [*of_parts(NAMED[name], inputs, dtype, part, lines=lines)[0]]


def _line_of_rows(elements, numbers, name, dtype, ranks):
    x, op = elements[0], NAMED[name]
    of_row = 1 + op.sums + (op.numbers > 1)
    return x.new_empty(of_row * x.shape[0], dtype=accumulator(dtype))


published_rows = Operator(
    "published_rows(Tensor[] elements, Tensor[] numbers, str operation, ScalarType dtype, "
    "int ranks) -> Tensor",
    _published_rows,
    _line_of_rows,
)
written_rows = Operator(
    "written_rows(Tensor[] elements, Tensor[] numbers, Tensor lines, str operation, "
    "ScalarType dtype) -> Tensor[]",
    _written_rows,
    lambda elements, numbers, lines, name, dtype: _rows_shape(elements, numbers, name, 1, dtype),
)


def _tokens_of_part(ranks, known, *args):
    inputs, call = args[:4], TokenCall(*args[4:], invariant=False, part=_in_ranks(ranks))
    plan = plan_of_tokens(inputs, call, known.numel())
    if isinstance(plan, Fallback):  # it would copy its inputs
        copies = [each if each is None else on_vectors(each) for each in inputs]
        return _tokens_of_part(ranks, known, *copies, *args[4:])
    tensors = [each for each in inputs if each is not None]
    return plan, tensors, {"number": call.factor, "known": known}


def _published_tokens(known, ranks, *args):
    plan, tensors, named = _tokens_of_part(ranks, known, *args)
    return plan.publish(*tensors, **named)


def _written_tokens(known, lines, *args):
    plan, tensors, named = _tokens_of_part(len(lines), known, *args)
    # Log-probabilities follow from what is known; the plan has none, and returns no values there.
    return _nothing(args[0]), *plan.write(lines, *tensors, **named)[1:]


published_tokens = Operator(
    f"published_tokens(Tensor known, int ranks, {_TOKENS}, bool entropy) -> Tensor",
    _published_tokens,
    lambda known, ranks, x, *_: x.new_empty(
        3 * x.shape[:-1].numel() + known.numel(), dtype=accumulator(x.dtype)
    ),
)
written_tokens = Operator(
    f"written_tokens(Tensor known, Tensor lines, {_TOKENS}, bool entropy) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
    _written_tokens,
    lambda known, lines, x, *_: (*_token_rows_shape(x, None), torch.empty_like(known)),
)
