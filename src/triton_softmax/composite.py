"""Every operation as a composite of PyTorch operators.

Composites compute what the kernels do, and are differentiable any number of times, in reverse and
forward mode and in every transform of `torch.func`. They serve CPU tensors outside the interpreter,
transforms, derivatives beyond the first, and the short rows that Inductor fuses; tests compare the
kernels with them.

A dimension counts from the front. 16-bit elements are upcast to float32.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .arguments import LossOptions, Modifiers, accumulator, is_empty, row_length
from .operations.logsumexp import LOGSUMEXP, LOGSUMEXP_VJP
from .operations.operation import Operation
from .operations.softmax import LOG_SOFTMAX, LOG_SOFTMAX_VJP, SOFTMAX, SOFTMAX_VJP


def upcast(t: Tensor) -> Tensor:
    """Return 16-bit tensors as float32, and others unchanged."""
    return t.float() if t.dtype in (torch.float16, torch.bfloat16) else t


def from_maximum(x: Tensor, dim: int, finite: bool = False) -> tuple[Tensor, Tensor]:
    """Return the maximum m of each row, and x − m; with `finite` relative to the largest number
    where m is +inf."""
    rows = x.detach()  # the maximum cancels in every result
    m = rows.amax(dim, keepdim=True) if x.shape[dim] else rows.sum(dim, keepdim=True) - torch.inf
    shift = m.clamp(max=torch.finfo(m.dtype).max) if finite else m
    return m.squeeze(dim), x - shift.masked_fill(m == -torch.inf, 0.0)


def logsumexp(x: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    """Return m + log Σ exp(x − m), whose gradient is the softmax of x.

    `torch.logsumexp` has the gradient exp(x − lse), which inherits the rounding error of a large
    lse. Here m is detached, since the result does not depend on it. If it is +inf, the terms are
    those of finite elements relative to the largest number: 0.
    """
    m, t = from_maximum(upcast(x) if x.dim() else upcast(x).reshape(1), dim, finite=True)
    return (m + t.exp().sum(dim).log()).to(dtype)


def softmax_vjp(y: Tensor, dy: Tensor, s: Tensor) -> Tensor:
    """Return the gradient at x of y = softmax(x), from s = Σ y·dy."""
    # eq: softmax-vjp
    return y * (dy - s)


def log_softmax_vjp(y: Tensor, dy: Tensor, s: Tensor) -> Tensor:
    """Return the gradient at x of y = log_softmax(x), from s = Σ dy."""
    # eq: log-softmax-vjp
    return dy - y.exp() * s


def softmax_backward(y: Tensor, dy: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    y, dy = upcast(y), upcast(dy)
    return softmax_vjp(y, dy, (y * dy).sum(dim, keepdim=True)).to(dtype)


def log_softmax_backward(y: Tensor, dy: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    y, dy = upcast(y), upcast(dy)
    return log_softmax_vjp(y, dy, dy.sum(dim, keepdim=True)).to(dtype)


def logsumexp_backward(x: Tensor, dlse: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    x, dlse = upcast(x), upcast(dlse.unsqueeze(dim) if x.dim() else dlse)
    m = x.detach().amax(dim, keepdim=True)
    # If the maximum is +inf, finite elements get 0, where softmax would give NaN.
    p = torch.where(m == torch.inf, (x - m).exp(), torch.softmax(x, dim))
    # eq: logsumexp-gradient
    return (p * dlse).to(dtype)


# Score modifiers.


def kept_places(x: Tensor, modifiers: Modifiers) -> Tensor | None:
    """Return the mask of kept elements, broadcastable to x; None if all are kept."""
    kept = modifiers.where
    if modifiers.causal:
        n = x.shape[-1]
        below = torch.ones(n, n, dtype=torch.bool, device=x.device).tril()
        kept = below if kept is None else kept & below
    return kept


def modified_elements(x: Tensor, modifiers: Modifiers) -> Tensor:
    """Return x after scale, soft cap and bias: the argument of softmax."""
    scale, softcap, bias, *_ = modifiers
    z = upcast(x)
    if isinstance(scale, Tensor):
        z = z * scale.to(z.dtype)
    elif scale != 1.0:
        z = z * scale
    if softcap is not None:
        z = softcap * torch.tanh(z / softcap)
    return z if bias is None else z + bias.to(z.dtype)


def masked_elements(x: Tensor, kept: Tensor | None, modifiers: Modifiers) -> Tensor:
    """Return x after scale, soft cap and bias where it is kept, and −∞ elsewhere."""
    if kept is None:
        return modified_elements(x, modifiers)
    # What a masked element holds must not reach a gradient.
    z = modified_elements(x.masked_fill(~kept, 0.0), modifiers)
    return z.masked_fill(~kept, -math.inf)


def modified_softmax(
    log: bool, x: Tensor, dim: int, dtype: torch.dtype, modifiers: Modifiers
) -> Tensor:
    """Return softmax or log-softmax with score modifiers, contiguous."""
    empty = -math.inf if log else 0.0
    function = torch.log_softmax if log else torch.softmax
    x, kept = x.to(dtype), kept_places(x, modifiers)
    z = masked_elements(x, kept, modifiers)
    dead = (z == -math.inf).all(dim, keepdim=True)
    if modifiers.sink is not None:  # which takes everything, unless it is −∞ as well
        dead = dead & (modifiers.sink == -math.inf)
    if modifiers.safe:
        z = z.masked_fill(dead, 0.0)  # any finite value: replaced below
    if modifiers.sink is None:
        y = function(z, dim)
    else:
        sink = modifiers.sink.to(z.dtype)
        sink = sink.masked_fill(sink == math.inf, torch.finfo(z.dtype).max)
        shape = [1 if i == dim else size for i, size in enumerate(z.shape)]
        y = function(torch.cat([z, sink.expand(shape)], dim), dim).narrow(dim, 0, z.shape[dim])
        y = y.masked_fill((modifiers.sink == math.inf) & (y == y), empty)
    if modifiers.safe:
        y = y.masked_fill(dead | (y == empty), empty)
    if kept is not None:
        y = y.masked_fill(~kept, empty)
        y = y if modifiers.safe else y.masked_fill(dead & ~kept, math.nan)
    return y.to(dtype).contiguous()


def modified_softmax_backward(
    log: bool, dy: Tensor, y: Tensor, x: Tensor | None, dim: int, modifiers: Modifiers
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """Return the gradients at x, at the modified elements and at each row's scale, and the row
    sum, as differentiable functions of y, dy and x."""
    dy, y = upcast(dy), upcast(y)
    empty = -math.inf if log else 0.0
    kept = kept_places(y, modifiers)
    if not (x is None or kept is None):  # what a masked element holds must not reach a derivative
        x = x.masked_fill(~kept, 0.0)
    if modifiers.safe:
        there = y != empty
        kept = there if kept is None else kept & there
    if kept is not None:
        dy, y = dy.masked_fill(~kept, 0.0), y.masked_fill(~kept, empty)
    total = (dy if log else dy * y).sum(dim, keepdim=True)
    dz = (log_softmax_vjp if log else softmax_vjp)(y, dy, total)
    dz = dz if kept is None else dz.masked_fill(~kept, 0.0)
    du, of_scale = dz, None
    if modifiers.softcap is not None:
        assert x is not None
        u = modified_elements(x, Modifiers(modifiers.scale))
        slope = 1.0 - torch.tanh(u / modifiers.softcap) ** 2
        du = dz * slope.masked_fill((dz == 0.0) & slope.isnan(), 0.0)
    if x is not None:
        # What a masked element holds must not reach the sum. An element whose gradient happens to
        # be 0 still has a derivative.
        x = upcast(x)
        of_scale = (du * x.masked_fill((du == 0.0) & ~x.isfinite(), 0.0)).sum(dim, keepdim=True)
    scale = modifiers.scale
    return du * (scale.to(du.dtype) if isinstance(scale, Tensor) else scale), dz, of_scale, total


# Cross-entropy. A row's loss is b·(lse − x_target) + c·Σ q·(lse − x) + z·lse², where b and c weight
# the target and a distribution q, which defaults to 1 for each class.


class RowScalars(NamedTuple):
    """The scalars of each row that a cross-entropy needs, in the shape of the targets."""

    target: Tensor
    """The class; −1 if the row is ignored, −2 if the target is a distribution."""
    factor: Tensor
    """b, the factor of the target's term: the class weight, divided by the total weight for a mean,
    less what label smoothing takes from it."""
    z_factor: Tensor
    """z, the factor of the squared log-sum-exp."""
    everywhere: Tensor | None
    """c, the factor of every class, or of the distribution; None without."""
    distribution: Tensor | None = None
    """q, in the shape of the logits; None if it is 1 for every class."""

    def times(self, g: Tensor) -> "RowScalars":
        """Return the scalars of losses that are multiplied by g."""
        target, *factors, q = self
        scaled: Any = [target, *[None if each is None else each * g for each in factors], q]
        return RowScalars(*scaled)

    def chunk(self, start: int, end: int) -> "RowScalars":
        """Return the scalars of a range of rows."""
        rows: Any = [None if each is None else each[start:end] for each in self]
        return RowScalars(*rows)


def scalars_of_classes(
    target: Tensor, weight: Tensor | None, n_classes: int, dtype: torch.dtype, options: LossOptions,
    of_all: Callable[[Tensor], Tensor] | None = None,
) -> RowScalars:  # fmt: skip
    """Return the scalars of rows with class targets, in the accumulator dtype. For a mean over rows
    that others have too, `of_all` sums over all of them."""
    kept = target != options.ignore_index
    classes = target.masked_fill(~kept, 0).long()
    # A negative one would mark a row, or count from the end: beyond all classes, reading it fails.
    classes = classes.masked_fill(classes < 0, n_classes)
    each = kept.to(dtype)
    factor = each
    if weight is not None and len(weight):
        # A compiler would read the index of a single row, as of no dimension.
        factor = weight.to(dtype)[classes.unsqueeze(-1)].squeeze(-1) * each
    z_factor, epsilon = options.z_loss * each, options.label_smoothing
    everywhere = each * (epsilon / max(1, n_classes))  # a distribution holds the weights
    if options.reduction == "mean":
        rows, weights = each.sum(), factor.sum()
        if of_all is not None:
            rows, weights = of_all(torch.stack([rows, weights])).unbind()
        z_factor, everywhere, factor = z_factor / rows, everywhere / weights, factor / weights
    marked = classes.masked_fill(~kept, -1)
    if epsilon == 0.0:
        return RowScalars(marked, factor, z_factor, None)
    q, dim = None, options.dim
    if weight is not None:
        shape = (*target.shape[:dim], n_classes, *target.shape[dim:])
        q = along(weight.to(dtype), dim, len(shape)).expand(shape)
    return RowScalars(marked, factor * (1.0 - epsilon), z_factor, everywhere, q)


def along(t: Tensor, dim: int, ndim: int) -> Tensor:
    """Return a vector as a view of `ndim` dimensions that lies along `dim`."""
    return t.view([-1 if i == dim else 1 for i in range(ndim)])


def scalars(
    x: Tensor, target: Tensor, weight: Tensor | None, options: LossOptions,
    of_all: Callable[[Tensor], Tensor] | None = None,
) -> RowScalars:  # fmt: skip
    """Return the scalars of rows whose targets are classes or distributions; `of_all` is as for
    `scalars_of_classes`."""
    dim, dtype = options.dim, accumulator(x.dtype)
    if not target.is_floating_point():
        n_classes = row_length(x, dim, options.part)
        return scalars_of_classes(target, weight, n_classes, dtype, options, of_all)
    shape = x.shape[:dim] + x.shape[dim + 1 :]
    mean, n_rows = options.reduction == "mean", math.prod(shape)
    share = 1.0 / max(1, n_rows) if mean and of_all is None else 1.0
    marked = x.new_full((), -2, dtype=torch.int64).expand(shape)
    # Two tensors, because `torch.compile` rejects passing one twice.
    b, z = [x.new_zeros((), dtype=dtype).expand(shape) for _ in range(2)]
    everywhere = x.new_full((), share, dtype=dtype).expand(shape)
    if mean and of_all is not None:
        everywhere = everywhere / of_all(everywhere.new_full((1,), n_rows))
    return RowScalars(marked, b, z, everywhere, distribution_of(x, target, weight, options))


def distribution_of(
    x: Tensor, target: Tensor, weight: Tensor | None, options: LossOptions
) -> Tensor:
    """Return probability targets as a distribution q: smoothed, and weighted by class."""
    dtype, epsilon, dim = accumulator(x.dtype), options.label_smoothing, options.dim
    if epsilon > 0.0:
        n_classes = row_length(x, dim, options.part)
        target = target.to(dtype) * (1.0 - epsilon) + epsilon / n_classes
    return target if weight is None else target * along(weight.to(dtype), dim, x.dim())


def picked(x: Tensor, target: Tensor, dim: int) -> Tensor:
    """Return the target logit of each row; the first logit if the row has no target."""
    if is_empty(x):
        return x.sum(dim)
    return x.gather(dim, target.clamp(min=0).unsqueeze(dim)).squeeze(dim)


def modified_logits(x: Tensor, target: Tensor, options: LossOptions) -> Tensor:
    """Return the logits after scale and soft cap, 0 in ignored rows: what these hold must not reach
    derivatives."""
    modified = options.scale != 1.0 or options.softcap is not None
    if modified and not target.is_floating_point():
        x = x.masked_fill((target == options.ignore_index).unsqueeze(options.dim), 0.0)
    return modified_elements(x, Modifiers(options.scale, options.softcap))


def row_losses(x: Tensor, scalars: RowScalars, options: LossOptions) -> tuple[Tensor, Tensor]:
    """Return the loss and log-sum-exp of each row of logits."""
    (target, b, z, c, q), dim = scalars, options.dim
    x = modified_logits(x, target, options._replace(ignore_index=-1))
    x = x.masked_fill((target == -1).unsqueeze(dim), 0.0)
    m, t = from_maximum(x, dim)
    log_d = t.exp().sum(dim).log()
    lse = m + log_d
    # eq: cross-entropy-from-summary, cross-entropy-smoothed, cross-entropy-distribution
    losses = b * ((m - picked(x, target, dim)) + log_d)
    if c is not None:
        q = None if q is None else q.to(x.dtype)
        w, a = (x.shape[dim], t.sum(dim)) if q is None else (q.sum(dim), (q * t).sum(dim))
        losses = losses.masked_fill(target < 0, 0.0) + c * (w * log_d - a)
    losses = losses + z * lse * lse if options.z_loss else losses
    kept = target != -1
    return torch.where(kept, losses, z), lse.masked_fill(~kept, 0.0)


def cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None, options: LossOptions
) -> tuple[Tensor, Tensor]:
    """Return the loss (divided by n for a mean) and log-sum-exp of each row."""
    if target.is_floating_point() and not x.numel():
        losses = (upcast(x) * target).sum(options.dim)  # 0, and their mean is NaN
        losses = losses.sum() / 0.0 if options.reduction == "mean" else losses
        return losses, torch.logsumexp(upcast(x), options.dim)
    return row_losses(x, scalars(x, target, weight, options), options)


# Log-probabilities and entropies.


def tempered(x: Tensor, temperature: float | Tensor) -> Tensor:
    """Return logits divided by a temperature, in the accumulator dtype; NaN unless it is
    positive."""
    x = upcast(x)
    if isinstance(temperature, Tensor):
        temperature = temperature.to(x.dtype).clamp(max=torch.finfo(x.dtype).max)
        zero = torch.zeros_like(temperature)
        temperature = temperature + zero.masked_fill(~(temperature > 0.0), math.nan)
    return x / temperature


def token_logprobs(logits: Tensor, index: Tensor | None, entropy: bool) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities of tokens, (…) or (…, K) like the index, and the entropies of
    rows; each is empty unless requested."""
    x = upcast(logits)
    nothing = x.new_empty(0)
    m = log_d = entropies = x.sum(-1)  # 0 without classes
    if x.shape[-1]:
        m, t = from_maximum(x, -1)
        # eq: entropy-terms
        e = t.exp()
        d, a = e.sum(-1), (e * t.masked_fill(e == 0.0, 0.0)).sum(-1)
        # eq: entropy-from-summary
        log_d, entropies = d.log(), d.log() - a / d
    if index is None:
        return nothing, entropies
    several = index.dim() == x.dim()
    found = x.gather(-1, (index if several else index.unsqueeze(-1)).long())
    # eq: log-probability
    found = (found - m.unsqueeze(-1)) - log_d.unsqueeze(-1)
    return found if several else found.squeeze(-1), entropies if entropy else nothing


# The CPU replacements of the kernels, outside the interpreter. Each takes an operation's inputs,
# `dim`, and the dtype of the result.


KERNEL_OF: dict[Operation, Callable[..., Any]] = {
    SOFTMAX: torch.softmax,
    SOFTMAX_VJP: softmax_backward,
    LOG_SOFTMAX: torch.log_softmax,
    LOG_SOFTMAX_VJP: log_softmax_backward,
    LOGSUMEXP: logsumexp,
    LOGSUMEXP_VJP: logsumexp_backward,
}
"""The CPU replacement of each operation's kernel. Losses and log-probabilities have none: there
PyTorch differentiates `cross_entropy` and `token_logprobs`."""
