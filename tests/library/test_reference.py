"""The references: against PyTorch and against each other, in float64 and at the borders."""

import itertools

import numpy as np
import pytest
import torch

from softmax_site.computed import worked
from softmax_tutorial import reference

SHAPES = [(1,), (7,), (1, 1), (3, 5), (2, 1), (2, 3, 33), (256, 130)]
EDGES = [
    [0.0, -np.inf, 1.0],
    [-np.inf, -np.inf, -np.inf],
    [np.inf, 0.0, 1.0],
    [np.inf, -np.inf, np.inf],
    [np.nan, 0.0, 1.0],
    [np.nan, -np.inf, np.inf],
    [1e308, -1e308, 0.0],
    [-1000.0, -1001.0, -1002.0],
]


def random(*shape, seed=0, scale=5.0):
    return np.random.default_rng(seed).normal(size=shape) * scale


LINES = [
    (reference.softmax_naive_numpy, torch.softmax),
    (reference.softmax_online_numpy, torch.softmax),
    (reference.log_softmax_numpy, torch.log_softmax),
    (reference.logsumexp_numpy, torch.logsumexp),
]
TORCH_LINES = [
    (reference.softmax_naive_torch, torch.softmax),
    (reference.log_softmax_naive_torch, torch.log_softmax),
]


def check_lines(x: np.ndarray, **near) -> None:
    t = torch.tensor(x)
    for ours, theirs in LINES:
        np.testing.assert_allclose(ours(x), theirs(t, dim=-1), **near)
    for ours, theirs in TORCH_LINES:
        np.testing.assert_allclose(ours(t), theirs(t, dim=-1), **near)


def test_the_softmaxes_agree_with_torch():
    for shape in SHAPES:
        check_lines(random(*shape), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("edge", EDGES, ids=str)
def test_what_is_not_finite_follows_torch(edge):
    x = np.array([edge, [1.0, 2.0, 3.0]])
    check_lines(x, rtol=1e-13)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_dtype_is_kept(dtype):
    x = random(3, 5).astype(dtype)
    for function, _ in LINES:
        assert function(x).dtype == dtype
    assert reference.softmax_vjp(x, x).dtype == reference.softmax_jacobian(x).dtype == dtype


# --- the monoid


def test_merge_of_any_split_is_the_summary_of_the_whole():
    x = random(40)
    for cut in range(41):
        left, right = reference.summary(x[:cut]), reference.summary(x[cut:])
        np.testing.assert_allclose(reference.merge(*left, *right), reference.summary(x), rtol=1e-14)


def test_merge_is_associative_with_identity():
    pairs = [reference.IDENTITY, (0.0, 1.0), (-1e3, 3.0), (1e3, 2.5), (1e308, 1.0), (-1e308, 1.0)]
    for a, b, c in itertools.product(pairs, repeat=3):
        left = reference.merge(*reference.merge(*a, *b), *c)
        right = reference.merge(*a, *reference.merge(*b, *c))
        np.testing.assert_allclose(left, right, rtol=1e-14)
    for pair in pairs:
        assert (
            reference.merge(*pair, *reference.IDENTITY)
            == reference.merge(*reference.IDENTITY, *pair)
            == pair
        )


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_merge_never_loses_what_is_not_finite(bad):
    for x in itertools.permutations([bad, 1.0, -np.inf, 3.0]):
        m, d = reference.IDENTITY
        for x_i in x:
            m, d = reference.merge(m, d, x_i, 1.0)
        assert np.isnan(d)


def test_the_steps_of_the_online_recurrence():
    x = random(20)
    for step in reference.online_steps(x):
        m, d = reference.summary(x[: step.i + 1])
        np.testing.assert_allclose([step.m, step.d], [m, d], rtol=1e-14)
    d = 0.0
    for step in reference.online_steps(x):
        d = d * step.scale + step.term
        assert d == pytest.approx(step.d, rel=1e-14)
    with pytest.raises(ValueError, match="one row"):
        reference.online_steps(random(2, 3))


# --- backward


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_products_agree_with_autograd(shape):
    x = torch.tensor(random(*shape), requires_grad=True)
    dy = torch.tensor(random(*shape, seed=1))
    for function, vjp_numpy, vjp_torch in (
        (torch.softmax, reference.softmax_vjp, reference.softmax_vjp_torch),
        (torch.log_softmax, reference.log_softmax_vjp, reference.log_softmax_vjp_torch),
    ):
        y = function(x, dim=-1)
        (dx,) = torch.autograd.grad(y, x, dy)
        y = y.detach()
        np.testing.assert_allclose(vjp_numpy(y.numpy(), dy.numpy()), dx, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(vjp_torch(y, dy), dx, rtol=1e-10, atol=1e-12)


def test_the_naive_torch_lines_are_differentiable():
    x = torch.tensor(random(3, 7), requires_grad=True)
    assert torch.autograd.gradcheck(reference.softmax_naive_torch, x)
    assert torch.autograd.gradcheck(reference.log_softmax_naive_torch, x)


def test_the_jacobians():
    x = random(4, 6)
    y = reference.softmax_naive_numpy(x)
    for function, ours in (
        (torch.softmax, reference.softmax_jacobian),
        (torch.log_softmax, reference.log_softmax_jacobian),
    ):
        of_row = torch.func.jacrev(lambda t, f=function: f(t, 0))
        expected = torch.func.vmap(of_row)(torch.tensor(x))
        np.testing.assert_allclose(ours(y), expected, atol=1e-14)
    dy = random(4, 6, seed=1)
    np.testing.assert_allclose(
        np.einsum("nij,nj->ni", reference.softmax_jacobian(y), dy),
        reference.softmax_vjp(y, dy),
        atol=1e-14,
    )


def test_cross_entropy_and_its_gradient():
    x, target = random(5, 9), np.array([0, 8, 3, 3, 1])
    t = torch.tensor(x, requires_grad=True)
    loss = torch.nn.functional.cross_entropy(t, torch.tensor(target), reduction="none")
    np.testing.assert_allclose(reference.cross_entropy(x, target), loss.detach(), rtol=1e-13)
    loss.sum().backward()
    np.testing.assert_allclose(reference.cross_entropy_gradient(x, target), t.grad, atol=1e-14)


def test_the_gradient_of_logsumexp():
    x, dlse = random(5, 9), random(5, seed=2)
    t = torch.tensor(x, requires_grad=True)
    torch.logsumexp(t, dim=-1).backward(torch.tensor(dlse))
    np.testing.assert_allclose(reference.logsumexp_vjp(x, dlse), t.grad, atol=1e-14)


# --- attention


def test_attention():
    q, k, v = random(11, scale=2.0), random(30, seed=1), random(30, seed=2)
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(torch.tensor(t)[None, :, None] for t in (q, k, v)), scale=1.0
    )[0, :, 0]
    np.testing.assert_allclose(reference.attention_naive(q, k, v), expected, rtol=1e-12)
    np.testing.assert_allclose(reference.attention_online(q, k, v), expected, rtol=1e-11)
    for step in reference.attention_steps(q, k, v):
        read = slice(0, step.j + 1)
        np.testing.assert_allclose(
            step.o, reference.attention_naive(q, k[read], v[read]), rtol=1e-10
        )


def test_attention_starts_at_minus_infinity():
    """With every score below -10⁶ a stand-in for -inf would win the maximum."""
    q, k, v = np.array([-3000.0]), np.array([1000.0, 1000.0]), np.array([1.0, 3.0])
    np.testing.assert_allclose(reference.attention_online(q, k, v), [2.0])


# --- the worked example


def test_the_worked_example_agrees_with_autograd():
    x = torch.tensor(worked.X, requires_grad=True)
    y = torch.softmax(x, dim=1)
    y.backward(torch.tensor(worked.DY))
    np.testing.assert_allclose(worked.forward()["y"], y.detach(), rtol=1e-14)
    np.testing.assert_allclose(worked.forward()["log y"], y.detach().log(), rtol=1e-14)
    np.testing.assert_allclose(worked.backward()["dx"], x.grad, atol=1e-15)
