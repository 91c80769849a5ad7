"""Softmax with modifiers on a GPU: masks and biases that lie in every way, at every kind of
length."""

import pytest
import torch

from in_float64 import softmax_of
from triton_softmax import softmax

pytestmark = pytest.mark.gpu

TOLERANCES = {torch.float32: 2e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}
LENGTHS = (1, 7, 64, 257, 512, 768, 1000, 1001, 1024, 3000, 4096, 5000, 8192, 20_000, 65_537)
HEADS, QUERIES = 3, 40
every_dtype = pytest.mark.parametrize("dtype", TOLERANCES, ids=str)


def near(got: torch.Tensor, want: torch.Tensor, tolerance: float) -> None:
    torch.testing.assert_close(got.double(), want, atol=tolerance, rtol=tolerance, equal_nan=True)


def compare(x: torch.Tensor, **options) -> None:
    """The result, and the gradient of rows that have one."""
    tolerance, wide = TOLERANCES[x.dtype], x.detach().double().requires_grad_()
    y, wanted = softmax(x, **options), softmax_of(wide, -1, False, **{"safe": False, **options})
    near(y, wanted.detach(), tolerance)
    dy, rows = torch.randn_like(y), wanted.isfinite().all(-1)
    (dx,), (exact,) = (
        torch.autograd.grad(each, of, dy.to(each)) for each, of in ((y, x), (wanted, wide))
    )
    near(dx[rows], exact[rows], 4 * tolerance)


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


@every_dtype
@pytest.mark.parametrize("n", LENGTHS)
def test_masks(n, dtype):
    x = (3 * torch.randn(2, HEADS, QUERIES, n, device="cuda")).to(dtype).requires_grad_()
    for where in masks(n).values():
        for safe in (False, True):
            compare(x, where=where, scale=0.5, safe=safe)


@every_dtype
@pytest.mark.parametrize("n", [1, 5, 64, 100, 257, 768, 1000, 1001, 1024, 3000, 4096, 9000])
def test_causal_and_bias(n, dtype):
    x = (3 * torch.randn(2, n, n, device="cuda")).to(dtype).requires_grad_()
    for bias in (None, torch.randn(n, n, device="cuda").to(dtype)):
        compare(x, causal=True, bias=bias)


@every_dtype
@pytest.mark.parametrize("n", [1000, 8192, 20_000, 151_936])
def test_a_scale_for_each_row_in_place(n, dtype):
    x = torch.randn(70, n, device="cuda").to(dtype)
    scale = 0.5 + torch.rand(70, 1, device="cuda")
    wanted = torch.softmax(x.double() * scale, -1)
    softmax(x, scale=scale, out=x)
    near(x, wanted, TOLERANCES[dtype])
