"""log(sum(exp(x))) as it is called, and its gradient: rows in one program, and rows in chunks.

Each geometry is tested with log-sum-exp beside the other operations, in a file of its own.
"""

import pytest
import torch

from kernel_cases import (
    DEVICE,
    DTYPES,
    HOSTILE,
    INF,
    assert_as_torch,
    assert_near,
    assert_result,
    dtype_name,
    matrix,
    quiet,
)
from triton_softmax import dispatch

pytestmark = quiet


def forward(x, implementation=None):
    return dispatch.run("logsumexp", (x,), 1, None, implementation)


def backward(dlse, x, implementation=None):
    return dispatch.run("logsumexp_backward", (x, dlse), 1, None, implementation)


@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_name)
@pytest.mark.parametrize(
    "shape", [(1, 1), (3, 2), (2, 127), (2, 128), (2, 129), (1, 4096), (1, 4097)], ids=str
)
def test_forward_and_backward(shape, dtype):
    x = matrix(*shape, dtype, gap=3)
    lse = forward(x)
    assert lse.dtype == dtype and lse.shape == shape[:1]
    assert_result("logsumexp", lse, (x,))
    dlse = matrix(shape[0], 1, dtype, seed=1)[:, 0]
    dx = backward(dlse, x)
    assert dx.dtype == dtype and dx.is_contiguous()
    assert_result("logsumexp_backward", dx, (x, dlse))


@pytest.mark.parametrize("n_cols", [8192, 12305])
def test_any_number_of_chunks(n_cols):
    x = matrix(2, n_cols, torch.float32, gap=1)
    for implementation in (None, "split_rows"):
        assert_result("logsumexp", forward(x, implementation), (x,))


def test_any_strides():
    x = matrix(6, 40, torch.float32, gap=1)
    for view in (x.T, x[::2], x[:, ::3], x[:1].expand(4, 40)):
        lse = forward(view)
        assert_result("logsumexp", lse, (view,))
        dx = backward(torch.ones_like(lse), view)
        assert_near(dx, torch.softmax(view.double(), 1), atol=1e-5)


@pytest.mark.parametrize("fill", [0, 4097], ids=["one-program", "chunks"])
def test_hostile_rows_as_torch(fill):
    """Alone, and as the last three of a row whose other chunks are all -inf."""
    x = torch.full((len(HOSTILE), fill + 3), -INF)
    x[:, fill:] = torch.tensor(HOSTILE)
    on_device = x.to(DEVICE)
    lse = forward(on_device, "split_rows" if fill else None)
    assert_as_torch("logsumexp", lse, (on_device,))
    dlse = torch.ones_like(lse)
    dx = backward(dlse, on_device, "split_rows" if fill else None)
    assert_as_torch("logsumexp_backward", dx, (on_device, dlse))
    exact = x.clone().requires_grad_()
    torch.logsumexp(exact, 1).sum().backward()
    assert torch.equal(dx.isnan().cpu(), exact.grad.isnan())


@pytest.mark.parametrize("tile", range(3))
def test_minus_infinity_fills_a_chunk(tile):
    x = matrix(1, 3 * 4096, torch.float32)
    x[:, tile * 4096 : (tile + 1) * 4096] = -INF
    assert_result("logsumexp", forward(x, "split_rows"), (x,))
