"""Log-probabilities of tokens and entropies of rows: what reinforcement learning asks of logits.

One read of the logits yields a row's maximum, the logarithm of its denominator and its entropy;
log-probabilities follow from these and the logits of the tokens. The gradient of all together takes
one more read and one write.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from . import checks, distributed, invariance, registration
from .checks import check_dtype
from .eager import short, transformed
from .finishing import finish
from .functional import log_softmax
from .ways import wide


def selective_log_softmax(
    logits: Tensor,
    index: Tensor,
    *,
    inplace_backward: bool = False,
    batch_invariant: bool = False,
) -> Tensor:
    """Return `log_softmax(logits, -1).gather(-1, index)`, without the log-softmax of all others.

    Args:
        logits: (…, C), float16, bfloat16, float32 or float64.
        index: Classes, int64 or int32, (…) or (…, K).
        inplace_backward: Write the gradient over the logits in the backward pass, if they are
            contiguous and no leaf.
        batch_invariant: As for `softmax`.

    Returns:
        Log-probabilities in the shape of the index and the dtype of the logits; none above 0.

    Raises:
        TypeError: `logits` has another dtype, or `index` holds no integers.
        ValueError: The shapes do not go together.
        IndexError: An index is out of range (on a GPU, an assertion on the device).

    Examples:
        >>> import torch
        >>> from triton_softmax import selective_log_softmax
        >>> selective_log_softmax(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([2]))
        tensor([-0.4076])
    """
    picked, _ = _of_tokens(logits, index, False, inplace_backward, batch_invariant)
    return picked.to(logits.dtype)


def entropy_from_logits(
    logits: Tensor, *, inplace_backward: bool = False, batch_invariant: bool = False
) -> Tensor:
    """Return the entropy −Σ y·log y of each row, y being the softmax of the logits.

    Shares of 0 count 0, in the entropy and in its gradient. Large logits cost no digits.

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
    """Return the log-probabilities of tokens, and the entropies of their distributions if asked,
    from one read of the logits.

    Args:
        logits: (…, C), float16, bfloat16, float32 or float64.
        index: Classes, int64 or int32, (…) or (…, K).
        temperature: Logits are divided by it first: a number, or a tensor with one for each row, of
            the shape of the logits with 1 in place of C, which then gets a gradient.
        return_entropy: Return entropies (…) as well.
        inplace_backward, batch_invariant: As for `selective_log_softmax`.
        group, vocab_start, vocab_size: As for `cross_entropy`: the logits are those of some
            classes, and the index counts all. In place then without a temperature alone.

    Returns:
        Log-probabilities in the shape of the index, or a pair with the entropies; float32 for
        16-bit logits.

    Raises:
        TypeError, ValueError, IndexError: As for `selective_log_softmax`, and if the temperature
            is neither a positive number nor such a tensor.

    Examples:
        >>> import torch
        >>> from triton_softmax import token_logprobs
        >>> token_logprobs(torch.tensor([[0.0, 0.0]]), torch.tensor([1]), return_entropy=True)
        (tensor([-0.6931]), tensor([0.6931]))
    """
    check_dtype(logits.dtype, "the input")
    if isinstance(temperature, Tensor):
        if not temperature.is_floating_point():
            raise TypeError(
                f"temperature must hold floating-point numbers, not {temperature.dtype}"
            )
        if temperature.dim() and temperature.shape != (*logits.shape[:-1], 1):
            raise ValueError(
                f"temperature must have the shape {(*logits.shape[:-1], 1)}, not "
                f"{tuple(temperature.shape)}"
            )
    elif not (isinstance(temperature, (int, float)) and 0 < temperature < math.inf):
        raise ValueError(f"temperature must be a positive number, not {temperature}")
    if distributed.divided(logits, group, vocab_start):
        if group is not None and isinstance(temperature, Tensor) and temperature.requires_grad:
            raise NotImplementedError("the gradient of a temperature is not summed over the ranks")
        if isinstance(temperature, Tensor) or temperature != 1.0:
            logits = wide(logits) / temperature
        where = (group, vocab_start, vocab_size)
        asked = (return_entropy, inplace_backward, invariance.chosen(None, batch_invariant))
        picked, entropy = distributed.token_logprobs(logits, index, *where, *asked)
    else:
        picked, entropy = _of_tokens(
            logits, index, return_entropy, inplace_backward, batch_invariant, temperature
        )
    return (picked, entropy) if return_entropy else picked


def _of_tokens(
    logits: Tensor,
    index: Tensor | None,
    entropy: bool,
    in_place: bool,
    batch_invariant: bool,
    temperature: float | Tensor = 1.0,
) -> tuple[Tensor, Tensor]:
    """(log-probabilities, entropies), in float32 for 16-bit logits; what is not asked for is
    empty."""
    implementation = invariance.chosen(None, batch_invariant)
    check_dtype(logits.dtype, "the input")
    if logits.dim() == 0:
        raise ValueError("logits need a dimension of classes")
    _check_index(logits, index)
    several = index is not None and index.dim() == logits.dim()
    tempered = isinstance(temperature, Tensor) or temperature != 1.0
    on_cpu = logits.device.type == "cpu" and not checks.INTERPRETED
    if transformed() or logits.numel() == 0 or (on_cpu and tempered):
        scaled = wide(logits) / temperature if tempered else logits
        return _by_operators(scaled, index, entropy)
    x = logits.reshape(-1, logits.shape[-1])
    flat = None
    if index is not None:
        flat = index.reshape(-1, index.shape[-1] if several else 1).long()
    scale, factor = None, 1.0
    if isinstance(temperature, Tensor):
        scale = wide(temperature).reciprocal()
        scale = scale.reshape(-1, 1) if scale.dim() else scale
    elif tempered:
        factor = 1.0 / temperature
    in_place = in_place and not logits.is_leaf and logits.is_contiguous()
    in_place = in_place and not torch.compiler.is_compiling()
    arguments = (flat, scale, entropy, factor, implementation)
    wanted = logits.requires_grad or (scale is not None and scale.requires_grad)
    if torch.is_grad_enabled() and wanted:
        picked, entropies = _Tokens.apply(x, *arguments, in_place)
    else:
        picked, entropies, *_ = _forward(x, *arguments)
    return (
        picked if index is None else picked.view(index.shape),
        entropies.view(logits.shape[:-1]) if entropy else entropies,
    )


def _check_index(logits: Tensor, index: Tensor | None) -> None:
    if index is None:
        return
    if index.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"index must hold int64 or int32, not {index.dtype}")
    if index.shape != logits.shape[:-1] and index.shape[:-1] != logits.shape[:-1]:
        raise ValueError(
            f"index of shape {tuple(index.shape)} does not go with logits of shape "
            f"{tuple(logits.shape)}"
        )
    if index.device.type != "cpu" or torch.compiler.is_compiling() or transformed():
        return
    wrong = (index < 0) | (index >= logits.shape[-1])
    if wrong.any():
        raise IndexError(f"index {index[wrong][0].item()} is out of bounds")


_statistics = short(registration.row_statistics, registration.KERNELS[registration.row_statistics])


def _forward(
    x: Tensor,
    index: Tensor | None,
    scale: Tensor | None,
    entropy: bool,
    factor: float,
    implementation: str | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(log-probabilities, entropies, m, log d)."""
    x = x.detach()
    scale = None if scale is None else scale.detach()
    m, log_d, entropies = _statistics(x, 1, entropy, scale, factor, implementation)
    if index is None:
        return x.new_empty(0), entropies, m, log_d
    picked = x.gather(1, index).to(m.dtype) * (factor if scale is None else scale.to(m.dtype))
    # eq: log-probability
    return (picked - m.unsqueeze(1)) - log_d.unsqueeze(1), entropies, m, log_d


class _Tokens(Function):
    """Log-probabilities (rows × tokens) and entropies of the rows of a matrix, whose gradient reads
    it again: once, since the summaries of rows are kept."""

    @staticmethod
    def forward(ctx, x, index, scale, entropy, factor, implementation, in_place):
        found = _forward(x, index, scale, entropy, factor, implementation)
        ctx.save_for_backward(x, index, scale, *found[1:])
        ctx.arguments = entropy, factor, implementation
        ctx.in_place = in_place
        return found[:2]

    @staticmethod
    def backward(ctx, g, g_entropy):
        x, index, scale, *summary = ctx.saved_tensors
        entropy, factor, implementation = ctx.arguments
        g_entropy = g_entropy if entropy else None
        if not torch.compiler.is_compiling() and torch.is_grad_enabled():
            # Somebody wants a derivative of this as well, and gets it from operators that have one.
            dx, dscale = _differentiable(x, index, scale, factor, g, g_entropy)
            return dx, None, dscale, *(None,) * 4
        picked = None
        if index is not None and index.shape[1] > 1:
            picked = x.gather(1, index)  # before anything is written over x
        tokens = _one_token(x, index, g)
        of_scale = scale is not None and ctx.needs_input_grad[2]
        dx = x.detach()
        dscale: Any = None
        if scale is None and factor == 1.0:
            dx = _from_summaries(dx, tokens, g_entropy, summary, dx if ctx.in_place else None)
        else:
            arguments = (*tokens, g_entropy, 1, scale, factor, implementation, of_scale)
            if ctx.in_place:
                dscale = registration.tokens_backward_(dx, *arguments)
            else:
                dx, dscale = registration.tokens_backward(x, *arguments)
        if index is not None and picked is not None:
            dx.scatter_add_(1, index, (g * (factor if scale is None else scale)).to(dx.dtype))
        if ctx.in_place:
            torch.autograd.graph.increment_version(dx)
        if scale is None or not of_scale:
            return dx, None, None, *(None,) * 4
        if picked is not None:
            dscale = dscale + (g * picked).sum(1, keepdim=True)
        return dx, None, dscale.sum_to_size(scale.shape).to(scale.dtype), *(None,) * 4


def _one_token(x: Tensor, index: Tensor | None, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(class, what arrived for it, its logit) of rows with one token. The class is −1 without a
    token, and with several; these get −y times the sum of what arrived, as one would, and what they
    get more is added later."""
    if index is not None and index.shape[1] == 1:
        return index[:, 0], g[:, 0], x.gather(1, index)[:, 0]
    target = torch.full_like(x[:, 0], -1, dtype=torch.int64)
    g = wide(g.new_zeros(())).expand(len(x)) if index is None else g.sum(1)
    return target, g, g


def _from_summaries(
    x: Tensor,
    tokens: tuple[Tensor, Tensor, Tensor],
    g_entropy: Tensor | None,
    summary: list[Tensor],
    out: Tensor | None,
) -> Tensor:
    """The gradient at x of rows whose entropy, m and log d are known."""
    entropies, m, log_d = summary
    target, g, _ = tokens
    # eq: entropy-gradient, log-probability-gradient
    g, over_d = g.to(m.dtype), (-log_d).exp()
    if g_entropy is None:
        kind, numbers = "gradient", (m, target, -g, -g * over_d, torch.zeros_like(m))
    else:
        h = g_entropy.to(m.dtype) * over_d
        f = h * (log_d - entropies) - g * over_d
        kind, numbers = "tokens_gradient", (m, target, g, f, h)
    return finish(kind, (x,), numbers, x.dtype, out)


def _differentiable(
    x: Tensor,
    index: Tensor | None,
    scale: Tensor | None,
    factor: float,
    g: Tensor,
    g_entropy: Tensor | None,
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients at x and at the scale, as functions that have derivatives of their own."""
    leaves = [t for t in (x, scale) if t is not None and t.requires_grad]
    z = wide(x) * (factor if scale is None else scale)
    results = _by_operators(z, index, g_entropy is not None)
    pairs = [(r, v) for r, v in zip(results, (g, g_entropy), strict=True) if r.numel()]
    outputs, arrived = zip(*pairs, strict=True)
    found = iter(torch.autograd.grad(outputs, leaves, arrived, create_graph=True))
    dx = next(found) if x.requires_grad else None
    return dx, next(found) if scale is not None and scale.requires_grad else None


def _by_operators(logits: Tensor, index: Tensor | None, entropy: bool) -> tuple[Tensor, Tensor]:
    """The same by PyTorch's operators around our log-softmax, which have every derivative."""
    y = log_softmax(wide(logits), -1)
    picked = entropies = y.new_empty(0)
    if index is not None:
        several = index.dim() == y.dim()
        index = (index if several else index.unsqueeze(-1)).long()
        picked = y.gather(-1, index)
        picked = picked if several else picked.squeeze(-1)
    if entropy:
        # 0 times −∞ counts as 0, here and in the gradient.
        finite = torch.where(y == -torch.inf, 0.0, y)
        entropies = -(y.exp() * finite).sum(-1)
    return picked, entropies
