"""Cross-entropy and the token functions as they are called: PyTorch's numbers, errors and
transforms; and beside other libraries.

Their values and derivatives with options drawn at random are in `test_derivatives.py`.
"""

import contextlib
from functools import partial

import pytest
import torch
from torch.nn import functional

import probe
from drawn_calls import Call, check
from in_float64 import linear_of
from kernel_cases import DEVICE, HOSTILE, drawn, quiet
from triton_softmax import (
    CrossEntropyLoss,
    arguments,
    batch_invariant,
    composite,
    cross_entropy,
    distributed,
    linear,
    linear_cross_entropy,
    token_logprobs,
)
from triton_softmax.arguments import LossOptions, check_loss_of_part
from triton_softmax.integrations.causal_lm import causal_lm_loss
from triton_softmax.plan import losses as plan_losses
from triton_softmax.plan.losses import CHUNK, FEW, PROGRAMS

pytestmark = quiet
INF, NAN, F64 = float("inf"), float("nan"), torch.float64


def logits(*shape: int, **how) -> torch.Tensor:
    return drawn(*shape, scale=3.0, **how).requires_grad_()


def targets(*shape: int, classes: int) -> torch.Tensor:
    """Classes, of which the second is to be ignored."""
    target = torch.randint(0, classes, shape, generator=torch.Generator().manual_seed(1))
    if target.numel() > 1:
        target.view(-1)[1] = -100
    return target.to(DEVICE)


@pytest.mark.parametrize("ignored", [-100, 4])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"softcap": 2.0},
        {"scale": 3.0},
        {"label_smoothing": 0.1},
        {"label_smoothing": 0.1, "weight": True},
    ],
)
def test_ignored_rows_may_hold_anything(options, ignored):
    options, x = options | {"ignore_index": ignored}, logits(3, 5)
    target = torch.tensor([0, ignored, 3], device=DEVICE)
    x.data[1] = torch.tensor([0.0, INF, -INF, 1e300, NAN])
    if "weight" in options:
        options = options | {"weight": torch.ones(5, dtype=x.dtype, device=DEVICE)}
    loss = cross_entropy(x, target, **options)
    (dx,) = torch.autograd.grad(loss, x)
    assert loss.isfinite() and dx.isfinite().all() and not dx[1].any()
    nobody = torch.full_like(target, ignored)
    loss = cross_entropy(x, nobody, **options)
    assert loss.isnan() and not torch.autograd.grad(loss, x)[0].any()
    assert cross_entropy(x, nobody, reduction="sum", **options) == 0


@pytest.mark.parametrize("reduction", ["none", "sum"])
def test_rows_of_more_than_a_chunk_are_scaled(reduction):
    x, target = logits(2, CHUNK + 1, dtype=torch.float32), targets(2, classes=CHUNK + 1)
    pair = []
    for function in (cross_entropy, functional.cross_entropy):
        loss = function(x, target, reduction=reduction)
        pair.append(torch.autograd.grad(loss, x, torch.full_like(loss, 3.0))[0])
    torch.testing.assert_close(*pair)


@pytest.mark.parametrize("extra, weighted", [(-1, True), (0, False), (1, True)])
def test_many_targets_are_counted_in_parts(extra, weighted):
    """A mean over as many rows as one program counts itself, one less and one more."""
    n_rows = FEW + extra
    x, target = logits(n_rows, 3), torch.arange(n_rows, device=DEVICE) % 3
    target[::5] = -100
    weight = torch.tensor([0.5, 2.0, 1.0], dtype=x.dtype, device=DEVICE) if weighted else None
    loss = cross_entropy(x, target, weight, z_loss=0.5)
    squared = torch.logsumexp(x[target >= 0], 1) ** 2
    wanted = functional.cross_entropy(x, target, weight) + 0.5 * squared.mean()
    torch.testing.assert_close(loss, wanted)
    pair = [torch.autograd.grad(each, x)[0] for each in (loss, wanted)]
    torch.testing.assert_close(*pair)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_hostile_rows_as_torch(smoothing, weighted):
    # Smoothing needs the sum of the logits, of which large ones leave float32 too few digits.
    rows = [row for row in HOSTILE if not (smoothing and 1e6 < max(map(abs, row)) < INF)]
    x = torch.tensor(rows, device=DEVICE).requires_grad_()
    target = torch.zeros(len(x), dtype=torch.int64, device=DEVICE)
    arguments = {"reduction": "none", "label_smoothing": smoothing}
    weight = torch.ones(3, device=DEVICE) if weighted else None
    loss = cross_entropy(x, target, weight, **arguments)
    wide = x.detach().double().requires_grad_()
    weight = weight.double() if weighted else None
    wanted = functional.cross_entropy(wide, target, weight, **arguments)
    torch.testing.assert_close(loss.double(), wanted, rtol=1e-5, atol=1e-3, equal_nan=True)
    (dx,) = torch.autograd.grad(loss.sum(), x)
    (exact,) = torch.autograd.grad(wanted.sum(), wide)
    same = ~exact.isnan()
    torch.testing.assert_close(dx.double()[same], exact[same], rtol=1e-4, atol=1e-4)
    assert dx[exact.isnan()].isnan().all()


@pytest.mark.parametrize("distribution", [False, True])
def test_in_place_and_twice(distribution, monkeypatch):
    """A distribution, too, is one operation with its gradient."""
    monkeypatch.setattr(composite, "cross_entropy", None)
    x, target = logits(3, 5, dtype=torch.float32), targets(3, classes=5)
    target = torch.softmax(logits(3, 5, seed=3).detach().float(), 1) if distribution else target
    (wanted,) = torch.autograd.grad(functional.cross_entropy(x, target), x)
    y = x * 1
    squares = y**2  # needs y as it was
    loss = cross_entropy(y, target, inplace_backward=True)
    torch.testing.assert_close(y.detach(), wanted)
    torch.testing.assert_close(torch.autograd.grad(loss, x)[0], wanted)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        squares.sum().backward()
    before = x.detach().clone()
    for shared in (x, x.view(3, 5), x.detach()):  # a leaf, and what lies in its memory
        cross_entropy(shared, target, inplace_backward=True)
    assert torch.equal(x, before)


@pytest.mark.parametrize("told", [True, False])
def test_backward_twice(told, monkeypatch):
    """Whether PyTorch tells that the graph is kept, or no longer has the private name."""
    if not told:
        monkeypatch.delattr(torch._C._autograd, "_get_current_graph_task_keep_graph")
    x, target = logits(3, 5, dtype=torch.float32), targets(3, classes=5)
    (wanted,) = torch.autograd.grad(functional.cross_entropy(x, target), x)
    loss = cross_entropy(x, target)
    twice = [
        torch.autograd.grad(loss, x, torch.tensor(0.5, device=DEVICE), retain_graph=keep)[0]
        for keep in (True, False)
    ]
    torch.testing.assert_close(twice[0], wanted / 2)
    assert torch.equal(*twice)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("entropy", [False, True])
@pytest.mark.parametrize("watched", [False, True])
def test_tokens_in_place(watched, entropy, temperature):
    """Under autocast, where the backward pass is watched, kernels are called through the
    dispatcher."""
    y = 1.0 * logits(3, 20, dtype=torch.float32)
    squares = y * y
    index = targets(3, classes=20).clamp(min=0)
    options = {"temperature": temperature, "return_entropy": entropy}
    found = token_logprobs(y, index, **options, inplace_backward=True)
    total = sum(each.sum() for each in (found if entropy else (found,)))
    z = y.detach().double().requires_grad_()
    wanted = token_logprobs(z, index, **options)
    (right,) = torch.autograd.grad(sum(each.sum() for each in wanted if each.numel()), z)
    with torch.autocast(DEVICE, torch.bfloat16, enabled=watched):
        with probe.Operators() if watched else contextlib.nullcontext() as called:
            (dy,) = torch.autograd.grad(total, y)
    assert not watched or "triton_softmax.token_gradient.default" in called.names
    assert dy.data_ptr() == y.data_ptr()
    torch.testing.assert_close(y.detach(), right.float())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        squares.sum().backward()


def test_a_second_derivative_says_why_not():
    x, target = logits(3, 5), targets(3, classes=5)
    for reduction, dtype in (("mean", x.dtype), ("mean", torch.bfloat16), ("none", torch.float16)):
        loss = cross_entropy(x, target, reduction=reduction, loss_dtype=dtype)
        assert loss.dtype == dtype
        loss += 1.0  # it may be changed: what is saved for the derivative is another tensor
        (dx,) = torch.autograd.grad(loss.sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="written its gradient in the forward pass"):
            dx.sum().backward()


REFUSED = [
    ({"reduction": "median"}, ValueError, "is not a valid value for reduction"),
    ({"label_smoothing": 2.0}, RuntimeError, "label_smoothing must be between"),
    ({"weight": torch.ones(3)}, RuntimeError, "weight tensor should be defined"),
    ({"weight": torch.ones(4)}, RuntimeError, "weight must have the dtype|expected scalar type"),
    *(({"softcap": cap}, ValueError, "softcap must be positive") for cap in (0.0, -1.0, INF, NAN)),
    ({"scale": INF}, ValueError, "scale must be finite"),
]


@pytest.mark.parametrize("given, error, words", REFUSED, ids=str)
def test_what_is_refused(given, error, words):
    x, target = logits(2, 4), targets(2, classes=4)
    if "weight" in given:
        given = {"weight": given["weight"].to(DEVICE)}
    with pytest.raises(error, match=words):
        cross_entropy(x, target, **given)
    if not {"softcap", "scale"} & set(given):
        with pytest.raises(error, match=words):
            functional.cross_entropy(x, target, **given)


def test_weights_may_have_the_dtype_of_the_loss():
    """So that a factor of the loss is in the gradient before that is rounded."""
    x, target = logits(3, 5, dtype=torch.bfloat16), targets(3, classes=5)
    weight = torch.full((5,), 1 / 3, device=DEVICE)
    loss = cross_entropy(x, target, weight, reduction="sum", loss_dtype=torch.float32)
    wide = x.detach().float().requires_grad_()
    wanted = functional.cross_entropy(wide, target, weight, reduction="sum")
    torch.testing.assert_close(loss, wanted)
    found, exact = (torch.autograd.grad(*each)[0] for each in ((loss, x), (wanted, wide)))
    torch.testing.assert_close(found, exact.bfloat16(), rtol=2**-7, atol=0)
    with pytest.raises(RuntimeError, match="weight must have the dtype"):
        cross_entropy(x.double(), target, weight, loss_dtype=torch.float32)


@pytest.mark.parametrize("asked, within", [(False, False), (True, False), (False, True)])
def test_tokens_over_ranks_are_invariant_if_asked(asked, within, monkeypatch):
    """The temperature is handed on as it is, since ranks compare it."""
    given = []
    handed = lambda *all_given: given.extend(all_given) or (None, None)  # noqa: E731
    monkeypatch.setattr(distributed, "agreed", handed)
    x, index = logits(2, 4), torch.tensor([0, 1], device=DEVICE)
    temperature = torch.full((2, 1), 0.5, dtype=x.dtype, device=DEVICE)
    options = {"group": object(), "batch_invariant": asked}
    with batch_invariant() if within else contextlib.nullcontext():
        token_logprobs(x, index, temperature=temperature, **options)
    assert given[2] is x and given[7] is temperature and given[8] is (asked or within)
    with pytest.raises(NotImplementedError, match="gradient of a temperature"):
        token_logprobs(x, index, temperature=temperature.requires_grad_(), **options)


@pytest.mark.parametrize("classes, right", [(4, True), (10, True), (3, False), (5, False)])
def test_weights_over_ranks_are_those_of_all_classes_or_of_a_rank(classes, right):
    x, target = logits(2, 4), torch.tensor([0, 9], device=DEVICE)
    weight = torch.ones(classes, dtype=x.dtype, device=DEVICE)
    options = LossOptions(1, -100, "mean", 0.0, 0.0, x.dtype)
    refused = pytest.raises(RuntimeError, match="weight tensor should be defined")
    with contextlib.nullcontext() if right else refused:
        check_loss_of_part(x, target, weight, 10, options)


def test_shapes_and_types_are_refused_in_torch_s_words():
    x = logits(3, 4)
    for target in (targets(2, classes=4), torch.rand(3, device=DEVICE), torch.ones(3, 4).long()):
        target = target.to(DEVICE)
        with pytest.raises((ValueError, RuntimeError)) as theirs:
            functional.cross_entropy(x, target)
        with pytest.raises(type(theirs.value)) as ours:
            cross_entropy(x, target)
        assert str(ours.value) == str(theirs.value)
    with pytest.raises(ValueError, match="not with probabilities"):
        cross_entropy(x, torch.rand(3, 4, dtype=x.dtype, device=DEVICE), z_loss=0.1)
    if DEVICE == "cpu":
        with pytest.raises(IndexError, match=r"Target 9 is out of bounds\."):
            cross_entropy(x, torch.tensor([0, 9, 1]))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_no_rows(reduction):
    """Of classes, of probabilities, with weights, and of a layer; nor classes, nor features."""
    x, classes = logits(0, 5), torch.empty(0, dtype=torch.int64, device=DEVICE)
    weight = torch.ones(5, dtype=x.dtype, device=DEVICE)
    for target, given in ((classes, None), (x.detach(), None), (classes, weight)):
        options = {"weight": given, "reduction": reduction}
        wanted = functional.cross_entropy(x, target, **options)
        torch.testing.assert_close(cross_entropy(x, target, **options), wanted, equal_nan=True)
    found = linear_cross_entropy(x, logits(7, 5), classes, reduction=reduction)
    torch.testing.assert_close(found, wanted, equal_nan=True)
    ignored, none = torch.full((2,), -100, device=DEVICE), x.detach()[:, :0].reshape(0)
    for weight, epsilon in ((none, 0.0), (None, 0.1), (none, 0.1)):
        options = {"weight": weight, "reduction": reduction, "label_smoothing": epsilon}
        found = cross_entropy(none.new_zeros(2, 0), ignored, **options)
        wanted = torch.tensor(
            NAN if reduction == "mean" else [0.0, 0.0] if reduction == "none" else 0.0
        )
        torch.testing.assert_close(found, wanted.to(found), equal_nan=True)
    layer, target = (none.new_zeros(n, 0) for n in (3, 4)), torch.arange(3, device=DEVICE)
    found = linear_cross_entropy(*layer, target, reduction=reduction)
    wanted = functional.cross_entropy(none.new_zeros(3, 4), target, reduction=reduction)
    torch.testing.assert_close(found, wanted)
    layer = none.new_zeros(2, 3), none.new_zeros(0, 3)
    for size in (None, 1):
        found = linear_cross_entropy(*layer, ignored, reduction=reduction, chunk_size=size)
        wanted = cross_entropy(none.new_zeros(2, 0), ignored, reduction=reduction)
        torch.testing.assert_close(found, wanted, equal_nan=True)


@pytest.mark.parametrize("by_kernels", [True, False], ids=["kernels", "operators"])
def test_smoothing_far_from_zero(by_kernels, monkeypatch):
    """Of huge logits, and of logits that share a large number, of which a sum loses digits."""
    monkeypatch.setattr(arguments, "INTERPRETED", by_kernels)
    target, least = torch.tensor([0, 4, 2], device=DEVICE), torch.finfo(torch.float32).min
    steps = torch.arange(15.0, device=DEVICE).view(3, 5)
    for x in (steps + 1e6, steps - 1e6, torch.full_like(steps, least), -least + 0 * steps):
        for weight in (None, 1 + torch.arange(5.0, device=DEVICE)):
            options = {"weight": weight, "label_smoothing": 0.1}
            wide = options | {"weight": None if weight is None else weight.double()}
            wanted = functional.cross_entropy(x.double(), target, **wide)
            torch.testing.assert_close(cross_entropy(x, target, **options), wanted.float())


def test_an_unused_z_loss_of_huge_logits_has_no_gradient():
    """By operators, which differentiate its factor of 0 times an infinity."""
    x, target = torch.full((1, 4), torch.finfo(torch.float32).min), torch.tensor([2])
    found = torch.func.grad(lambda x: 1.5 * cross_entropy(x, target))(x)
    torch.testing.assert_close(found, torch.tensor([[0.375, 0.375, -1.125, 0.375]]))


WIDE = {"loss_dtype": torch.float32}
WEIGHT, SMALL = 0.1 + drawn(40).abs(), torch.full((40,), 1e-3, dtype=torch.float64, device=DEVICE)
EYE, Q = torch.eye(40, dtype=torch.float64, device=DEVICE), torch.softmax(drawn(300, 40, seed=1), 1)
HALVES = {
    "plain": ({}, {}, cross_entropy),
    "smoothed": ({"weight": WEIGHT, "label_smoothing": 0.1}, {}, cross_entropy),
    "probabilities": ({"target": Q}, {}, cross_entropy),
    "in place": ({}, {"inplace_backward": True}, cross_entropy),
    "a layer's": ({}, {"linear_weight": EYE.half()}, linear_cross_entropy),
    "a layer's sum": (
        {"weight": SMALL, "reduction": "sum"}, {"linear_weight": EYE.half()}, linear_cross_entropy
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HALVES)
def test_a_loss_scale_saves_the_small_gradients_of_float16(name):
    """1 / n of a mean, or weights of classes, would make them 0 in the forward pass."""
    options, more, function = HALVES[name]
    options = {"target": targets(300, classes=40)} | options
    half, wide = (drawn(300, 40, dtype=torch.float16).to(dtype) for dtype in (torch.half, F64))
    half.requires_grad_(), wide.requires_grad_()
    narrow = {name: each.float() if each is WEIGHT or each is SMALL else each
              for name, each in options.items()}  # fmt: skip
    loss = function(half * 1, **narrow, **more, **WIDE)
    wanted = functional.cross_entropy(wide, **options)
    torch.testing.assert_close(loss.double(), wanted, rtol=1e-5, atol=0)
    (dx,), (wanted,) = (
        torch.autograd.grad(65536 * y, x) for y, x in ((loss, half), (wanted, wide))
    )
    torch.testing.assert_close(dx.double(), wanted, rtol=2e-3, atol=3e-5)


@pytest.mark.parametrize("weight", [None, 1.0, 0.0])
def test_a_mean_of_nothing_in_float16_has_a_gradient_of_0(weight):
    x = drawn(2, 4, dtype=torch.float16).requires_grad_()
    weight = None if weight is None else torch.full((4,), weight, device=DEVICE).half()
    ignored = torch.tensor([-100, 2 if weight is not None and not weight.any() else -100])
    loss = cross_entropy(x, ignored.to(DEVICE), weight)
    (dx,) = torch.autograd.grad(loss, x)
    assert loss.isnan() and not dx[0].any()


def test_weights_of_another_dtype_are_refused_or_taken_as_in_any_mean():
    x, target = drawn(6, 5, dtype=torch.float16).requires_grad_(), targets(6, classes=5)
    weight = torch.ones(5, device=DEVICE)
    for dtype in (torch.float32, F64, torch.bfloat16):
        given = {"weight": weight.to(dtype), "loss_dtype": dtype}
        loss, wanted = (cross_entropy(each, target, **given) for each in (x, x.detach()))
        torch.testing.assert_close(loss, wanted)
        with pytest.raises(RuntimeError, match="weight must have the dtype of the logits"):
            cross_entropy(x, target, weight.to(dtype))
    with pytest.raises(TypeError):
        cross_entropy(x, target, [1.0] * 5)
    none = cross_entropy(torch.zeros(2, 0).half().requires_grad_(), torch.zeros(2, 0))
    assert none.isnan()


def test_a_gradient_is_the_same_if_the_graph_is_kept():
    x, target = drawn(6, 5, dtype=torch.bfloat16).requires_grad_(), targets(6, classes=5)
    for reduction in ("mean", "none"):
        g = torch.tensor(1 / 3) if reduction == "mean" else drawn(6, dtype=torch.bfloat16)
        found = []
        for kept in (True, False):
            loss = cross_entropy(x, target, reduction=reduction, loss_dtype=torch.bfloat16)
            found += torch.autograd.grad(loss, x, g.to(loss), retain_graph=kept)
        assert torch.equal(*found)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_batched_gradients_of_a_layer_that_may_be_differentiated(dtype, reduction):
    layer, x = drawn(5, 4, dtype=dtype).requires_grad_(), drawn(6, 4, dtype=dtype, seed=1)
    loss = linear_cross_entropy(x, layer, targets(6, classes=5), reduction=reduction)
    g = torch.tensor([2.0, 3.0], device=DEVICE).to(dtype).view(2, *[1] * loss.dim())
    g = g.expand(2, *loss.shape)
    ways = {"retain_graph": True}, {"create_graph": True}
    each, again = (torch.autograd.grad(loss, layer, g, is_grads_batched=True, **w) for w in ways)
    torch.testing.assert_close(each, again)


def test_so_does_that_of_a_models_loss():
    x, target = torch.zeros(4, 64, dtype=torch.half, device=DEVICE), torch.arange(4, device=DEVICE)
    x.requires_grad_()
    loss = causal_lm_loss(x, None, shift_labels=target, num_items_in_batch=torch.tensor(1_000_000))
    (dx,) = torch.autograd.grad(65536 * loss, x)
    wanted = 0.065536 * (1 / 64 - torch.eye(4, 64, device=DEVICE))
    torch.testing.assert_close(dx.float(), wanted, rtol=1e-3, atol=0)


def test_a_layer_of_inference_tensors():
    """Outside inference mode nothing of them is kept for a gradient."""
    with torch.inference_mode():
        x, layer, target = logits(3, 5).detach(), logits(7, 5).detach(), targets(3, classes=7)
        wanted = functional.cross_entropy(x @ layer.T, target, reduction="none")
    torch.testing.assert_close(linear_cross_entropy(x, layer, target, reduction="none"), wanted)


def test_what_is_no_tensor_is_named():
    x, target = logits(2, 5), torch.tensor([0, 3], device=DEVICE)
    with pytest.raises(TypeError, match="target must be a tensor, not list"):
        cross_entropy(x, target.tolist())
    with pytest.raises(TypeError, match="input must be a tensor, not list"):
        cross_entropy(x.tolist(), target)


def test_a_warning_points_at_the_caller():
    with pytest.warns(UserWarning, match="use reduction='sum'") as warned:
        cross_entropy(logits(2, 5), torch.tensor([0, 3], device=DEVICE), size_average=False)
    assert warned[0].filename == __file__


def test_a_layer_makes_the_logits_of_all_rows_at_once_if_they_are_few(monkeypatch):
    made, run = [], linear.run_losses
    monkeypatch.setattr(linear, "run_losses", lambda *a: made.append(len(a[1])) or run(*a))
    x, target = logits(4, 3), torch.tensor([0, 3, 1, 1], device=DEVICE)
    for chunk_size, sizes in ((None, [4]), (3, [3, 1])):
        made.clear()
        linear_cross_entropy(x, logits(5, 3), target, reduction="none", chunk_size=chunk_size)
        assert made == sizes


@pytest.mark.slow
@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("by_kernels", [True, False])
def test_the_error_of_a_layers_gradient_does_not_grow_with_the_chunks(
    by_kernels, reduction, monkeypatch
):
    if not by_kernels:
        if DEVICE != "cpu":
            pytest.skip("a GPU has kernels")
        monkeypatch.setattr(arguments, "INTERPRETED", False)
    narrow = torch.bfloat16
    x, layer, bias = [logits(*shape).detach().to(narrow) for shape in ((192, 16), (24, 16), (24,))]
    target, factor = targets(192, classes=24), torch.linspace(0.5, 1.5, 192, device=DEVICE)

    def gradients(function, *tensors, **given):
        leaves = [t.clone().requires_grad_() for t in tensors]
        loss = function(*leaves, reduction=reduction, **given)
        return torch.autograd.grad((loss * factor if loss.dim() else loss).sum(), leaves)

    def fused(x, layer, bias, **given):
        return linear_cross_entropy(x, layer, target, linear_bias=bias, **given)

    def unfused(x, layer, bias, **given):
        return functional.cross_entropy(functional.linear(x, layer, bias), target, **given)

    exact = gradients(unfused, x.double(), layer.double(), bias.double())

    def errors(**given):
        found = gradients(fused, x, layer, bias, **given)
        assert {each.dtype for each in found} == {narrow}
        return [
            ((a.double() - b).norm() / b.norm()).item()
            for a, b in zip(found[1:], exact[1:], strict=True)
        ]

    whole, cut = errors(), errors(chunk_size=4)
    rounded = errors(chunk_size=4, accum_dtype=narrow)
    for one, many in zip(whole, cut, strict=True):
        assert many < 1.05 * one
    assert rounded[0] > 1.05 * whole[0]
    with pytest.raises(ValueError, match="accum_dtype must be one of"):
        fused(x, layer, bias, accum_dtype=torch.float64)


@pytest.mark.parametrize("by_kernels", [True, False])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_a_layers_loss_may_have_a_wider_dtype(reduction, by_kernels, monkeypatch):
    monkeypatch.setattr(arguments, "INTERPRETED", by_kernels)
    x, layer = logits(6, 4).detach().bfloat16(), logits(5, 4).detach().bfloat16()
    given = {"reduction": reduction, "loss_dtype": torch.float32}
    target, found = targets(6, classes=5), []
    for wide in (False, True):
        leaves = [x.clone().requires_grad_(), layer.clone().requires_grad_()]
        if wide:
            loss = cross_entropy(functional.linear(*leaves), target, **given)
        else:
            loss = linear_cross_entropy(*leaves, target, chunk_size=2, **given)
        found.append((loss, *torch.autograd.grad(loss.sum(), leaves)))
    assert found[0][0].dtype == torch.float32 and found[0][1].dtype == torch.bfloat16
    assert not torch.equal(found[0][0], found[0][0].bfloat16().float())
    torch.testing.assert_close(found[0][0], found[1][0])
    torch.testing.assert_close(found[0][1:], found[1][1:], rtol=0.05, atol=2e-3)
    with pytest.raises(TypeError, match="the loss has dtype int32"):
        linear_cross_entropy(x, layer, target, loss_dtype=torch.int32)


def test_a_layers_losses_of_rows_have_batched_gradients_and_no_second_one():
    x, layer, target = logits(3, 4), logits(5, 4), targets(3, classes=5)
    losses = linear_cross_entropy(x, layer, target, reduction="none", chunk_size=2)
    wanted = functional.cross_entropy(x @ layer.T, target, reduction="none")
    each = torch.eye(3, dtype=x.dtype, device=DEVICE)
    options = {"is_grads_batched": True, "retain_graph": True}
    torch.testing.assert_close(
        torch.autograd.grad(losses, (x, layer), each, **options),
        torch.autograd.grad(wanted, (x, layer), each, **options),
    )
    if DEVICE != "cpu" or arguments.INTERPRETED:
        (first,) = torch.autograd.grad(losses.sum(), layer, create_graph=True)
        with pytest.raises(RuntimeError, match="cannot differentiate it again"):
            torch.autograd.grad(first.sum(), x)


@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_layers_bias_may_be_one_number(shape):
    bias = torch.ones(shape, dtype=torch.float64, device=DEVICE).requires_grad_()
    tensors, options = (logits(3, 4), logits(5, 4), targets(3, classes=5)), {"linear_bias": bias}
    check(Call(partial(linear_cross_entropy, chunk_size=2), linear_of, tensors, options))


@pytest.mark.parametrize(
    "arguments", [{}, {"label_smoothing": 0.1, "weight": True}, {"reduction": "none"}], ids=str
)
def test_small_targets_are_compared_as_they_are_meant(arguments):
    """In uint8, -100 would be 156, and 300 classes would be 44."""
    x = logits(4, 300)
    target = torch.tensor([156, 255, 43, 0], dtype=torch.uint8, device=DEVICE)
    arguments = dict(arguments)
    if "weight" in arguments:
        arguments["weight"] = torch.linspace(0.5, 2, 300, dtype=x.dtype, device=DEVICE)
    for index in (-100, 255, 300):
        given = {"ignore_index": index, **arguments}
        wanted = functional.cross_entropy(x, target.long(), **given)
        along = torch.ones_like(wanted)
        expected = torch.autograd.grad(wanted, x, along)
        ours = cross_entropy(x, target, **given)
        torch.testing.assert_close(ours, wanted)
        torch.testing.assert_close(torch.autograd.grad(ours, x, along), expected)
        by_operators = torch.func.grad(lambda x, g=given: cross_entropy(x, target, **g).sum())
        torch.testing.assert_close(by_operators(x), expected[0])
        layer = torch.eye(300, dtype=x.dtype, device=DEVICE)
        torch.testing.assert_close(linear_cross_entropy(x, layer, target, **given), wanted)
    if DEVICE == "cpu":
        with pytest.raises(IndexError, match=r"Target 156 is out of bounds\."):
            cross_entropy(x[:, :9], target)
        for wrong in (-5, 300):
            with pytest.raises(IndexError, match=rf"Target {wrong} is out of bounds\."):
                linear_cross_entropy(x, layer, torch.tensor([0, 1, 2, wrong]))


def test_the_module_is_the_function():
    x, target = logits(3, 4), targets(3, classes=4)
    weight = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=x.dtype, device=DEVICE)
    module = CrossEntropyLoss(weight, reduction="sum", z_loss=0.5).to(DEVICE)
    wanted = cross_entropy(x, target, weight, reduction="sum", z_loss=0.5)
    torch.testing.assert_close(module(x, target), wanted)
    assert set(module.state_dict()) == set(torch.nn.CrossEntropyLoss(weight).state_dict())


def test_what_torch_expects_to_be_refused():
    """The error inputs of its own module."""
    pytest.importorskip("expecttest")  # which PyTorch's samples import
    from torch.testing._internal.common_modules import module_db

    info = next(each for each in module_db if each.name == "nn.CrossEntropyLoss")
    if info.module_error_inputs_func is None:
        pytest.skip("this PyTorch has none")
    errors = info.module_error_inputs_func(
        info, DEVICE, torch.float64, requires_grad=False, training=True
    )
    for error in errors:
        made = error.module_error_input
        module = CrossEntropyLoss(*made.constructor_input.args, **made.constructor_input.kwargs)
        arguments = made.forward_input
        with pytest.raises(error.error_type, match=error.error_regex):
            module(*arguments.args, **arguments.kwargs)
    assert errors


def test_targets_are_mapped_over():
    x, target = logits(2, 3), torch.tensor([2, 0], device=DEVICE)
    mapped = torch.vmap(lambda x, t: cross_entropy(x, t))(x, target)
    torch.testing.assert_close(mapped, functional.cross_entropy(x, target, reduction="none"))


@pytest.mark.parametrize("function", [cross_entropy, linear_cross_entropy])
def test_two_losses_compile_for_all_sizes(function):
    torch._dynamo.reset()
    x, layer, target = logits(6, 5), logits(4, 5), targets(6, classes=4)

    def step(x):
        if function is linear_cross_entropy:
            return linear_cross_entropy(x, layer, target, chunk_size=2)
        return cross_entropy(x @ layer.T, target) + cross_entropy(2 * x @ layer.T, target)

    found = torch.compile(step, backend="aot_eager", dynamic=True)(x)
    torch.testing.assert_close(found, step(x))
    (found,), (wanted,) = (torch.autograd.grad(y, x) for y in (found, step(x)))
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_row_of_16_bits_with_weights_compiles(dtype):
    torch._dynamo.reset()
    x, weight = drawn(5, dtype=dtype).requires_grad_(), drawn(5, dtype=dtype).abs()
    step = partial(cross_entropy, target=torch.tensor(3, device=DEVICE), weight=weight)
    found = torch.compile(step, backend="aot_eager", fullgraph=True)(x)
    torch.testing.assert_close(found, step(x))


def test_a_single_row_with_weights_compiles(monkeypatch):
    """Where PyTorch's operators compute."""
    monkeypatch.setattr(arguments, "INTERPRETED", DEVICE != "cpu")
    given = logits(4), torch.tensor(2, device=DEVICE), logits(4).detach().exp()
    compiled = torch.compile(cross_entropy, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(*given), functional.cross_entropy(*given))


@pytest.mark.parametrize("beyond", [0, 1])
def test_work_items_are_counted_in_31_bits(beyond):
    """A program's next item is counted as well; PyTorch scales more rows than that."""
    x = torch.empty(2**31 - PROGRAMS - 1 + beyond, 1, dtype=torch.float16, device="meta")
    scaled = plan_losses._plan_scale(x, x[:, 0], 1, for_all=False)
    assert scaled.launches[0].grid == (0 if beyond else PROGRAMS)


# --- other libraries, where they are installed ---
