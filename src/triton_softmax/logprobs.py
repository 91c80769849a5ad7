"""Log-probabilities of tokens and entropies of rows, as reinforcement learning needs them.

One read of the logits yields a row's maximum, the logarithm of its denominator, and its entropy;
log-probabilities follow from these and the tokens' logits. The gradient of all of them takes one
more read and one write.
"""

import math
from ctypes import c_float
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.compiler import is_compiling
from torch.overrides import has_torch_function_variadic

from . import arguments, composite, distributed, modes, operators
from .arguments import Modifiers
from .modes import is_batched, is_plain_eager
from .plan import Fallback, key_of
from .plan.launch import plans
from .plan.tokens import TokenCall, gradient_of_tokens, run_tokens

LARGEST = torch.finfo(torch.float32).max


def selective_log_softmax(
    logits: Tensor,
    index: Tensor,
    temperature: float | Tensor = 1.0,
    row_mask: Tensor | None = None,
    *,
    inplace_backward: bool = False,
    batch_invariant: bool = False,
) -> Tensor:
    """Return `log_softmax(logits / temperature, -1).gather(-1, index)`, without storing the whole
    log-softmax.

    Args:
        logits: (…, C), float16, bfloat16, float32 or float64.
        index: Classes, int64 or int32, (…) or (…, K).
        temperature, row_mask, batch_invariant: As for `token_logprobs`.
        inplace_backward: Where kernels compute, write the gradient over the logits in the backward
            pass, if they are contiguous and neither a leaf nor a view of one.

    Returns:
        Log-probabilities in the shape of the index and the dtype of the logits; none above 0.

    Raises:
        TypeError: The dtype of logits, index or mask is another, or the temperature no number.
        ValueError: The shapes do not match, or a number as temperature is not positive and finite.
        IndexError: An index is out of range (on a GPU, an assertion on the device).
        RuntimeError: A tensor is on another device.

    Examples:
        >>> import torch
        >>> from triton_softmax import selective_log_softmax
        >>> selective_log_softmax(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([2]))
        tensor([-0.4076])
    """
    tensors = (logits, index, temperature, row_mask)
    if not is_compiling() and has_torch_function_variadic(*tensors):
        return arguments.pass_on(selective_log_softmax, tensors, locals())
    options: Any = {"inplace_backward": inplace_backward, "batch_invariant": batch_invariant}
    options |= {"temperature": temperature, "row_mask": row_mask}
    return token_logprobs(logits, index, **options).to(logits.dtype)


def entropy_from_logits(
    logits: Tensor, *, inplace_backward: bool = False, batch_invariant: bool = False
) -> Tensor:
    """Return the entropy −Σ y·log y of each row, where y is the softmax of the logits.

    Probabilities of 0 count as 0, in the entropy and its gradient. Large logits lose no digits.

    Args:
        logits: (…, C), float16, bfloat16, float32 or float64.
        inplace_backward, batch_invariant: As for `selective_log_softmax`.

    Returns:
        Entropies (…), in the dtype of the logits.

    Raises:
        TypeError, ValueError: `logits` has another dtype, or no dimension.

    Examples:
        >>> import torch
        >>> from triton_softmax import entropy_from_logits
        >>> entropy_from_logits(torch.tensor([[1e4, 1e4], [0.0, float("-inf")]]))
        tensor([0.6931, 0.0000])
    """
    if not is_compiling() and has_torch_function_variadic(logits):
        return arguments.pass_on(entropy_from_logits, (logits,), locals())
    _, entropy = _of_tokens(logits, None, True, inplace_backward, batch_invariant)
    return entropy.to(logits.dtype)


def token_logprobs(
    logits: Tensor,
    index: Tensor,
    *,
    temperature: float | Tensor = 1.0,
    scale: float = 1.0,
    softcap: float | None = None,
    row_mask: Tensor | None = None,
    return_entropy: bool = False,
    inplace_backward: bool = False,
    batch_invariant: bool = False,
    group: Any = None,
    vocab_start: int | None = None,
    vocab_size: int | None = None,
) -> Any:
    """Return the log-probabilities of tokens, and optionally the entropies of their distributions,
    from one read of the logits.

    Probabilities of 0 count as 0, in the entropy and its gradient.

    Args:
        logits: (…, C), float16, bfloat16, float32 or float64.
        index: Classes, int64 or int32, (…) or (…, K).
        temperature: Divides the logits, after scale and soft cap: a positive number, of which a new
            one compiles nothing; or a tensor, 0-d or of the logits' shape with 1 in place of C,
            which gets a gradient. A row whose temperature in a tensor is not positive is NaN.
        scale, softcap: As for `cross_entropy`.
        row_mask: (…), bool, int32 or int64. Where it is 0, results and gradient are 0, whatever
            logits and index hold there.
        return_entropy: Return entropies (…) as well.
        inplace_backward, batch_invariant: As for `selective_log_softmax`.
        group, vocab_start, vocab_size: As for `cross_entropy`; the index counts all classes. In
            place only without a mask.

    Returns:
        Log-probabilities in the shape of the index, or a pair with the entropies; float32 for
        16-bit logits. All may be changed in place.

    Raises:
        TypeError, ValueError, IndexError, RuntimeError: As for `selective_log_softmax`; a
            ValueError also if `scale` is not finite, `softcap` is not positive, or ranks differ.
        NotImplementedError: With a group, a temperature requires a gradient.

    Examples:
        >>> import torch
        >>> from triton_softmax import token_logprobs
        >>> token_logprobs(torch.tensor([[0.0, 0.0]]), torch.tensor([1]), return_entropy=True)
        (tensor([-0.6931]), tensor([0.6931]))
        >>> logits, kept = torch.zeros(2, 2), torch.tensor([True, False])
        >>> token_logprobs(logits, torch.tensor([1, -100]), row_mask=kept)
        tensor([-0.6931,  0.0000])
    """
    tensors = (logits, index, temperature, row_mask)
    if not is_compiling() and has_torch_function_variadic(*tensors):
        return arguments.pass_on(token_logprobs, tensors, locals())
    if index is None:
        raise TypeError("index must be a tensor, not NoneType")
    elsewhere = type(logits) is not Tensor or not vocab_start is vocab_size is None
    part = vocab_start, vocab_size
    if group is not None or (elsewhere and distributed.on_mesh(logits, *part)):
        kept: Any = None
        try:
            if type(logits) is not Tensor:
                arguments.check_dense(logits, "the input")
            if type(scale) is not float or scale != 1.0 or softcap is not None:
                *_, softcap, scale = arguments.check_loss_numbers(softcap=softcap, scale=scale)
            if type(temperature) is not float or temperature != 1.0:
                temperature = arguments.check_temperature(temperature, logits)
            if group is not None and isinstance(temperature, Tensor) and temperature.requires_grad:
                raise NotImplementedError("the gradient of a temperature is not summed over ranks")
            if row_mask is not None:
                arguments.check_index(logits, index, row_mask)
                kept, logits, index = _without_masked(logits, index, row_mask)
        except Exception as error:
            distributed.tell(group, error)
            raise
        invariant = bool(batch_invariant or arguments.contexts)
        found, entropy = distributed.agreed(
            group, distributed.token_logprobs, logits, (token_logprobs, _of_tokens), index,
            return_entropy, inplace_backward, temperature, invariant, scale, softcap, vocab_start,
            vocab_size,
        )  # fmt: skip
        if kept is not None:
            found, entropy = _zero_unless(kept, found), _zero_unless(kept, entropy)
    else:
        found, entropy = _of_tokens(
            logits, index, return_entropy, inplace_backward, batch_invariant, temperature, scale,
            softcap, row_mask,
        )  # fmt: skip
    return (found, entropy) if return_entropy else found


def selective_log_softmax_and_entropy(
    logits: Tensor,
    index: Tensor,
    temperature: float | Tensor = 1.0,
    row_mask: Tensor | None = None,
    *,
    scale: float = 1.0,
    softcap: float | None = None,
    inplace_backward: bool = False,
    batch_invariant: bool = False,
    group: Any = None,
    vocab_start: int | None = None,
    vocab_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Return `token_logprobs(…, return_entropy=True)`: TRL's function of this name.

    Arguments, results and errors are those of `token_logprobs`.

    Examples:
        >>> import torch
        >>> from triton_softmax import selective_log_softmax_and_entropy
        >>> selective_log_softmax_and_entropy(torch.zeros(1, 2), torch.tensor([1]), 0.7)
        (tensor([-0.6931]), tensor([0.6931]))
    """
    tensors = (logits, index, temperature, row_mask)
    if not is_compiling() and has_torch_function_variadic(*tensors):
        return arguments.pass_on(selective_log_softmax_and_entropy, tensors, locals())
    return token_logprobs(
        logits, index, temperature=temperature, scale=scale, softcap=softcap, row_mask=row_mask,
        return_entropy=True, inplace_backward=inplace_backward, batch_invariant=batch_invariant,
        group=group, vocab_start=vocab_start, vocab_size=vocab_size,
    )  # fmt: skip


def _of_rows(kept: Tensor, t: Tensor) -> Tensor:
    """Return a mask of rows (…) as a view that broadcasts to t, (…) or (…, K)."""
    return kept.unsqueeze(-1) if t.dim() > kept.dim() else kept


def _zero_unless(kept: Tensor, t: Tensor) -> Tensor:
    """Return t, (…) or (…, K), with zeros in rows that are not kept; an empty t as it is."""
    return t if arguments.is_empty(t) else t.where(_of_rows(kept, t), 0.0)


def _without_masked(
    logits: Tensor, index: Tensor | None, row_mask: Tensor
) -> tuple[Tensor, Tensor, Any]:
    """Return which rows are kept, and copies of logits and index with zeros in the others."""
    kept: Any = row_mask != 0
    if type(logits).__name__ == "DTensor":
        on_mesh_of = distributed.dtensors().on_mesh_of
        kept, index = on_mesh_of(logits, kept), on_mesh_of(logits, index)
    index = None if index is None else index.where(_of_rows(kept, index), 0)
    return kept, logits.masked_fill(~kept.unsqueeze(-1), 0.0), index


def _of_tokens(
    logits: Tensor,
    index: Tensor | None,
    entropy: bool,
    in_place: bool,
    batch_invariant: bool,
    temperature: Any = 1.0,
    scale: float = 1.0,
    softcap: float | None = None,
    row_mask: Tensor | None = None,
    part: arguments.Part | None = None,
) -> tuple[Tensor, Tensor]:
    """Return (log-probabilities, entropies), in float32 for 16-bit logits; each is empty unless
    requested. The logits may be a part of the rows."""
    by_rows = isinstance(temperature, Tensor)
    # Numbers are no part of the key: they may change at every step.
    if not by_rows and not (type(temperature) is float and 0 < temperature < math.inf):
        temperature = arguments.check_temperature(temperature, logits)
    if type(scale) is not float or scale != 1.0 or softcap is not None:
        *_, softcap, scale = arguments.check_loss_numbers(softcap=softcap, scale=scale)
    # A scale that is positive, and without a soft cap, is part of the last factor.
    last = softcap is None and scale > 0.0
    after, before = (scale, 1.0) if last else (1.0, scale)
    batch_invariant = bool(batch_invariant or arguments.contexts)
    inputs: Any = logits, index, row_mask, temperature if by_rows else None
    tensors = []
    for each in inputs:
        if each is not None:
            tensors.append(each)
    plain, key = is_plain_eager(*tensors), None
    if plain:
        key = key_of((token_logprobs, before, softcap, entropy, batch_invariant, part), inputs)
    if key is None or key not in plans:
        arguments.check_index(logits, index, row_mask)
        arguments.check_temperature(temperature, logits)
    # Without classes every index is wrong, and PyTorch's operators would read beside the logits.
    if index is not None and (index.device.type == "cpu" or not logits.shape[-1]):
        if plain or modes.readable(index):
            kept = index
            if row_mask is not None:
                kept = index.where(_of_rows(row_mask != 0, index), 0)
            of_all = logits.shape[-1] if part is None else part.total
            arguments.check_classes(kept, of_all)
    if isinstance(temperature, Tensor) and row_mask is not None and temperature.dim():
        temperature = temperature.where((row_mask != 0).unsqueeze(-1), 1.0)
    on_cpu = not arguments.INTERPRETED and logits.device.type == "cpu"
    empty = not logits.numel() if plain else arguments.is_empty(logits)
    composed = on_cpu or empty
    if not (composed or plain):
        composed = modes.by_composite() or type(logits).__name__ == "DTensor"
    if composed and part is None:
        if key is not None and key not in plans:
            plans.keep(key, Fallback(_composed))  # a mark that the call has been checked
        return _composed(inputs[:3], temperature, Modifiers(scale, softcap), entropy)
    of_row: Any = None
    factor: Any = 1.0
    if isinstance(temperature, Tensor):
        wide = temperature.to(arguments.accumulator(logits.dtype))
        wide = wide.clamp(max=torch.finfo(wide.dtype).max)
        of_row = wide.reciprocal() if after == 1.0 else after / wide
        of_row = of_row.squeeze(-1) if of_row.dim() else of_row.expand(logits.shape[:-1])
    elif is_compiling() or logits.dtype == torch.float64:
        # A compiler makes a number of an operator a constant; a number of a launch is float32.
        unit = logits.new_full((), after, dtype=arguments.accumulator(logits.dtype))
        of_row = (unit / temperature).expand(logits.shape[:-1])
    else:
        # As a tensor's: the float32 quotient of two float32 numbers.
        narrow = c_float(min(temperature, LARGEST)).value
        factor = c_float(after).value / narrow if narrow else math.inf
    if index is not None and part is not None:
        index = part.columns(index, logits.shape[-1])
    elif index is not None and index.dim() == logits.dim() and index.device.type != "cpu":
        # Below, -1 stands for no column; a class of -1 has to be refused, as any out of range.
        index = index.where(index >= 0, logits.shape[-1])
    if index is not None and row_mask is not None and index.dim() == logits.dim():
        index = index.where((row_mask != 0).unsqueeze(-1), -1)
    call = TokenCall(factor, before, softcap, entropy, batch_invariant, part, key)
    if torch.is_grad_enabled() and (
        logits.requires_grad or (of_row is not None and of_row.requires_grad)
    ):
        in_place = in_place and modes.may_be_overwritten(logits, logits)
        apply = _differentiable if plain else _Tokens.apply
        return apply(logits, index, row_mask, of_row, in_place, call)[:2]
    return _forward(logits, index, row_mask, of_row, call)[:2]


def _composed(
    inputs: tuple[Any, ...],
    temperature: float | Tensor,
    modifiers: Modifiers,
    entropy: bool,
    factor: float | Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the results of `_of_tokens` by PyTorch's operators, from logits, index and mask. A
    factor, if given, is in the place of the temperature."""
    x, index, row_mask = inputs
    kept = None
    if row_mask is not None:
        kept, x, index = _without_masked(x, index, row_mask)
    x = composite.modified_elements(x, modifiers)
    if factor is not None:
        x = x * factor
    elif isinstance(temperature, Tensor) or temperature != 1.0:
        x = composite.tempered(x, temperature)
    logprobs, entropies = composite.token_logprobs(x, index, entropy)
    if kept is None:
        return logprobs, entropies
    return _zero_unless(kept, logprobs), _zero_unless(kept, entropies)


def _forward(
    x: Tensor, index: Tensor | None, row_mask: Tensor | None, scale: Tensor | None, call: TokenCall
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (log-probabilities, entropies, what the gradient needs). A call that is not plain has
    no key, and goes by an operator."""
    x, scale = x.detach(), None if scale is None else scale.detach()
    factor, before, softcap, entropy, invariant, part, key = call
    many_tokens = index is not None and index.dim() == x.dim()
    inputs = x, None if many_tokens or part is not None else index, row_mask, scale
    picked = None
    if index is not None and (many_tokens or part is not None):
        picked = at_tokens(x, index, before, softcap)
    if part is not None and not is_compiling():
        found, entropies, saved, *of_all = run_tokens(inputs, call, picked)
        picked = of_all[0] if of_all else None
    elif part is not None:
        given = *inputs, *call[:4]
        message = operators.published_tokens.overload(picked, part.ranks, *given)
        lines, _ = part.exchange(message, part.group)
        found, entropies, saved, picked = operators.written_tokens.overload(picked, lines, *given)
    elif key is not None:
        found, entropies, saved = run_tokens(inputs, call)
    else:
        found, entropies, saved = operators.token_rows.overload(*inputs, *call[:5])
    if picked is not None:
        m, log_d, _ = (saved.unsqueeze(-1) if many_tokens else saved).unbind()
        z = (picked - m) * factor
        if scale is not None:
            z = z * (scale.unsqueeze(-1) if many_tokens else scale)
        # eq: log-probability
        found = z - log_d
    nothing = x.new_empty(0, dtype=saved.dtype)
    return nothing if index is None else found, entropies if entropy else nothing, saved


class _Tokens(Function):
    """Log-probabilities and entropies. Their gradient reads the logits once more."""

    @staticmethod
    def forward(ctx, x, index, row_mask, scale, in_place, call):
        found, entropies, saved = _forward(x, index, row_mask, scale, call)
        ctx.save_for_backward(x, index, row_mask, scale, saved)
        ctx.in_place, ctx.call = in_place, call
        ctx.set_materialize_grads(False)
        return found, entropies

    @staticmethod
    def backward(ctx, g, g_entropy):
        x, index, row_mask, scale, saved = tensors = ctx.saved_tensors
        in_place, call = ctx.in_place, ctx.call
        factor, before, softcap, entropy, _, part, _ = call
        if part is not None and not x.shape[-1]:  # other ranks have all columns
            return torch.empty_like(x), *(None,) * 5
        g = None if index is None else g
        g_entropy = g_entropy if entropy else None
        arrived = [each for each in (g, g_entropy) if each is not None]
        if not arrived:
            return (None,) * 6
        again = torch.is_grad_enabled()
        plain = is_plain_eager(*arrived, *[t for t in tensors if t is not None])
        if (again or not (plain or is_compiling())) and (again or any(map(is_batched, arrived))):
            # A second or a batched derivative may follow, which only the composite has.
            if part is not None:
                raise RuntimeError("logits of several ranks have first derivatives only")
            dx, dscale = _differentiated((x, index, row_mask), scale, call, g, g_entropy)
            return dx, None, None, dscale, None, None
        many_tokens = index is not None and index.dim() == x.dim()
        of_scale, picked, each = ctx.needs_input_grad[3], None, g
        if index is not None and many_tokens and g is not None:
            picked = at_tokens(x, index, before, softcap)  # before the gradient overwrites x
            each, g = g.masked_fill(index < 0, 0.0), g.sum(-1)
        if g is None:
            g = saved.new_zeros(()).expand(x.shape[:-1])
        x = x.detach() if in_place else x
        inputs = x, None if many_tokens or each is None else index, row_mask, scale
        given = saved, g, g_entropy, of_scale
        if plain:
            dx, *more = gradient_of_tokens(inputs, call, *given, x if in_place else None)
        else:
            dx, *more = operators.token_gradient.overload(*inputs, *call[:3], *given)
            dx = x.copy_(dx) if in_place else dx
        if index is not None and picked is not None:
            gained = each * factor if scale is None else each * (factor * scale).unsqueeze(-1)
            if softcap is not None:
                gained = gained * (1.0 - (picked / softcap).square())
            gained = (gained * before).to(dx.dtype)
            dx.scatter_add_(-1, index.long().clamp(min=0), gained)
        if in_place:
            torch.autograd.graph.increment_version(dx)
        dscale = None
        if of_scale and scale is not None:
            dscale = more[0]
            if picked is not None:
                dscale = dscale + (each * (picked - saved[0].unsqueeze(-1))).sum(-1)
            dscale = (dscale * factor).to(scale.dtype)
        return dx, None, None, dscale, None, None


_differentiable = modes.direct(_Tokens)


def at_tokens(x: Tensor, index: Tensor, before: float, softcap: float | None) -> Tensor:
    """Return the modified logits of tokens, in the accumulator dtype; 0 where a column is −1: of a
    masked row, or as another rank has it."""
    columns = index.long().unsqueeze(-1) if index.dim() < x.dim() else index.long()
    if not x.shape[-1]:
        return x.new_zeros(index.shape, dtype=arguments.accumulator(x.dtype))
    found = x.gather(-1, columns.clamp(min=0)).masked_fill(columns < 0, 0.0)
    found = composite.modified_elements(found, Modifiers(before, softcap))
    return found.view(index.shape)


def _differentiated(
    inputs: tuple[Any, ...],
    scale: Tensor | None,
    call: TokenCall,
    g: Tensor | None,
    g_entropy: Tensor | None,
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients at the logits and at the scale, as differentiable functions."""
    x, modifiers = inputs[0], Modifiers(call.before, call.softcap)
    leaves = [t for t in (x, scale) if t is not None and t.requires_grad]
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        factor = call.factor if scale is None else call.factor * scale.unsqueeze(-1)
        results = _composed(inputs, 1.0, modifiers, g_entropy is not None, factor)
        pairs = [(r, v) for r, v in zip(results, (g, g_entropy), strict=True) if v is not None]
        outputs, arrived = zip(*pairs, strict=True)
        found = iter(torch.autograd.grad(outputs, leaves, arrived, create_graph=again))
    dx = next(found) if x.requires_grad else None
    return dx, next(found, None)
