"""log(sum(exp(x))) along rows: whole rows in one program, and rows in chunks that a second kernel
merges."""

import pytest
import torch

from kernel_cases import DEVICE, DTYPES, assert_near, dtype_name, matrix, quiet
from triton_softmax.kernels.logsumexp import logsumexp_backward, logsumexp_forward

pytestmark = quiet
INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_name)
@pytest.mark.parametrize(
    "shape", [(1, 1), (3, 2), (2, 127), (2, 128), (2, 129), (1, 4096), (1, 4097)], ids=str
)
def test_forward_and_backward(shape, dtype):
    x = matrix(*shape, dtype, gap=3)
    lse = logsumexp_forward(x)
    assert lse.dtype == dtype and lse.shape == shape[:1]
    assert_near(lse, torch.logsumexp(x.double(), 1))
    dlse = matrix(shape[0], 1, dtype, seed=1)[:, 0]
    dx = logsumexp_backward(dlse, x, lse)
    assert dx.dtype == dtype and dx.is_contiguous()
    # what the rounding of lse to its dtype leaves of the gradient
    exact = dlse.double()[:, None] * torch.exp(x.double() - lse.double()[:, None])
    assert_near(
        dx, exact, atol=2e-5 if dtype == torch.float32 else 1e-3 if dtype.itemsize == 2 else None
    )


@pytest.mark.parametrize("multiprocessors", [1, 2, 132])
def test_any_number_of_chunks(multiprocessors):
    x = matrix(2, 12305, torch.float32, gap=1)
    assert_near(logsumexp_forward(x, multiprocessors), torch.logsumexp(x.double(), 1))


def test_any_strides():
    x = matrix(6, 40, torch.float32, gap=1)
    for view in (x.T, x[::2], x[:, ::3], x[:1].expand(4, 40)):
        lse = logsumexp_forward(view)
        assert_near(lse, torch.logsumexp(view.double(), 1))
        dx = logsumexp_backward(torch.ones_like(lse), view, lse)
        assert_near(dx, torch.softmax(view.double(), 1), atol=1e-5)


EDGES = [
    [NAN, NAN, NAN],
    [-INF, NAN, -INF],
    [INF, NAN, 0.0],
    [0.0, NAN, 1.0],
    [INF, 1.0, 2.0],
    [INF, INF, -INF],
    [-INF, -INF, -INF],
    [-INF, -INF, 3.0],
    [1e30, 1e30, -1e30],
    [-1e30, -1e30, -1e30],
    [INF, 1e30, -1e30],
    [88.0, 89.0, 104.0],
]


@pytest.mark.parametrize("fill", [0, 4097], ids=["one-program", "chunks"])
def test_edges_as_torch(fill):
    """Alone, and as the last three of a row whose other chunk is all -inf."""
    x = torch.full((len(EDGES), fill + 3), -INF)
    x[:, fill:] = torch.tensor(EDGES)
    lse = logsumexp_forward(x.to(DEVICE))
    assert_near(lse, torch.logsumexp(x, 1).to(DEVICE))
    if not fill:
        exact = x.clone().requires_grad_()
        torch.logsumexp(exact, 1).sum().backward()
        dx = logsumexp_backward(torch.ones_like(lse), x.to(DEVICE), lse)
        assert_near(dx, exact.grad.to(DEVICE))


@pytest.mark.parametrize("tile", range(3))
def test_minus_infinity_fills_a_chunk(tile):
    x = matrix(1, 3 * 4096, torch.float32)
    x[:, tile * 4096 : (tile + 1) * 4096] = -INF
    assert_near(logsumexp_forward(x), torch.logsumexp(x.double(), 1))
