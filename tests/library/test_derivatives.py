"""Values and derivatives of every function, with options that are drawn at random, against
the same in float64 by PyTorch's operators; rows in one tile, in several, and without kernels."""

import math
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import triton_softmax as ours
from in_float64 import cross_entropy_of, entropy_of, linear_of, softmax_of, tokens_of
from kernel_cases import DEVICE, DTYPES, INTERPRETED, quiet

pytestmark = quiet
INF = math.inf


# --- drawn ----------------------------------------------------------------------------------------


class Drawn:
    """Arguments of a call: floating-point tensors get a gradient, and lie in any order."""

    def __init__(self, draw):
        self.draw, self.seed = draw, draw(st.integers(0, 2**31))
        self.dtype = draw(st.sampled_from(DTYPES))

    def chance(self) -> bool:
        return self.draw(st.booleans())

    def one_of(self, *values: Any) -> Any:
        return self.draw(st.sampled_from(values))

    def values(self, *shape: int) -> Tensor:
        """Dimensions in any order in memory, with steps between elements, or expanded."""
        self.seed += 1
        generator = torch.Generator().manual_seed(self.seed)
        order = self.draw(st.permutations(range(len(shape))))
        sizes, step = [shape[i] for i in order], self.draw(st.integers(1, 2))
        if sizes:
            sizes[-1] *= step
        base = torch.randn(sizes, generator=generator, dtype=torch.float64).to(self.dtype)
        base = base[..., ::step] if sizes else base
        if sizes and not self.draw(st.integers(0, 7)):
            base = base[:1].expand(base.shape)
        return base.permute([order.index(i) for i in range(len(shape))])

    def leaf(self, *shape: int) -> Tensor:
        return self.values(*shape).to(DEVICE).requires_grad_()

    def classes(self, n: int, *shape: int) -> Tensor:
        self.seed += 1
        generator = torch.Generator().manual_seed(self.seed)
        return torch.randint(0, n, shape, generator=generator).to(DEVICE)


def few(shape: list[int]) -> bool:
    return math.prod(shape) <= 9


@st.composite
def softmaxes(draw):
    d = Drawn(draw)
    # Few rows, and squares of few, as causal asks for: the interpreter takes seconds for others.
    shape = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4).filter(few))
    dim = draw(st.integers(-len(shape), len(shape) - 1))
    shape[dim] = draw(st.integers(1, 40))
    if len(shape) > 1 and d.chance():
        shape[-2] = shape[-1] = min(shape[-1], 9)
    of_rows = [1 if i == dim % len(shape) else n for i, n in enumerate(shape)]
    some = [n if d.chance() else 1 for n in shape][draw(st.integers(0, len(shape) - 1)) :]
    options: dict[str, Any] = {"safe": d.chance()}
    options["scale"] = d.one_of(1.0, -0.3, None) or d.leaf(*of_rows)
    if d.chance():
        options["where"] = (d.values(*some) > d.one_of(-1.0, 0.5, 2.0)).to(DEVICE)
    if d.chance():
        options["bias"] = d.leaf(*some)
    if d.chance():
        options["softcap"] = draw(st.floats(0.5, 50))
    if d.chance():
        options["sink"] = d.one_of(0.0, INF, -INF, d.leaf(*of_rows))
    if len(shape) > 1 and shape[-1] == shape[-2] and dim % len(shape) == len(shape) - 1:
        options["causal"] = d.chance()
    log = d.chance()
    if d.chance():
        options = {"safe": False}  # no maps at all
    if d.dtype.itemsize < 4 and d.chance():
        options["dtype"] = d.one_of(torch.float32, torch.float64)
    function = ours.log_softmax if log else ours.softmax
    return (
        lambda x, **options: function(x, dim, **options),
        lambda x, **options: softmax_of(x, dim, log, **options),
        (d.leaf(*shape),),
        options,
    )


@st.composite
def logsumexps(draw):
    d = Drawn(draw)
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    dims = draw(st.permutations(range(-len(shape), 0)))[: draw(st.integers(1, len(shape)))]
    dim = d.one_of(dims[0], dims, tuple(each + len(shape) for each in dims))
    return ours.logsumexp, torch.logsumexp, (d.leaf(*shape),), {"dim": dim, "keepdim": d.chance()}


def loss_options(d: Drawn, n: int) -> dict[str, Any]:
    options: dict[str, Any] = {
        "reduction": d.one_of("none", "mean", "sum"),
        "label_smoothing": d.one_of(0.0, 0.3),
        "scale": d.one_of(1.0, 0.7),
        "softcap": d.one_of(None, 0.75),
        "loss_dtype": d.one_of(None, torch.float32),
    }
    if d.chance():
        options["weight"] = torch.linspace(0.5, 2, n, dtype=d.dtype, device=DEVICE)
    if d.chance():
        options["ignore_index"] = 0
    return options


@st.composite
def cross_entropies(draw):
    d = Drawn(draw)
    c, others = draw(st.integers(1, 40)), draw(st.lists(st.integers(1, 3), max_size=3))
    options = loss_options(d, c) | {"return_lse": d.chance(), "inplace_backward": d.chance()}
    x = d.leaf(*others[:1], c, *others[1:])
    if d.chance():
        options.pop("ignore_index", None)
        target = torch.softmax(d.values(*x.shape), min(1, x.dim() - 1)).detach().to(DEVICE)
        target.requires_grad_(d.chance())
    else:
        target = d.classes(c, *others)
        options["z_loss"] = d.one_of(0.0, 0.1)
    return ours.cross_entropy, cross_entropy_of, (x, target), options


@st.composite
def linear_losses(draw):
    d = Drawn(draw)
    k, c = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    rows = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
    options = {**loss_options(d, c), "z_loss": d.one_of(0.0, 0.1)}
    del options["loss_dtype"]
    x, layer = d.leaf(*rows, k), d.leaf(c, k)
    if d.chance():
        options["linear_bias"] = d.leaf(c)
        for frozen in d.one_of((), (layer,), (x, layer)):
            frozen.requires_grad_(False)
    chunk = draw(st.integers(1, 5))
    return (
        lambda *tensors, **options: ours.linear_cross_entropy(
            *tensors, chunk_size=chunk, **options
        ),
        linear_of,
        (x, layer, d.classes(c, *rows)),
        options,
    )


@st.composite
def tokens(draw):
    d = Drawn(draw)
    shape, c = draw(st.lists(st.integers(1, 3), max_size=2)), draw(st.integers(1, 40))
    index = d.classes(c, *shape, *d.one_of((), (1,), (3,)))
    options = {"temperature": d.one_of(1.0, 0.7, None) or d.leaf(*shape, 1).exp()}
    options |= {"return_entropy": d.chance(), "inplace_backward": d.chance()}
    x = d.leaf(*shape, c)
    if c > 1 and d.chance():
        first = torch.arange(c, device=DEVICE) == 0
        x = torch.where(first, -INF, x).detach().requires_grad_()
    if d.chance():
        return ours.token_logprobs, tokens_of, (x, index), options
    options = {"inplace_backward": options["inplace_backward"]}
    return ours.entropy_from_logits, lambda x, **_: entropy_of(x.log_softmax(-1)), (x,), options


def doubled(value: Any) -> Any:
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return value.cpu() if isinstance(value, Tensor) else value
    return value.detach().cpu().double().requires_grad_(value.requires_grad)


def check(function, reference, tensors, options) -> None:
    options = {
        name: value.detach().requires_grad_() if isinstance(value, Tensor) and value.requires_grad
        else value for name, value in options.items()
    }  # fmt: skip
    exact, exact_options = (
        [doubled(t) for t in tensors],
        {n: doubled(v) for n, v in options.items()},
    )
    x, *others = tensors
    given = x * 1 if options.get("inplace_backward") else x  # a leaf stays as it is
    got, want = function(given, *others, **options), reference(*exact, **exact_options)
    got, want = (each if isinstance(each, tuple) else (each,) for each in (got, want))
    for a, b in zip(got, want, strict=True):
        near(a, b, 8 * max(torch.finfo(a.dtype).eps, 1e-13))
    leaves, exact_leaves = (
        [t for t in (*ts, *os.values()) if isinstance(t, Tensor) and t.requires_grad]
        for ts, os in ((tensors, options), (exact, exact_options))
    )
    dy = [torch.linspace(-1, 1, b.numel()).view(b.shape) for b in want]
    dy = [torch.where(torch.isfinite(b), g, 0.0) for b, g in zip(want, dy)]
    found, wanted = (
        torch.autograd.grad(
            [y for y in ys if y.requires_grad],
            of,
            [g.to(y) for y, g in zip(ys, dy) if y.requires_grad],
        )
        for ys, of in ((got, leaves), (want, exact_leaves))
    )
    eps = max(torch.finfo(x.dtype).eps, 1e-13)
    for a, b in zip(found, wanted, strict=True):
        # Where PyTorch differentiates through 0/0 it has NaN, where ours has the limit.
        near(a, torch.where(torch.isnan(b), a.double().cpu(), b), 64 * eps)
    assert torch.equal(x.detach().double().cpu(), exact[0].detach()), "the input is left alone"


def second(function, tensors, options) -> list[Tensor]:
    """The gradient of a weighted sum of the first gradients, at every leaf."""
    results = function(*tensors, **options)
    results = results if isinstance(results, tuple) else (results,)
    leaves = [t for t in (*tensors, *options.values()) if isinstance(t, Tensor) and t.requires_grad]
    weights = [torch.linspace(-1, 1, y.numel()).view(y.shape).to(y) for y in results]
    total = sum(
        (torch.where(torch.isfinite(y), y, 0.0) * w).sum() for y, w in zip(results, weights)
    )
    first = torch.autograd.grad(total, leaves, create_graph=True)
    weights = [torch.linspace(0.5, 1.5, g.numel()).view(g.shape).to(g) for g in first]
    again = sum((g * w).sum() for g, w in zip(first, weights))
    return list(torch.autograd.grad(again, leaves, allow_unused=True, materialize_grads=True))


def near(got: Tensor, want: Tensor, relative: float) -> None:
    got, want = got.detach().double().cpu(), want.detach()
    finite = want[torch.isfinite(want)]
    size = float(finite.abs().max()) if finite.numel() else 1.0
    torch.testing.assert_close(
        got, want, rtol=relative, atol=relative * max(size, 1.0), equal_nan=True
    )


FAMILIES = {
    "softmax": softmaxes(),
    "logsumexp": logsumexps(),
    "cross_entropy": cross_entropies(),
    "linear_cross_entropy": linear_losses(),
    "token_logprobs": tokens(),
}


WAYS = {
    **dict.fromkeys(["whole", "operators"][: 1 + INTERPRETED], tuple(FAMILIES)),
    **dict.fromkeys(["loops", "chunks"], ("softmax", "cross_entropy", "token_logprobs")),
}
"""How rows are computed, and of which functions; by operators as on a machine without a GPU."""


def with_any(family: str, check: Callable[..., None], examples: int) -> None:
    """Check calls that are drawn.

    In a thread, which begins a stack: at some depths, and Hypothesis is deep, CPython maps a page
    of memory for each call, and the interpreter makes thousands.
    """
    with ThreadPoolExecutor(1) as thread:

        @settings(max_examples=examples, deadline=None, derandomize=True, print_blob=True)
        @given(FAMILIES[family])
        def run(call):
            thread.submit(check, *call).result()

        run()


@pytest.mark.parametrize(
    "geometry, family", [(way, each) for way in WAYS for each in WAYS[way]], indirect=["geometry"]
)
def test_values_and_derivatives_of_anything(family, geometry):
    with_any(family, check, examples=25)


@pytest.mark.parametrize("geometry", ["whole"], indirect=True)
@pytest.mark.parametrize("family", FAMILIES)
def test_second_derivatives_are_right_or_refused(family, geometry):
    """Of losses they are refused, where kernels compute them. Where a row has no element left,
    PyTorch's operators have NaN and ours the limit."""
    of_loss = family in ("cross_entropy", "linear_cross_entropy")
    refused = []

    def check(function, reference, tensors, options):
        options = {
            name: value.detach().requires_grad_(value.requires_grad)
            if isinstance(value, Tensor)
            else value
            for name, value in options.items()
            if name not in ("inplace_backward", "return_lse")
        }
        exact = [doubled(t) for t in tensors], {n: doubled(v) for n, v in options.items()}
        try:
            got = second(function, tensors, options)
        except RuntimeError as error:
            refused.append(re.search("second derivative|differentiate", str(error)))
            assert of_loss and refused[-1], error
            return
        eps = max(torch.finfo(tensors[0].dtype).eps, 1e-13)
        for a, b in zip(got, second(reference, *exact), strict=True):
            near(a, torch.where(torch.isfinite(b), b, a.double().cpu()), 512 * eps)

    with_any(family, check, examples=15)
    assert bool(refused) == of_loss
