"""Log-probabilities of tokens and entropies of rows, as reinforcement learning needs them.

One read of the logits yields a row's maximum, the logarithm of its denominator, and its entropy;
log-probabilities follow from these and the tokens' logits. The gradient of all of them takes one
more read and one write.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.compiler import is_compiling
from torch.overrides import has_torch_function_variadic

from . import arguments, composite, distributed, layout, operators, plan
from .arguments import Modifiers
from .launch import checked
from .operations.cross_entropy import GIVEN_GRADIENT
from .operations.token_statistics import (
    ENTROPY,
    GIVEN_TOKENS_GRADIENT,
    SELECTED_VJP,
    STATISTICS,
    TOKENS_VJP,
)
from .operators import finish, is_batched, nobody_watches, run_rows


def selective_log_softmax(
    logits: Tensor, index: Tensor, *, inplace_backward: bool = False, batch_invariant: bool = False
) -> Tensor:
    """Return `log_softmax(logits, -1).gather(-1, index)`, without storing the whole log-softmax.

    Args:
        logits: (…, C), float16, bfloat16, float32 or float64.
        index: Classes, int64 or int32, (…) or (…, K).
        inplace_backward: Where kernels compute, write the gradient over the logits in the backward
            pass, if they are contiguous and not a leaf.
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
        if type(logits) is not Tensor:
            arguments.check_dense(logits, "the input")
        tempered = type(temperature) not in (int, float) or temperature != 1.0
        if tempered:
            arguments.check_temperature(temperature, logits)
        if group is not None and isinstance(temperature, Tensor) and temperature.requires_grad:
            raise NotImplementedError("the gradient of a temperature is not summed over ranks")
        invariant = bool(batch_invariant or arguments.contexts)
        if tempered and not invariant:
            logits, temperature = composite.upcast(logits) / temperature, 1.0
        found, entropy = distributed.token_logprobs(
            token_logprobs, logits, index, group, vocab_start, vocab_size, return_entropy,
            inplace_backward, temperature, invariant,
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
    arguments.check_one_token(logits, index, row_mask)
    arguments.check_temperature(temperature, logits)
    whole = group is None and vocab_start is None and not batch_invariant
    if whole and _in_one_loop(logits, index, temperature, row_mask):
        in_place = inplace_backward and operators.may_be_overwritten(logits, logits)
        inputs = (logits, index) if row_mask is None else (logits, index, row_mask)
        return _differentiable_one(1.0 / temperature, in_place, *inputs)
    kept: Any = None
    if row_mask is not None:
        kept, logits, index = _without_masked(logits, index, row_mask)
    found, entropy = token_logprobs(
        logits, index, temperature=temperature, return_entropy=True,
        inplace_backward=inplace_backward, batch_invariant=batch_invariant, group=group,
        vocab_start=vocab_start, vocab_size=vocab_size,
    )  # fmt: skip
    if kept is None:
        return found, entropy.clone()  # the backward pass needs the other
    return found.where(kept, 0.0), entropy.where(kept, 0.0)


LONG = 1024
"""Shorter rows share programs, and take less time by the other kernels."""


def _in_one_loop(
    logits: Tensor, index: Tensor, temperature: float | Tensor, row_mask: Tensor | None
) -> bool:
    """Whether one kernel computes both results: in plain calls. It gives a row other bits than a
    batch-invariant call, and has no float64. On a CPU this checks the classes."""
    if isinstance(temperature, Tensor) or arguments.contexts or not arguments.by_kernels(logits):
        return False
    fits = LONG <= logits.shape[-1] < 2**31 - 2**16 and logits.dtype != torch.float64
    if not fits or not nobody_watches(logits, index if row_mask is None else row_mask, index):
        return False
    if index.device.type == "cpu":
        kept = index if row_mask is None else index.where(row_mask != 0, 0)
        arguments.check_classes(kept, logits.shape[-1])
    return True


def _without_masked(
    logits: Tensor, index: Tensor, row_mask: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Which rows are kept, and copies of logits and index with zeros in the others."""
    kept: Any = row_mask != 0
    if type(logits).__name__ == "DTensor":
        on_mesh_of = distributed.dtensors().on_mesh_of
        kept, index = on_mesh_of(logits, kept), on_mesh_of(logits, index)
    return kept, logits.masked_fill(~kept.unsqueeze(-1), 0.0), index.where(kept, 0)


class _OneToken(Function):
    """`plan.tokens_of_rows`; its gradient reads the logits once more."""

    @staticmethod
    def forward(ctx, scale, in_place, logits, *of_rows):
        found, entropies, saved = plan.tokens_of_rows((logits.detach(), *of_rows), scale)
        ctx.save_for_backward(saved, logits, *of_rows)
        ctx.options = scale, in_place
        return found, entropies

    @staticmethod
    def backward(ctx, *gradients):
        saved, logits, *of_rows = ctx.saved_tensors
        scale, in_place = ctx.options
        if torch.is_grad_enabled() or any(map(is_batched, gradients)):
            # A second or a batched derivative may follow, which only the composite has.
            again = torch.is_grad_enabled()
            with torch.enable_grad():
                x, index = logits, of_rows[0]
                if len(of_rows) > 1:
                    kept, x, index = _without_masked(logits, *of_rows)
                    gradients = [torch.where(kept, each, 0.0) for each in gradients]
                both = composite.token_logprobs(composite.upcast(x) * scale, index, True)
                (dx,) = torch.autograd.grad(both, logits, gradients, create_graph=again)
        else:
            x = logits.detach()
            dx = plan.gradient_of_tokens(
                (x, *of_rows), scale, saved, gradients, x if in_place else None
            )
            if in_place:
                torch.autograd.graph.increment_version(dx)
        return None, None, dx, *[None for _ in of_rows]


_differentiable_one = operators.direct(_OneToken)


def _of_tokens(
    logits: Tensor,
    index: Tensor | None,
    entropy: bool,
    in_place: bool,
    batch_invariant: bool,
    temperature: float | Tensor = 1.0,
) -> tuple[Tensor, Tensor]:
    """Return (log-probabilities, entropies), in float32 for 16-bit logits; each is empty unless
    requested."""
    by_rows = isinstance(temperature, Tensor)
    tensors = [logits] if index is None else [logits, index]
    if by_rows:
        tensors.append(temperature)
    plain, key = nobody_watches(*tensors), None
    if plain and (by_rows or type(temperature) in (int, float)):  # the checks reject all else
        key = ("tokens", index is None, None if by_rows else temperature)
        for each in tensors:
            key += (each.shape, each.dtype, each.device)
    if key is None or key not in checked:
        arguments.check_index(logits, index)
        arguments.check_temperature(temperature, logits)
        if key is not None:
            checked.keep(key, True)
    # Without classes every index is wrong, and PyTorch's operators would read beside the logits.
    if index is not None and (index.device.type == "cpu" or not logits.shape[-1]):
        if plain or operators.readable(index):
            of_all = arguments.n_classes(logits, -1, batch_invariant)
            arguments.check_classes(index, of_all)
    tempered = by_rows or temperature != 1.0
    on_cpu = not arguments.INTERPRETED and logits.device.type == "cpu"
    if on_cpu or logits.numel() == 0 or (not plain and operators.by_composite()):
        scaled = composite.upcast(logits) / temperature if tempered else logits
        return composite.token_logprobs(scaled, index, entropy)
    x = logits if logits.dim() == 2 else logits.reshape(-1, logits.shape[-1])
    flat = None
    if index is not None:
        flat = index.reshape(-1, index.shape[-1] if index.dim() == logits.dim() else 1).long()
    scale: Any = None
    if by_rows:
        scale = composite.upcast(temperature).reciprocal()
        scale = scale.reshape(-1, 1) if scale.dim() else scale
    elif tempered:
        scale = 1.0 / temperature
    invariant: Any = batch_invariant or bool(arguments.contexts)
    if isinstance(invariant, tuple):
        x, flat = layout.on_vectors(x), invariant.columns(flat, x.shape[1])
    options = (flat, scale, entropy, invariant, plain)
    wanted = logits.requires_grad or (by_rows and temperature.requires_grad)
    if wanted and torch.is_grad_enabled():
        in_place = in_place and operators.may_be_overwritten(logits, logits)
        apply = _differentiable if plain else _Tokens.apply
        found, entropies = apply(x, *options, in_place)
    else:
        found, entropies, *_ = _forward(x, *options)
    return (
        found if index is None else found.view(index.shape),
        entropies.view(logits.shape[:-1]) if entropy else entropies,
    )


def _forward(
    x: Tensor,
    index: Tensor | None,
    scale: float | Tensor | None,
    entropy: bool,
    invariant: bool,
    plain: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return (log-probabilities, entropies, m, log d)."""
    x = x.detach()
    modifiers = None
    if scale is not None:
        scale = scale.detach() if isinstance(scale, Tensor) else scale
        modifiers = Modifiers(scale)
    op, dtype = ENTROPY if entropy else STATISTICS, torch.promote_types(x.dtype, torch.float32)
    picked = None
    if isinstance(invariant, tuple):
        of = {"picked": _at(x, index, invariant).to(dtype)}
        if modifiers is None:
            *found, picked = plan.plan_of(op, (x,), 1, dtype, None, invariant)(x, **of)
        else:
            given = (op, (x,), (), modifiers, 1, dtype)
            *found, picked = plan.run_modified(*given, invariant=invariant, **of)
    else:
        found = run_rows(plain, op, (x,), (), 1, dtype, modifiers, invariant)
    m, log_d = found[:2]
    entropies = found[2] if entropy else x.new_empty(0, dtype=dtype)
    if index is None:
        return x.new_empty(0), entropies, m, log_d
    picked = x.gather(1, index).to(dtype) if picked is None else picked
    if scale is not None:
        picked = picked * (scale.to(dtype) if isinstance(scale, Tensor) else scale)
    # eq: log-probability
    return (picked - m.unsqueeze(1)) - log_d.unsqueeze(1), entropies, m, log_d


class _Tokens(Function):
    """Log-probabilities (rows × tokens) and entropies of a matrix's rows. The row summaries are
    saved, so the gradient rereads the matrix only once."""

    @staticmethod
    def forward(ctx, x, index, scale, entropy, invariant, plain, in_place):
        found = _forward(x, index, scale, entropy, invariant, plain)
        by_rows = isinstance(scale, Tensor)
        ctx.save_for_backward(x, index, scale if by_rows else None, *found[1:])
        ctx.options = None if by_rows else scale, entropy, invariant, in_place
        return found[:2]

    @staticmethod
    def backward(ctx, g, g_entropy):
        x, index, scale, *summary = ctx.saved_tensors
        factor, entropy, invariant, in_place = ctx.options
        scale = factor if scale is None else scale
        g_entropy = g_entropy if entropy else None
        if not is_compiling() and (
            torch.is_grad_enabled()
            or is_batched(g)
            or (g_entropy is not None and is_batched(g_entropy))
        ):
            # A second or a batched derivative may follow, which only the composite has.
            if isinstance(invariant, tuple):
                raise RuntimeError("logits of several ranks have first derivatives only")
            dx, dscale = _differentiated(x, index, scale, g, g_entropy)
            return dx, None, dscale, *(None,) * 4
        of_scale = ctx.needs_input_grad[2]
        several, picked = index is not None and index.shape[1] > 1, None
        if several and of_scale:
            picked = x.gather(1, index)  # before the gradient overwrites x
        tokens = _one_token(x, index, g, scale is not None, invariant)
        dx: Any = x.detach()
        dscale: Any = None
        if scale is None:
            dx = _from_summaries(dx, tokens, g_entropy, summary, dx if in_place else None)
        else:
            op, numbers = SELECTED_VJP, tokens
            if g_entropy is not None:
                op, numbers = TOKENS_VJP, (*tokens, g_entropy)
            dx, *more = run_rows(
                nobody_watches(g), op, (dx,), numbers, 1, x.dtype, Modifiers(scale), invariant,
                in_place, after=True, of_scale=of_scale,
            )  # fmt: skip
            dscale = more[0] if of_scale else None
        if several:
            gained = (g if scale is None else g * scale).to(dx.dtype)
            if isinstance(invariant, tuple):
                index, gained = index.clamp(min=0), gained.masked_fill(index < 0, 0.0)
            dx.scatter_add_(1, index, gained)
        if in_place:
            torch.autograd.graph.increment_version(dx)
        if dscale is not None and scale is not None:
            if picked is not None:
                dscale = dscale + (g * picked).sum(1, keepdim=True)
            dscale = dscale.sum_to_size(scale.shape).to(scale.dtype)
        return dx, None, dscale, *(None,) * 4


_differentiable = operators.direct(_Tokens)


def _at(x: Tensor, index: Tensor, invariant: Any) -> Tensor:
    """Return the logits of tokens; 0 of those that another rank has."""
    if not isinstance(invariant, tuple):
        return x.gather(1, index)
    return x.gather(1, index.clamp(min=0)).masked_fill(index < 0, 0.0)


def _one_token(
    x: Tensor, index: Tensor | None, g: Tensor, scaled: bool, invariant: Any
) -> tuple[Any, Any, Any]:
    """Return (class, its logit if `scaled`, its incoming gradient) of rows with one token, as
    `SELECTED_VJP` takes them. The class is −1 if a row has no token or several; several get −y
    times the sum of their gradients here, and the rest at the tokens is added later."""
    if index is not None and index.shape[1] == 1:
        return index[:, 0], _at(x, index, invariant)[:, 0] if scaled else None, g[:, 0]
    target = torch.full_like(x[:, 0], -1, dtype=torch.int64)
    g = composite.upcast(g.new_zeros(())).expand(len(x)) if index is None else g.sum(1)
    return target, g, g


def _from_summaries(
    x: Tensor,
    tokens: tuple[Any, Any, Any],
    g_entropy: Tensor | None,
    summary: list[Tensor],
    out: Tensor | None,
) -> Tensor:
    """Return the gradient at x from the known entropy, m and log d of each row."""
    entropies, m, log_d = summary
    target, _, g = tokens
    # eq: entropy-gradient, log-probability-gradient
    g, over_d = g.to(m.dtype), (-log_d).exp()
    if g_entropy is None:
        op, numbers = GIVEN_GRADIENT, (m, target, -g, -g * over_d, torch.zeros_like(m))
    else:
        h = g_entropy.to(m.dtype) * over_d
        f = h * (log_d - entropies) - g * over_d
        op, numbers = GIVEN_TOKENS_GRADIENT, (m, target, g, f, h)
    return finish(op, (x,), numbers, x.dtype, out)


def _differentiated(
    x: Tensor,
    index: Tensor | None,
    scale: float | Tensor | None,
    g: Tensor,
    g_entropy: Tensor | None,
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients at x and at the scale, as differentiable functions."""
    leaves = [t for t in (x, scale) if isinstance(t, Tensor) and t.requires_grad]
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        z = composite.upcast(x) * (1.0 if scale is None else scale)
        results = composite.token_logprobs(z, index, g_entropy is not None)
        pairs = [(r, v) for r, v in zip(results, (g, g_entropy), strict=True) if r.numel()]
        outputs, arrived = zip(*pairs, strict=True)
        found = iter(torch.autograd.grad(outputs, leaves, arrived, create_graph=again))
    dx = next(found) if x.requires_grad else None
    return dx, next(found, None)
