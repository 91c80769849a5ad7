"""Softmax with maps on a GPU: masks and biases that lie in every way, at every kind of length."""

import pytest
import torch

from triton_softmax import softmax

pytestmark = pytest.mark.gpu

TOLERANCES = {torch.float32: 2e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}
LENGTHS = (1, 7, 64, 257, 512, 768, 1000, 1001, 1024, 3000, 4096, 5000, 8192, 20_000, 65_537)
HEADS, QUERIES = 3, 40


def masks(n: int) -> dict[str, torch.Tensor]:
    """Masks in the shape of scores (2, HEADS, QUERIES, n), broadcast, transposed, with gaps."""

    def drawn(*shape: int) -> torch.Tensor:
        return torch.rand(shape, device="cuda") < 0.7

    return {
        "each": drawn(2, HEADS, QUERIES, n),
        "of queries and keys": drawn(QUERIES, n),
        "of keys": drawn(2, 1, 1, n),
        "of queries": drawn(QUERIES, 1),
        "transposed": drawn(n, QUERIES).T,
        "with gaps": drawn(QUERIES, 2 * n)[:, ::2],
        "unaligned": drawn(QUERIES, n + 3)[:, 3:],
        "of nothing": torch.zeros(QUERIES, n, dtype=torch.bool, device="cuda"),
    }


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("n", LENGTHS)
def test_masks(n, dtype):
    x = (3 * torch.randn(2, HEADS, QUERIES, n, device="cuda")).to(dtype).requires_grad_()
    dy = torch.randn_like(x)
    tolerance = TOLERANCES[dtype]
    for safe in (False, True):
        for name, where in masks(n).items():
            y = softmax(x, where=where, scale=0.5, safe=safe)
            z = (x.detach().double() * 0.5).masked_fill(~where, -torch.inf)
            wanted = torch.softmax(z, -1)
            if safe:
                wanted = wanted.nan_to_num(0.0)
            near = {"atol": tolerance, "rtol": tolerance, "equal_nan": True}
            torch.testing.assert_close(y.double(), wanted, **near, msg=lambda m: f"{name}: {m}")  # noqa: B023
            (dx,) = torch.autograd.grad(y, x, dy)
            exact = 0.5 * wanted * (dy - (wanted * dy).sum(-1, keepdim=True))
            exact = exact.masked_fill(~where, 0.0)
            rows = wanted.isfinite().all(-1)
            torch.testing.assert_close(
                dx.double()[rows], exact[rows], atol=4 * tolerance, rtol=4 * tolerance
            )


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("n", [1, 5, 64, 100, 257, 768, 1000, 1001, 1024, 3000, 4096, 9000])
def test_causal_and_bias(n, dtype):
    x = (3 * torch.randn(2, n, n, device="cuda")).to(dtype).requires_grad_()
    bias = torch.randn(n, n, device="cuda").to(dtype)
    tolerance = TOLERANCES[dtype]
    above = torch.ones(n, n, dtype=torch.bool, device="cuda").triu(1)
    for given in (None, bias):
        y = softmax(x, causal=True, bias=given)
        z = x.detach().double() if given is None else x.detach().double() + given
        wanted = torch.softmax(z.masked_fill(above, -torch.inf), -1)
        torch.testing.assert_close(y.double(), wanted, atol=tolerance, rtol=tolerance)
        (dx,) = torch.autograd.grad(y, x, torch.ones_like(y))
        assert dx.abs().max() <= 4 * tolerance  # of rows that add up to 1


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("n", [1000, 8192, 20_000, 151_936])
def test_a_scale_for_each_row_in_place(n, dtype):
    x = torch.randn(70, n, device="cuda").to(dtype)
    scale = 0.5 + torch.rand(70, 1, device="cuda")
    wanted = torch.softmax(x.double() * scale, -1)
    softmax(x, scale=scale, out=x)
    tolerance = TOLERANCES[dtype]
    torch.testing.assert_close(x.double(), wanted, atol=tolerance, rtol=tolerance)
