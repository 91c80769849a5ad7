"""Log-probabilities of tokens and entropies of rows, as reinforcement learning needs them.

One read of the logits yields a row's maximum, the logarithm of its denominator, and its entropy;
log-probabilities follow from these and the tokens' logits. The gradient of all of them takes one
more read and one write.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.compiler import is_compiling
from torch.overrides import has_torch_function_variadic

from . import arguments, composite, distributed, operators
from .launch import checked
from .operators import is_batched, nobody_watches
from .plan_losses import gradient_of_tokens, run_tokens


def selective_log_softmax(
    logits: Tensor, index: Tensor, *, inplace_backward: bool = False, batch_invariant: bool = False
) -> Tensor:
    """Return `log_softmax(logits, -1).gather(-1, index)`, without storing the whole log-softmax.

    Args:
        logits: (…, C), float16, bfloat16, float32 or float64.
        index: Classes, int64 or int32, (…) or (…, K).
        inplace_backward: Where kernels compute, write the gradient over the logits in the backward
            pass, if they are contiguous and neither a leaf nor a view of one.
        batch_invariant: As for `softmax`.

    Returns:
        Log-probabilities in the shape of the index and the dtype of the logits; none above 0.

    Raises:
        TypeError: `logits` has another dtype, or `index` is not int64 or int32.
        ValueError: The shapes do not match.
        IndexError: An index is out of range (on a GPU, an assertion on the device).
        RuntimeError: The index is on another device.

    Examples:
        >>> import torch
        >>> from triton_softmax import selective_log_softmax
        >>> selective_log_softmax(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([2]))
        tensor([-0.4076])
    """
    if not is_compiling() and has_torch_function_variadic(logits, index):
        return arguments.pass_on(selective_log_softmax, (logits, index), locals())
    if index is None:
        raise TypeError("index must be a tensor, not NoneType")
    found, _ = _of_tokens(logits, index, False, inplace_backward, batch_invariant)
    return found.to(logits.dtype)


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
        TypeError: `logits` has another dtype.

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
    return_entropy: bool = False,
    inplace_backward: bool = False,
    batch_invariant: bool = False,
    group: Any = None,
    vocab_start: int | None = None,
    vocab_size: int | None = None,
) -> Any:
    """Return the log-probabilities of tokens, and optionally the entropies of their distributions,
    from one read of the logits.

    Args:
        logits: (…, C), float16, bfloat16, float32 or float64.
        index: Classes, int64 or int32, (…) or (…, K).
        temperature: Divides the logits first: a number, or a tensor of the logits' shape with 1 in
            place of C, which gets a gradient.
        return_entropy: Return entropies (…) as well.
        inplace_backward, batch_invariant: As for `selective_log_softmax`.
        group, vocab_start, vocab_size: As for `cross_entropy`; the index counts all classes. In
            place only without a temperature.

    Returns:
        Log-probabilities in the shape of the index, or a pair with the entropies; float32 for
        16-bit logits.

    Raises:
        TypeError, ValueError, IndexError, RuntimeError: As for `selective_log_softmax`; also if the
            temperature is neither a positive number nor such a tensor.

    Examples:
        >>> import torch
        >>> from triton_softmax import token_logprobs
        >>> token_logprobs(torch.tensor([[0.0, 0.0]]), torch.tensor([1]), return_entropy=True)
        (tensor([-0.6931]), tensor([0.6931]))
    """
    if not is_compiling() and has_torch_function_variadic(logits, index, temperature):
        return arguments.pass_on(token_logprobs, (logits, index, temperature), locals())
    if index is None:
        raise TypeError("index must be a tensor, not NoneType")
    elsewhere = vocab_start is not None or type(logits) is not Tensor
    if group is not None or (elsewhere and distributed.on_mesh(logits, vocab_start)):
        try:
            if type(logits) is not Tensor:
                arguments.check_dense(logits, "the input")
            if type(temperature) not in (int, float) or temperature != 1.0:
                arguments.check_temperature(temperature, logits)
            if group is not None and isinstance(temperature, Tensor) and temperature.requires_grad:
                raise NotImplementedError("the gradient of a temperature is not summed over ranks")
        except Exception as error:
            distributed.tell(group, error)
            raise
        invariant = bool(batch_invariant or arguments.contexts)
        found, entropy = distributed.token_logprobs(
            (token_logprobs, _of_tokens), logits, index, group, vocab_start, vocab_size,
            return_entropy, inplace_backward, temperature, invariant,
        )  # fmt: skip
    else:
        found, entropy = _of_tokens(
            logits, index, return_entropy, inplace_backward, batch_invariant, temperature
        )
    return (found, entropy) if return_entropy else found


def selective_log_softmax_and_entropy(
    logits: Tensor,
    index: Tensor,
    temperature: float = 1.0,
    row_mask: Tensor | None = None,
    *,
    inplace_backward: bool = False,
    batch_invariant: bool = False,
    group: Any = None,
    vocab_start: int | None = None,
    vocab_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the log-probability of one token per row, and the entropy of each row, from one read
    of the logits: TRL's function of this name.

    Probabilities of 0 count as 0, in the entropy and its gradient.

    Args:
        logits: (…, C), float16, bfloat16, float32 or float64.
        index: Classes (…), int64 or int32.
        temperature: Divides the logits first, as in `token_logprobs`. A new one compiles nothing.
        row_mask: (…), bool, int32 or int64. Where it is 0, both results are 0 and so is the
            gradient, whatever logits and index hold there.
        inplace_backward, batch_invariant, group, vocab_start, vocab_size: As for `token_logprobs`.

    Returns:
        Log-probabilities (…) and entropies (…); float32 for 16-bit logits. Both may be changed in
        place.

    Raises:
        TypeError: A dtype is none of these.
        ValueError: The shapes do not match, there are no classes, or the temperature is not
            positive and finite.
        IndexError: An index of a row that is kept is out of range (on a GPU, an assertion on the
            device).
        RuntimeError: A tensor is on another device.

    Examples:
        >>> import torch
        >>> from triton_softmax import selective_log_softmax_and_entropy
        >>> logits, kept = torch.zeros(2, 2), torch.tensor([True, False])
        >>> selective_log_softmax_and_entropy(logits, torch.tensor([1, -100]), row_mask=kept)
        (tensor([-0.6931,  0.0000]), tensor([0.6931, 0.0000]))
    """
    tensors = (logits, index, temperature, row_mask)
    if not is_compiling() and has_torch_function_variadic(*tensors):
        return arguments.pass_on(selective_log_softmax_and_entropy, tensors, locals())
    if group is None and vocab_start is None and type(logits).__name__ != "DTensor":
        options = (True, inplace_backward, batch_invariant, temperature, True, row_mask)
        return _of_tokens(logits, index, *options)
    try:
        arguments.check_one_token(logits, index, row_mask, part=group is not None)
        arguments.check_temperature(temperature, logits)
    except Exception as error:
        distributed.tell(group, error)
        raise
    kept: Any = None
    if row_mask is not None:
        kept, logits, index = _without_masked(logits, index, row_mask)
    found, entropy = token_logprobs(
        logits, index, temperature=temperature, return_entropy=True,
        inplace_backward=inplace_backward, batch_invariant=batch_invariant, group=group,
        vocab_start=vocab_start, vocab_size=vocab_size,
    )  # fmt: skip
    return (found, entropy) if kept is None else (found.where(kept, 0.0), entropy.where(kept, 0.0))


def _without_masked(
    logits: Tensor, index: Tensor, row_mask: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Which rows are kept, and copies of logits and index with zeros in the others."""
    kept: Any = row_mask != 0
    if type(logits).__name__ == "DTensor":
        on_mesh_of = distributed.dtensors().on_mesh_of
        kept, index = on_mesh_of(logits, kept), on_mesh_of(logits, index)
    return kept, logits.masked_fill(~kept.unsqueeze(-1), 0.0), index.where(kept, 0)


def _of_tokens(
    logits: Tensor,
    index: Tensor | None,
    entropy: bool,
    in_place: bool,
    batch_invariant: bool,
    temperature: float | Tensor = 1.0,
    one: bool = False,
    row_mask: Tensor | None = None,
    part: arguments.Part | None = None,
) -> tuple[Tensor, Tensor]:
    """Return (log-probabilities, entropies), in float32 for 16-bit logits; each is empty unless
    requested. Rows have `one` token each, and possibly a mask; or any number, without a mask. The
    logits may be a part of the rows."""
    by_rows = isinstance(temperature, Tensor)
    tensors = [logits]
    for each in (index, row_mask, temperature if by_rows else None):
        if each is not None:
            tensors.append(each)
    plain, key = nobody_watches(*tensors), None
    if plain:
        key = ("tokens", one, index is None, row_mask is None)
        for each in tensors:
            key += (each.shape, each.dtype, each.device)
    # A number is no part of the key: it may change every step.
    right = by_rows or (type(temperature) in (int, float) and 0 < temperature < math.inf)
    if key is None or not right or key not in checked:
        if one:
            arguments.check_one_token(logits, index, row_mask)
        arguments.check_index(logits, index)
        arguments.check_temperature(temperature, logits)
        if key is not None:
            checked.keep(key, True)
    # Without classes every index is wrong, and PyTorch's operators would read beside the logits.
    if index is not None and (index.device.type == "cpu" or not logits.shape[-1]):
        if plain or operators.readable(index):
            kept = index if row_mask is None else index.where(row_mask != 0, 0)
            of_all = logits.shape[-1] if part is None else part.total
            arguments.check_classes(kept, of_all)
    on_cpu = not arguments.INTERPRETED and logits.device.type == "cpu"
    if on_cpu or logits.numel() == 0 or (not plain and operators.by_composite()):
        x, kept = logits, None
        if index is not None and row_mask is not None:
            kept, x, index = _without_masked(logits, index, row_mask)
        if by_rows or temperature != 1.0:
            x = composite.upcast(x) / temperature
        results = composite.token_logprobs(x, index, entropy)
        if kept is None:
            return results
        return results[0].where(kept, 0.0), results[1].where(kept, 0.0)
    scale: Tensor | None = None
    factor = 1.0
    if by_rows:
        scale = temperature.to(arguments.accumulator(logits.dtype)).reciprocal()
        scale = scale.squeeze(-1) if scale.dim() else scale.expand(logits.shape[:-1])
    elif is_compiling() or logits.dtype == torch.float64:
        # A compiler makes a number of an operator a constant; a number of a launch is float32.
        unit = logits.new_ones((), dtype=arguments.accumulator(logits.dtype))
        scale = (unit / temperature).expand(logits.shape[:-1])
    else:
        factor = 1.0 / temperature
    if index is not None and part is not None:
        index = part.columns(index, logits.shape[-1])
    options = (factor, entropy, batch_invariant or bool(arguments.contexts), part, plain)
    if torch.is_grad_enabled() and (
        logits.requires_grad or (scale is not None and scale.requires_grad)
    ):
        in_place = in_place and operators.may_be_overwritten(logits, logits)
        apply = _differentiable if plain else _Tokens.apply
        return apply(logits, scale, index, row_mask, in_place, *options)[:2]
    return _forward(logits, scale, index, row_mask, *options)[:2]


def _forward(
    x: Tensor,
    scale: Tensor | None,
    index: Tensor | None,
    row_mask: Tensor | None,
    factor: float,
    entropy: bool,
    invariant: bool,
    part: arguments.Part | None,
    plain: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (log-probabilities, entropies, what the gradient needs)."""
    x, scale = x.detach(), None if scale is None else scale.detach()
    run = run_tokens if plain else operators.token_rows.overload
    several = index is not None and index.dim() == x.dim()
    token = None if several or part is not None else index
    given = (x, scale, token, row_mask, factor, entropy, invariant)
    if index is not None and part is not None:
        wide = composite.accumulator(x.dtype)
        found, entropies, saved, picked = run_tokens(*given, part, at_tokens(x, index).to(wide))
    else:
        found, entropies, saved = run(*given)
        picked = at_tokens(x, index) if several and index is not None else None
    if picked is not None:
        m, log_d, _ = (saved.unsqueeze(-1) if several else saved).unbind()
        z = (picked.to(m.dtype) - m) * factor
        # eq: log-probability
        found = (z if scale is None else z * (scale.unsqueeze(-1) if several else scale)) - log_d
    nothing = x.new_empty(0, dtype=saved.dtype)
    return nothing if index is None else found, entropies if entropy else nothing, saved


class _Tokens(Function):
    """Log-probabilities of tokens and entropies of rows. Their gradient reads the logits once
    more."""

    @staticmethod
    def forward(ctx, x, scale, index, row_mask, in_place, *options):
        found, entropies, saved = _forward(x, scale, index, row_mask, *options)
        ctx.save_for_backward(x, scale, index, row_mask, saved)
        ctx.options = in_place, *options
        ctx.set_materialize_grads(False)
        return found, entropies

    @staticmethod
    def backward(ctx, g, g_entropy):
        nothing = (None,) * 8
        x, scale, index, row_mask, saved = ctx.saved_tensors
        in_place, factor, entropy, _, part, _ = ctx.options
        g = None if index is None else g
        g_entropy = g_entropy if entropy else None
        arrived = [each for each in (g, g_entropy) if each is not None]
        if not arrived:
            return None, None, *nothing
        if not is_compiling() and (torch.is_grad_enabled() or any(map(is_batched, arrived))):
            # A second or a batched derivative may follow, which only the composite has.
            if part is not None:
                raise RuntimeError("logits of several ranks have first derivatives only")
            return *_differentiated(x, scale, index, row_mask, factor, g, g_entropy), *nothing
        several = index is not None and index.dim() == x.dim()
        of_scale, picked, each = ctx.needs_input_grad[1], None, g
        if index is not None and several and g is not None:
            picked = at_tokens(x, index)  # before the gradient overwrites x
            g = g.sum(-1)
        if g is None:
            g = saved.new_zeros(()).expand(x.shape[:-1])
        x = x.detach()
        given = (x, scale, None if several or each is None else index, row_mask)
        if nobody_watches(*arrived):
            out = x if in_place else None
            dx, *more = gradient_of_tokens(*given, factor, saved, g, g_entropy, of_scale, out)
        else:
            dx, *more = operators.token_gradient.overload(
                *given, factor, saved, g, g_entropy, of_scale
            )
            dx = x.copy_(dx) if in_place else dx
        if index is not None and picked is not None:
            gained = each * factor if scale is None else each * (factor * scale).unsqueeze(-1)
            gained = gained.masked_fill(index < 0, 0.0).to(dx.dtype)
            dx.scatter_add_(-1, index.long().clamp(min=0), gained)
        if in_place:
            torch.autograd.graph.increment_version(dx)
        dscale = None
        if of_scale and scale is not None:
            dscale = more[0]
            if picked is not None:
                dscale = dscale + (each * (picked - saved[0].unsqueeze(-1))).sum(-1)
            dscale = (dscale * factor).to(scale.dtype)
        return dx, dscale, *nothing


_differentiable = operators.direct(_Tokens)


def at_tokens(x: Tensor, index: Tensor) -> Tensor:
    """Return the logits of tokens; 0 where a column is −1, as another rank has it."""
    one = index.dim() < x.dim()
    columns = index.long().unsqueeze(-1) if one else index.long()
    found = x.gather(-1, columns.clamp(min=0)).masked_fill(columns < 0, 0.0)
    return found.squeeze(-1) if one else found


def _differentiated(
    x: Tensor,
    scale: Tensor | None,
    index: Tensor | None,
    row_mask: Tensor | None,
    factor: float,
    g: Tensor | None,
    g_entropy: Tensor | None,
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients at x and at the scale, as differentiable functions."""
    leaves = [t for t in (x, scale) if t is not None and t.requires_grad]
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        z, gradients = x, [g, g_entropy]
        if index is not None and row_mask is not None:
            kept, z, index = _without_masked(x, index, row_mask)
            gradients = [None if t is None else torch.where(kept, t, 0.0) for t in gradients]
        z = composite.upcast(z) * (factor if scale is None else factor * scale.unsqueeze(-1))
        results = composite.token_logprobs(z, index, g_entropy is not None)
        pairs = [(r, v) for r, v in zip(results, gradients, strict=True) if v is not None]
        outputs, arrived = zip(*pairs, strict=True)
        found = iter(torch.autograd.grad(outputs, leaves, arrived, create_graph=again))
    dx = next(found) if x.requires_grad else None
    return dx, next(found, None)
