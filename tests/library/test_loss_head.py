"""The loss head where it has maps, distributions, several tokens of a row, temperatures: against
PyTorch's operators, with arguments drawn at random, and beside other libraries."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import probe
from kernel_cases import DEVICE, quiet, small_tiles
from triton_softmax import (
    batch_invariant,
    composite,
    cross_entropy,
    entropy_from_logits,
    linear_cross_entropy,
    selective_log_softmax,
    token_logprobs,
)
from triton_softmax.logprobs import _of_tokens

pytestmark = quiet
INF = float("inf")


@pytest.fixture(params=["whole", "chunks"])
def geometry(request, monkeypatch):
    if request.param != "whole":
        small_tiles(monkeypatch, 16, rows=2)
    probe.forget()
    yield request.param
    probe.forget()


def tensor(*shape: int, dtype=torch.float64, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    values = 3 * torch.randn(shape, generator=generator, dtype=torch.float64)
    return values.to(dtype).to(DEVICE).requires_grad_()


def classes(*shape: int, n: int) -> torch.Tensor:
    target = torch.randint(0, n, shape, generator=torch.Generator().manual_seed(1))
    target.view(-1)[1] = -100
    return target.to(DEVICE)


def probabilities(*shape: int) -> torch.Tensor:
    return torch.softmax(tensor(*shape, seed=3).detach(), 1)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_maps_of_a_cross_entropy(reduction, geometry):
    x, target = tensor(3, 19), classes(3, n=19)
    options = {"scale": 0.5, "softcap": 4.0, "z_loss": 0.1, "reduction": reduction}
    ours, lse = cross_entropy(x, target, label_smoothing=0.2, return_lse=True, **options)
    z = 4.0 * torch.tanh(0.5 * x / 4.0)
    wanted = functional.cross_entropy(z, target, label_smoothing=0.2, reduction=reduction)
    kept = (target >= 0).double()
    lses = torch.logsumexp(z, 1) * kept
    squares = 0.1 * lses**2
    wanted = wanted + {"mean": squares.sum() / kept.sum(), "sum": squares.sum()}.get(
        reduction, squares
    )
    torch.testing.assert_close(ours, wanted)
    torch.testing.assert_close(lse, lses.detach())
    along = torch.ones_like(wanted)
    torch.testing.assert_close(
        torch.autograd.grad(ours, x, along), torch.autograd.grad(wanted, x, along)
    )


DISTRIBUTIONS = [
    ("probabilities", {}),
    ("probabilities", {"label_smoothing": 0.1, "weight": True, "reduction": "sum"}),
    ("probabilities", {"reduction": "none"}),
    ("classes", {"label_smoothing": 0.3, "weight": True}),
    ("classes", {"label_smoothing": 0.3, "weight": True, "reduction": "none"}),
]


@pytest.mark.parametrize("kind, options", DISTRIBUTIONS, ids=str)
def test_distributions(kind, options, geometry):
    x = tensor(2, 19, 2)
    target = probabilities(2, 19, 2) if kind == "probabilities" else classes(2, 2, n=19)
    if "weight" in options:
        options = options | {"weight": torch.linspace(0.5, 2, 19, dtype=x.dtype, device=DEVICE)}
    wanted = functional.cross_entropy(x, target, **options)
    along = torch.ones_like(wanted)
    expected = torch.autograd.grad(wanted, x, along)
    ours = cross_entropy(x, target, **options)
    torch.testing.assert_close(ours, wanted)
    torch.testing.assert_close(torch.autograd.grad(ours, x, along), expected)
    torch.testing.assert_close(cross_entropy(x.detach(), target, **options), wanted.detach())


def test_a_distribution_is_one_operation_and_its_gradient_in_place(monkeypatch):
    monkeypatch.setattr(composite, "cross_entropy", None)
    x, target = tensor(3, 5), probabilities(3, 5)
    (wanted,) = torch.autograd.grad(functional.cross_entropy(x, target), x)
    y = x * 1.0
    loss = cross_entropy(y, target, inplace_backward=True)
    torch.testing.assert_close(y.detach(), wanted)
    torch.testing.assert_close(torch.autograd.grad(loss, x)[0], wanted)


def test_a_gradient_at_the_probabilities_and_weights_of_infinite_logits():
    x, target = tensor(2, 4), probabilities(2, 4).requires_grad_()
    ours = torch.autograd.grad(cross_entropy(x, target), (x, target))
    theirs = torch.autograd.grad(functional.cross_entropy(x, target), (x, target))
    torch.testing.assert_close(ours, theirs)
    x = torch.tensor([[0.0, -INF, 1.0], [-INF, -INF, -INF], [3e4, -3e4, INF]], device=DEVICE)
    target = torch.tensor([0, 1, -100], device=DEVICE)
    weight = torch.ones(3, device=DEVICE)
    for options in ({"label_smoothing": 0.5, "weight": weight}, {"weight": weight}):
        torch.testing.assert_close(
            cross_entropy(x, target, reduction="none", **options),
            functional.cross_entropy(x, target, reduction="none", **options),
            equal_nan=True,
        )


def test_ignored_rows_have_no_gradient_whatever_they_hold():
    x = tensor(3, 5).detach()
    x[1] = torch.tensor([float("nan"), INF, -INF, 1e300, 0.0])
    x.requires_grad_()
    target = torch.tensor([1, -100, 2], device=DEVICE)
    for options in (
        {"softcap": 2.0},
        {"scale": 3.0},
        {"label_smoothing": 0.1, "weight": torch.ones(5, dtype=x.dtype, device=DEVICE)},
    ):
        loss = cross_entropy(x, target, **options)
        (dx,) = torch.autograd.grad(loss, x)
        assert torch.isfinite(loss) and torch.isfinite(dx).all() and not dx[1].any()


@pytest.mark.parametrize(
    "tokens, entropy, in_place, temperatures",
    [
        ("one", False, False, (1.0, "rows")),
        ("one", True, True, ("rows", 0.7)),
        ("several", False, True, (0.7, "one")),
        ("several", True, False, ("one", 1.0)),
        ("none", True, True, ("rows", 0.7)),
        ("several", True, True, ("one", "rows")),
    ],
)
def test_tokens_and_temperatures(tokens, entropy, in_place, temperatures, geometry):
    """Values and gradients, against PyTorch's operators in float64."""
    temperature = temperatures[geometry == "chunks"]
    x = tensor(2, 2, 19)
    index = torch.tensor([[[3, 0, 3], [1, 2, 18]]], device=DEVICE).expand(2, -1, -1)
    several = index if tokens == "several" else index[..., 2:]
    leaves = [x]
    if isinstance(temperature, str):
        shape = (2, 2, 1) if temperature == "rows" else ()
        temperature = (tensor(*shape, seed=4).detach().abs() + 0.5).requires_grad_()
        leaves.append(temperature)
    y = torch.log_softmax(x / temperature, -1)
    picked, entropies = y.gather(-1, several), -(y.exp() * y).sum(-1)
    if tokens == "one":
        picked, several = picked[..., 0], several[..., 0]
    wanted = () if tokens == "none" else (picked,)
    wanted += (entropies,) if entropy else ()
    asked = {"temperature": temperature, "inplace_backward": in_place}
    z = x * 1.0 if in_place else x
    if tokens == "none":
        ours = (_of_tokens(z, None, True, in_place, False, temperature)[1],)
    elif entropy:
        ours = token_logprobs(z, several, return_entropy=True, **asked)
    else:
        ours = (token_logprobs(z, several, **asked),)
    torch.testing.assert_close(tuple(ours), wanted)
    along = [tensor(*t.shape, seed=5).detach() for t in wanted]
    found = torch.autograd.grad(ours, leaves, along)
    torch.testing.assert_close(found, torch.autograd.grad(wanted, leaves, along))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_one_token_at_a_temperature_in_every_dtype(dtype):
    x, index = tensor(3, 19, dtype=dtype), torch.tensor([3, 0, 18], device=DEVICE)
    wide = x.detach().double().requires_grad_()
    wanted = torch.log_softmax(wide / 0.7, -1).gather(-1, index[:, None]).sum()
    (exact,) = torch.autograd.grad(wanted, wide)
    (dx,) = torch.autograd.grad(token_logprobs(x, index, temperature=0.7).sum(), x)
    atol = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(dx.double(), exact, atol=atol, rtol=0)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("entropy", [False, True])
def test_tokens_in_place_where_the_backward_pass_is_watched(entropy, temperature):
    """Under autocast kernels are called through the dispatcher, and write over the logits as well:
    no second gradient is allocated."""
    y, index = 1.0 * tensor(3, 20, dtype=torch.float32), classes(3, n=20).clamp(min=0)
    options = {"temperature": temperature, "return_entropy": entropy, "inplace_backward": True}
    found = token_logprobs(y, index, **options)
    total = sum(each.sum() for each in (found if entropy else (found,)))
    z = y.detach().double().requires_grad_()
    wanted = token_logprobs(z, index, temperature=temperature, return_entropy=entropy)
    (right,) = torch.autograd.grad(sum(each.sum() for each in wanted if each.numel()), z)
    with torch.autocast(DEVICE, torch.bfloat16):
        (dy,) = torch.autograd.grad(total, y)
    assert dy.data_ptr() == y.data_ptr()
    torch.testing.assert_close(y.detach(), right.float())


def test_tokens_in_place_and_twice():
    x, index = tensor(2, 5), torch.tensor([[0, 4], [1, 1]], device=DEVICE)
    temperature = torch.full((2, 1), 0.5, dtype=x.dtype, device=DEVICE, requires_grad=True)
    wanted = torch.autograd.grad(
        torch.log_softmax(x / temperature, -1).gather(-1, index).sum(), (x, temperature)
    )
    y = x * 1.0
    picked = token_logprobs(y, index, temperature=temperature, inplace_backward=True)
    torch.testing.assert_close(torch.autograd.grad(picked.sum(), (x, temperature)), wanted)
    y = x * 1.0
    squares = y * y
    selective_log_softmax(y, index, inplace_backward=True).sum().backward()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        squares.sum().backward()
    dx, dt = torch.autograd.grad(
        token_logprobs(x, index, temperature=temperature).sum(), (x, temperature), create_graph=True
    )
    (dx.sum() + dt.sum()).backward()
    assert torch.isfinite(x.grad).all() and torch.isfinite(temperature.grad).all()


CORNERS = [
    {"softcap": 3.0, "scale": 0.5, "label_smoothing": 0.1, "bias": True},
    {"label_smoothing": 0.2, "weight": True, "reduction": "none", "bias": True},
    {"weight": True, "z_loss": 0.1, "softcap": 3.0},
    {"weight": True, "z_loss": 0.1, "compiled": True},
]


@pytest.mark.parametrize("options", CORNERS, ids=str)
def test_a_linear_layer_with_everything(options):
    options = dict(options)
    compiled = options.pop("compiled", False)
    x, w = tensor(2, 3, 3), tensor(7, 3, seed=1)
    leaves = (x, w, tensor(7, seed=2)) if options.pop("bias", False) else (x, w)
    target = classes(2, 3, n=7)
    if "weight" in options:
        options["weight"] = torch.linspace(0.5, 2, 7, dtype=x.dtype, device=DEVICE)
    wanted = cross_entropy(functional.linear(*leaves).movedim(-1, 1), target, **options)

    def call(x, w, bias=None):
        return linear_cross_entropy(x, w, target, linear_bias=bias, chunk_size=4, **options)

    ours = (torch.compile(call, backend="eager") if compiled else call)(*leaves)
    torch.testing.assert_close(ours, wanted)
    along = torch.rand(wanted.shape, dtype=x.dtype, device=DEVICE)
    torch.testing.assert_close(
        *(torch.autograd.grad(each, leaves, along) for each in (ours, wanted))
    )


def test_batch_invariant():
    x, target = tensor(5, 1001, dtype=torch.float32), classes(5, n=1001)
    q = torch.softmax(tensor(5, 1001, dtype=torch.float32, seed=2).detach(), 1)
    index = target.clamp(min=0)
    calls = [
        lambda x, r: cross_entropy(x, target[r], reduction="none", batch_invariant=True),
        lambda x, r: cross_entropy(
            x, target[r], reduction="none", softcap=5.0, batch_invariant=True
        ),
        lambda x, r: cross_entropy(x, q[r], reduction="none", batch_invariant=True),
        lambda x, r: entropy_from_logits(x, batch_invariant=True),
        lambda x, r: selective_log_softmax(x, index[r], batch_invariant=True),
        lambda x, r: token_logprobs(x, index[r], temperature=0.7, batch_invariant=True),
    ]
    every, one = slice(None), slice(3, 4)
    for call in calls:
        results = []
        for rows in (every, one):
            part = x[rows].detach().requires_grad_()
            y = call(part, rows)
            results.append((y.detach(), *torch.autograd.grad(y.sum(), part)))
        for together, alone in zip(*results, strict=True):
            assert torch.equal(together[3], alone[0])
    with batch_invariant():
        assert torch.equal(calls[0](x[one], one), results_of(calls[0], x, every)[3:4])


def results_of(call, x, rows):
    return call(x[rows].detach(), rows)


def test_what_is_refused():
    x, target = tensor(2, 4), torch.tensor([0, 1], device=DEVICE)
    for softcap in (0.0, -1.0, INF, float("nan")):
        with pytest.raises(ValueError, match="softcap must be positive"):
            cross_entropy(x, target, softcap=softcap)
    with pytest.raises(ValueError, match="scale must be finite"):
        cross_entropy(x, target, scale=INF)
    for temperature in (0.0, -1.0, INF, torch.ones(2, device=DEVICE)):
        with pytest.raises(ValueError, match="temperature must"):
            token_logprobs(x, target, temperature=temperature)
    with pytest.raises(TypeError, match="temperature must hold"):
        token_logprobs(x, target, temperature=torch.ones(2, 1, dtype=torch.int64, device=DEVICE))


# --- other libraries, where they are installed ---


def test_as_trl():
    utils = pytest.importorskip("trl.trainer.utils")
    x, index = tensor(2, 3, 7), torch.tensor([[0, 1, 6], [2, 3, 3]], device=DEVICE)
    torch.testing.assert_close(
        selective_log_softmax(x, index), utils.selective_log_softmax(x, index)
    )
    several = torch.stack([index, index], -1)
    torch.testing.assert_close(
        selective_log_softmax(x, several), utils.selective_log_softmax(x, several)
    )
    torch.testing.assert_close(entropy_from_logits(x), utils.entropy_from_logits(x))


@pytest.mark.skipif(DEVICE == "cpu", reason="their kernels need a GPU")
@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.1}, {"softcap": 5.0}], ids=str)
def test_as_liger(options):
    liger = pytest.importorskip("liger_kernel.transformers")
    x, target = tensor(6, 130, dtype=torch.float32), classes(6, n=130)
    theirs = liger.LigerCrossEntropyLoss(**options)(x.clone(), target)
    torch.testing.assert_close(cross_entropy(x, target, **options), theirs)


@pytest.mark.skipif(DEVICE == "cpu", reason="their kernels need a GPU")
def test_as_quack():
    quack = pytest.importorskip("quack.cross_entropy")
    x, target = tensor(6, 128, dtype=torch.float32), classes(6, n=128)
    theirs = quack.cross_entropy(x, target, ignore_index=-100, reduction="mean")
    torch.testing.assert_close(cross_entropy(x, target), theirs)
