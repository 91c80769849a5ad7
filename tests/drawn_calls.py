"""Calls of every function with options drawn at random, beside the same by PyTorch's operators."""

import math
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

import triton_softmax as ours
from in_float64 import INF, NAN, cross_entropy_of, entropy_of, linear_of, softmax_of, tokens_of
from kernel_cases import DEVICE, DTYPES


class Call(NamedTuple):
    """Two functions of the same tensors and options; those that require gradients get them."""

    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    tensors: tuple[Tensor, ...]
    options: dict[str, Any]


class Draw:
    """Draws arguments: floating-point tensors require gradients, and lie in any order. `sharded`
    rows take fewer options."""

    def __init__(self, r: random.Random, sharded: bool = False):
        self.r, self.sharded = r, sharded
        self.dtype = r.choice(DTYPES[2:] if sharded else DTYPES)

    def chance(self, p: float = 0.5) -> bool:
        return self.r.random() < p

    def one_of(self, *values: Any) -> Any:
        return self.r.choice(values)

    def some(self, **options: list[Any]) -> dict[str, Any]:
        return {n: self.one_of(*values) for n, values in options.items() if self.chance()}

    def sizes(self, least: int, most: int, largest: int) -> list[int]:
        return [self.r.randint(1, largest) for _ in range(self.r.randint(least, most))]

    def generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.r.randrange(2**31))

    def values(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Dimensions in any order in memory, with steps between elements, or expanded."""
        generator = self.generator()
        order = self.r.sample(range(len(shape)), len(shape))
        sizes, step = [shape[i] for i in order], self.r.randint(1, 2)
        if sizes:
            sizes[-1] *= step
        base = torch.randn(sizes, generator=generator, dtype=torch.float64).to(dtype or self.dtype)
        base = base[..., ::step] if sizes else base
        if sizes and self.chance(1 / 8):
            base = base[:1].expand(base.shape)
        return base.permute([order.index(i) for i in range(len(shape))]).to(DEVICE)

    def leaf(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        return self.values(*shape, dtype=dtype).requires_grad_()

    def classes(self, n: int, *shape: int, ignored: float = 0.0) -> Tensor:
        generator = self.generator()
        found = torch.randint(0, n, shape, generator=generator)
        found = found.masked_fill(torch.rand(shape, generator=generator) < ignored, -100)
        return found.to(DEVICE)


def softmaxes(d: Draw) -> Call:
    # Few rows, and squares of few, as causal asks for: the interpreter takes seconds for others.
    shape = d.sizes(1, 4, 3)
    while math.prod(shape) > 9:
        shape.pop()
    dim = d.r.randrange(-len(shape), len(shape))
    shape[dim] = d.r.randint(1, 40)
    square = len(shape) > 1 and d.chance()
    if square:
        shape[-2:], dim = [d.r.randint(1, 9)] * 2, d.one_of(dim, -1)
    of_rows = [1 if i == dim % len(shape) else n for i, n in enumerate(shape)]
    some = [n if d.chance() else 1 for n in shape][d.r.randrange(len(shape)) :]
    options: dict[str, Any] = {"safe": d.chance()} | d.some(softcap=[0.5, 2.0, 30.0])
    options["scale"] = d.one_of(1.0, -0.3, 2.0)
    if not d.sharded:
        if d.chance():
            options["scale"] = d.leaf(*of_rows)
        if d.chance():
            options["where"] = d.values(*some) > d.one_of(-1.0, 0.5, 2.0)
        if d.chance():
            options["bias"] = d.leaf(*some)
        if d.chance():
            options["sink"] = d.one_of(0.0, INF, -INF, d.leaf(*of_rows))
        if square and dim in (-1, len(shape) - 1):
            options["causal"] = d.chance()
        if d.chance(1 / 4):
            options = {"safe": False}  # no modifiers at all
        if d.dtype.itemsize < 4 and d.chance():
            options["dtype"] = d.one_of(torch.float32, torch.float64)
    log, invariant, x = d.chance(), d.chance(1 / 5), d.values(*shape)
    if "where" in options and d.chance():  # what is masked may be anything
        x = x.where(options["where"], d.one_of(NAN, INF, -INF))
    function = ours.log_softmax if log else ours.softmax
    return Call(
        lambda x, **options: function(x, dim, batch_invariant=invariant, **options),
        lambda x, **options: softmax_of(x, dim, log, **options),
        (x.detach().requires_grad_(),),
        options,
    )


def logsumexps(d: Draw) -> Call:
    shape, invariant = d.sizes(1, 4, 5), d.chance(1 / 5)
    dims = d.r.sample(range(-len(shape), 0), d.r.randint(1, len(shape)))
    dim = dims[0] if d.sharded else d.one_of(dims[0], dims, tuple(n + len(shape) for n in dims))
    return Call(
        lambda x, **options: ours.logsumexp(x, batch_invariant=invariant, **options),
        torch.logsumexp,
        (d.leaf(*shape),),
        {"dim": dim, "keepdim": d.chance()},
    )


def loss_options(d: Draw, n: int) -> dict[str, Any]:
    options: dict[str, Any] = d.some(
        reduction=["none", "sum"], label_smoothing=[0.3], scale=[0.7, -0.5], softcap=[0.75, 30.0]
    )
    if d.chance():
        options["weight"] = torch.linspace(0.5, 2, n, dtype=d.dtype, device=DEVICE)
    if d.chance():
        options["ignore_index"] = 0
    return options


def cross_entropies(d: Draw) -> Call:
    c = d.r.randint(1, 40)
    others = d.sizes(1, 1, 5) if d.sharded else d.sizes(0, 3, 3)
    options = loss_options(d, c) | d.some(loss_dtype=[torch.float32], batch_invariant=[True])
    if not d.sharded:
        options |= {"return_lse": d.chance(), "inplace_backward": d.chance()}
    x = d.leaf(*others[:1], c, *others[1:])
    if not d.sharded and d.chance():
        options.pop("ignore_index", None)
        target = torch.softmax(d.values(*x.shape), min(1, x.dim() - 1))
        target.requires_grad_(d.chance())
    else:
        target = d.classes(c, *others, ignored=0.2 * ("ignore_index" not in options))
        if not (d.sharded and "weight" in options):
            options["z_loss"] = d.one_of(0.0, 0.1)
    return Call(ours.cross_entropy, cross_entropy_of, (x, target), options)


def linear_losses(d: Draw) -> Call:
    k, c, rows = d.r.randint(1, 5), d.r.randint(1, 5), d.sizes(1, 2, 3)
    options = {**loss_options(d, c), "z_loss": d.one_of(0.0, 0.1)}
    x, layer = d.leaf(*rows, k), d.leaf(c, k)
    if d.chance():
        options["linear_bias"] = d.leaf(c)
        for frozen in d.one_of((), (layer,), (x, layer)):
            frozen.requires_grad_(False)
    chunk = d.one_of(None, 1, 2, 5)
    return Call(
        lambda *given, **options: ours.linear_cross_entropy(*given, chunk_size=chunk, **options),
        linear_of,
        (x, layer, d.classes(c, *rows)),
        options,
    )


def tokens(d: Draw) -> Call:
    shape, c, named = d.sizes(0, 2, 3), d.r.randint(1, 40), d.sharded or d.chance(2 / 3)
    if d.sharded:
        shape = shape or [2]
    index = d.classes(c, *shape, *d.one_of((), (1,), (3,)))
    options = d.some(temperature=[0.7], scale=[0.3, -0.5], softcap=[2.0, 30.0])
    if not d.sharded and d.chance(1 / 3):
        options["temperature"] = d.leaf(*shape, 1).exp()
    options |= {"return_entropy": d.sharded or d.chance(3 / 4)} | d.some(batch_invariant=[True])
    if not d.sharded:
        options["inplace_backward"] = d.chance()
    x = d.leaf(*shape, c)
    if c > 1 and "scale" not in options and "softcap" not in options and d.chance():
        first = torch.arange(c, device=DEVICE) == 0
        x = torch.where(first, -INF, x).detach().requires_grad_()
    if named and d.chance():
        mask = d.values(*shape, dtype=torch.float64) > d.one_of(-1.0, 0.3, 5.0)
        options["row_mask"] = mask
        if not d.sharded:  # what is masked may be anything
            x = x.detach().masked_fill(~mask.unsqueeze(-1), NAN).requires_grad_()
            index = index.where(mask if index.dim() == mask.dim() else mask.unsqueeze(-1), -100)
    if named:
        return Call(ours.token_logprobs, tokens_of, (x, index), options)
    options = {"inplace_backward": d.chance()}
    return Call(
        ours.entropy_from_logits, lambda x, **_: entropy_of(x.log_softmax(-1)), (x,), options
    )


FAMILIES: dict[str, Callable[[Draw], Call]] = {
    "softmax": softmaxes,
    "logsumexp": logsumexps,
    "cross_entropy": cross_entropies,
    "linear_cross_entropy": linear_losses,
    "token_logprobs": tokens,
}


# --- results ----------------------------------------------------------------------------------


def whole(t: Any) -> Tensor:
    return t.full_tensor() if hasattr(t, "full_tensor") else t


def leaves_of(*values: Any) -> list[Tensor]:
    return [t for t in values if isinstance(t, Tensor) and t.requires_grad]


def again(value: Any, exactly: bool = False) -> Any:
    """A tensor as a leaf of its own; in float64 on the CPU, exactly."""
    if not isinstance(value, Tensor):
        return value
    t = value.detach().cpu() if exactly else value.detach()
    t = t.double() if exactly and t.is_floating_point() else t
    return t.requires_grad_(value.requires_grad)


def results_of(
    function: Callable[..., Any],
    tensors: tuple[Tensor, ...],
    options: dict[str, Any] | None = None,
    place: Callable[[Tensor], Tensor] = lambda x: x,
) -> tuple[list[Tensor], list[Tensor]]:
    """The results, and the gradients of one number that depends on all of them; `place` makes the
    first of the tensors a sharded one."""
    options = options or {}
    x, *others = tensors
    x = again(place(x.detach())).requires_grad_(x.requires_grad)
    given = x * 1 if options.get("inplace_backward") else x  # a leaf stays as it is
    found = function(given, *others, **options)
    found = [*map(whole, found if isinstance(found, (tuple, list)) else [found])]
    live = [y for y in found if y.requires_grad]
    dy = [torch.linspace(-1, 1, y.numel()).view(y.shape).to(y) for y in live]
    dy = [torch.where(torch.isfinite(y.detach()), g, 0.0) for y, g in zip(live, dy)]
    leaves = leaves_of(x, *others, *options.values())
    gradients = torch.autograd.grad(live, leaves, dy, materialize_grads=True) if live else []
    return [y.detach() for y in found], [*map(whole, gradients)]


def near(got: Tensor, want: Tensor, relative: float) -> None:
    got, want = got.detach().double().cpu(), want.detach().double().cpu()
    finite = want[torch.isfinite(want)]
    size = max(1.0, float(finite.abs().max())) if finite.numel() else 1.0
    torch.testing.assert_close(got, want, rtol=relative, atol=relative * size, equal_nan=True)


def check(call: Call, function: Callable[..., Any] | None = None, **place: Any) -> None:
    """Results and gradients are those of PyTorch's operators in float64, up to rounding."""
    (x, *_), options = call.tensors, {n: again(v) for n, v in call.options.items()}
    before = x.detach().clone()
    got, found = results_of(function or call.ours, call.tensors, options, **place)
    exact = tuple(again(t, exactly=True) for t in call.tensors)
    exactly = {n: again(v, exactly=True) for n, v in call.options.items()}
    want, wanted = results_of(call.theirs, exact, exactly)
    for a, b in zip(got, want, strict=True):
        near(a, b, 8 * max(torch.finfo(a.dtype).eps, 1e-13))
    for a, b in zip(found, wanted, strict=True):
        # Where PyTorch differentiates through 0/0 it has NaN, where ours has the limit.
        b = torch.where(torch.isnan(b), a.double().cpu(), b)
        near(a, b, 64 * max(torch.finfo(x.dtype).eps, 1e-13))
    assert torch.allclose(x.detach(), before, 0, 0, True), "the input is left alone"
