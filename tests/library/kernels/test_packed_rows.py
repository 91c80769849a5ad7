"""Several short rows per program, read in vectors where rows allow it."""

import pytest
import torch
import triton

from kernel_cases import (
    DEVICE,
    DTYPES,
    assert_near,
    dtype_name,
    expected_backward,
    expected_forward,
    matrix,
    quiet,
)
from triton_softmax.kernels.packed_rows import (
    softmax_backward_packed_rows_kernel,
    softmax_forward_packed_rows_kernel,
)

pytestmark = quiet
BOTH = pytest.mark.parametrize("log", [False, True], ids=["softmax", "log"])
INF, NAN = float("inf"), float("nan")


def launch(kernel, tensors, *, log, vector=1, rows=4):
    n_rows, n_cols = tensors[0].shape
    kernel[(triton.cdiv(n_rows, rows),)](
        *tensors,
        *(tensor.stride(0) for tensor in tensors),
        n_rows,
        n_cols,
        LOG=log,
        VECTOR=vector,
        HOLD=False,
        BLOCK_ROWS=rows,
        BLOCK_COLS=max(16, triton.next_power_of_2(n_cols)),
    )
    return tensors[-1]


def forward(x, **options):
    return launch(softmax_forward_packed_rows_kernel, (x, torch.full_like(x, NAN)), **options)


def backward(y, dy, **options):
    return launch(softmax_backward_packed_rows_kernel, (y, dy, torch.full_like(y, NAN)), **options)


def slack(dtype, log):
    return 1e-5 if dtype == torch.float32 else 2e-3 if dtype.itemsize == 2 and log else None


@BOTH
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_name)
@pytest.mark.parametrize("n_cols", [1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 256, 257])
@pytest.mark.parametrize("n_rows", [1, 5])
def test_forward_and_backward(n_rows, n_cols, dtype, log):
    x, dy = (
        matrix(n_rows, n_cols, dtype, gap=3),
        matrix(n_rows, n_cols, dtype, gap=1, scale=1.0, seed=1),
    )
    y = forward(x, log=log)
    assert_near(y, expected_forward(x, log=log), atol=1e-3 if log and dtype.itemsize == 2 else None)
    assert_near(backward(y, dy, log=log), expected_backward(y, dy, log=log), atol=slack(dtype, log))


@BOTH
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_name)
def test_vectors_change_nothing(dtype, log):
    vector = 16 // dtype.itemsize
    x, dy = matrix(5, 3 * vector, dtype, gap=vector), matrix(5, 3 * vector, dtype, seed=1)
    y = forward(x, log=log, vector=vector)
    assert torch.equal(y, forward(x, log=log))
    assert torch.equal(backward(y, dy, log=log, vector=vector), backward(y, dy, log=log))


@pytest.mark.parametrize("rows", [1, 2, 16])
def test_rows_per_program_change_nothing(rows):
    x = matrix(17, 33, torch.float32, gap=2)
    assert torch.equal(forward(x, log=False, rows=rows), forward(x, log=False, rows=4))


@BOTH
def test_edges_as_torch(log):
    x = torch.tensor(
        [
            [0.0, -INF, 1.0],
            [-INF] * 3,
            [-INF, -INF, -3.0],
            [0.0, INF, 1.0],
            [INF] * 3,
            [0.0, NAN, 1.0],
            [-INF, NAN, -INF],
            [NAN] * 3,
            [1e30, -1e30, 1e30],
            [-1e30, -1e30, 0.0],
            [-1e30, -1e30, -1e30],
        ],
        device=DEVICE,
    )
    wanted = (torch.log_softmax if log else torch.softmax)(x, 1)
    assert_near(forward(x, log=log), wanted)
    dy = matrix(len(x), 3, torch.float32, scale=1.0)
    assert_near(backward(wanted, dy, log=log), expected_backward(wanted, dy, log=log))
