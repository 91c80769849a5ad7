"""Rows that start anywhere: a head, a body of whole vectors, a tail."""

import pytest
import torch
import triton

from kernel_cases import (
    DEVICE,
    DTYPES,
    INTERPRETED,
    assert_near,
    dtype_name,
    expected_backward,
    expected_forward,
    matrix,
    quiet,
    watch_accesses,
)
from triton_softmax.kernels.aligned_rows import (
    softmax_backward_aligned_rows_kernel,
    softmax_forward_aligned_rows_kernel,
)

pytestmark = quiet
BOTH = pytest.mark.parametrize("log", [False, True], ids=["softmax", "log"])
INF, NAN = float("inf"), float("nan")


def launch(kernel, tensors, *, log, rows=4):
    n_rows, n_cols = tensors[0].shape
    vector = 16 // tensors[0].dtype.itemsize
    assert len({tensor.stride(0) % vector for tensor in tensors}) == 1, "rows in step"
    kernel[(triton.cdiv(n_rows, rows),)](
        *tensors,
        *(tensor.stride(0) for tensor in tensors),
        n_rows,
        n_cols,
        LOG=log,
        VECTOR=vector,
        HOLD=False,
        BLOCK_ROWS=rows,
        BLOCK_COLS=max(16, triton.next_power_of_2(n_cols // vector * vector)),
    )
    return tensors[-1]


def amid_nan(n_rows, n_cols, dtype, gap):
    """A result amid NaN of which everything is still to be written."""
    out = matrix(n_rows, n_cols, dtype, gap=gap)
    return out.fill_(NAN)


def forward(x, *, gap=0, **options):
    return launch(
        softmax_forward_aligned_rows_kernel, (x, amid_nan(*x.shape, x.dtype, gap)), **options
    )


def backward(y, dy, *, gap=0, **options):
    return launch(
        softmax_backward_aligned_rows_kernel, (y, dy, amid_nan(*y.shape, y.dtype, gap)), **options
    )


def slack(dtype, log):
    return 1e-5 if dtype == torch.float32 else 2e-3 if dtype.itemsize == 2 and log else None


@BOTH
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_name)
@pytest.mark.parametrize("n_cols", [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 257])
@pytest.mark.parametrize("n_rows", [1, 9])
def test_forward_and_backward(n_rows, n_cols, dtype, log):
    """Nine rows start at every distance from a vector."""
    vector = 16 // dtype.itemsize
    x, dy = (
        matrix(n_rows, n_cols, dtype),
        matrix(n_rows, n_cols, dtype, gap=2 * vector, scale=1.0, seed=1),
    )
    y = forward(x, log=log, gap=vector)
    assert_near(y, expected_forward(x, log=log), atol=1e-3 if log and dtype.itemsize == 2 else None)
    assert_near(backward(y, dy, log=log), expected_backward(y, dy, log=log), atol=slack(dtype, log))


@BOTH
@pytest.mark.skipif(not INTERPRETED, reason="the interpreter records addresses")
@pytest.mark.parametrize("n_cols", [1, 5, 8, 13, 24, 33])
def test_every_element_is_written_once_and_nothing_else_read(n_cols, log):
    x, dy = (
        matrix(9, n_cols, torch.float16, gap=8),
        matrix(9, n_cols, torch.float16, gap=16, seed=1),
    )
    with watch_accesses() as accesses:
        y = forward(x, log=log, gap=24)
    accesses.assert_reads_only(x)
    accesses.assert_writes_once(y)
    with watch_accesses() as accesses:
        dx = backward(y, dy, log=log)
    accesses.assert_reads_only(y, dy)
    accesses.assert_writes_once(dx)


@pytest.mark.parametrize("rows", [1, 2, 16])
def test_rows_per_program_change_nothing(rows):
    x = matrix(17, 33, torch.float32)
    assert torch.equal(forward(x, log=False, rows=rows), forward(x, log=False, rows=4))


def test_a_row_read_again_and_again():
    """A stride of zero in dy, in step with rows that are a multiple of a vector apart."""
    y = expected_forward(matrix(4, 40, torch.float32)).float()
    dy = matrix(1, 40, torch.float32).expand(4, 40)
    assert_near(backward(y, dy, log=False), expected_backward(y, dy))


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
    x = torch.cat((x, x, x), 1)  # nine columns: head, body and tail
    wanted = (torch.log_softmax if log else torch.softmax)(x, 1)
    assert_near(forward(x, log=log), wanted)
    dy = matrix(len(x), 9, torch.float32, scale=1.0)
    assert_near(backward(wanted, dy, log=log), expected_backward(wanted, dy, log=log))
