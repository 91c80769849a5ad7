"""Softmax down a dimension whose elements lie apart, in tiles that hold all of it and in tiles that do not."""

import pytest
import torch
import triton
import triton.language as tl

from kernel_cases import DEVICE, DTYPES, INTERPRETED, assert_near, dtype_name, matrix, quiet, watch_accesses
from triton_softmax.kernels.strided import softmax_backward_strided_kernel, softmax_forward_strided_kernel

pytestmark = quiet
BOTH = pytest.mark.parametrize("log", [False, True], ids=["softmax", "log"])
WHOLE = pytest.mark.parametrize("whole", [True, False], ids=["whole", "tiles"])
INF, NAN = float("inf"), float("nan")


def launch(kernel, tensors, *, log, whole, inner=4, cols=8, index=tl.int32):
    n_outer, n_cols, n_inner = tensors[0].shape
    strides = [step for tensor in tensors for step in tensor.stride()]
    block_cols = triton.next_power_of_2(n_cols) if whole else cols
    grid = (n_outer * triton.cdiv(n_inner, inner),)
    kernel[grid](*tensors, *strides, n_cols, n_inner, LOG=log, WHOLE=whole, INDEX=index, BLOCK_COLS=block_cols, BLOCK_INNER=inner)
    return tensors[-1]


def forward(x, *, y=None, **options):
    y = torch.full(x.shape, NAN, dtype=x.dtype, device=x.device) if y is None else y
    return launch(softmax_forward_strided_kernel, (x, y), **options)


def backward(y, dy, **options):
    dx = torch.full(y.shape, NAN, dtype=y.dtype, device=y.device)
    return launch(softmax_backward_strided_kernel, (y, dy, dx), **options)


def cube(*shape, dtype=torch.float32, seed=0, scale=4.0):
    """A tensor amid NaN with gaps along every dimension."""
    n_outer, n_cols, n_inner = shape
    flat = matrix(n_outer * (n_cols + 1), n_inner, dtype, gap=3, seed=seed, scale=scale)
    return flat.as_strided(shape, (flat.stride(0) * (n_cols + 1), flat.stride(0), 1), flat.storage_offset())


def exact(x, log):
    return (torch.log_softmax if log else torch.softmax)(x.double(), 1)


def exact_backward(y, dy, log):
    y, dy = y.double(), dy.double()
    return dy - y.exp() * dy.sum(1, keepdim=True) if log else y * (dy - (y * dy).sum(1, keepdim=True))


@BOTH
@WHOLE
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_name)
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 7, 3), (1, 8, 4), (2, 9, 5), (1, 33, 1)], ids=str)
def test_forward_and_backward(shape, dtype, whole, log):
    x = cube(*shape, dtype=dtype)
    y = forward(x, log=log, whole=whole)
    # truncation leaves log-softmax of 16 bits one unit in its last place
    assert_near(y, exact(x, log), atol=1e-2 if log and dtype.itemsize == 2 else None)
    dy = cube(*shape, dtype=dtype, seed=1, scale=1.0)
    wanted = exact_backward(y, dy, log)
    assert_near(backward(y, dy, log=log, whole=whole), wanted, atol=1e-5 if dtype == torch.float32 else 2e-3 if dtype.itemsize == 2 else None)


@BOTH
@WHOLE
def test_every_order_of_dimensions(whole, log):
    storage = cube(3, 5, 6)
    for order in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)):
        x = storage.permute(order)
        y = torch.empty_like(storage).permute(order)
        assert_near(forward(x, y=y, log=log, whole=whole), exact(x, log))
        dy = storage.permute(order)[:1].expand(x.shape)
        assert_near(backward(y, dy, log=log, whole=whole), exact_backward(y, dy, log), atol=1e-4)


@BOTH
@WHOLE
def test_edges_as_torch(whole, log):
    columns = [
        [0.0, -INF, 1.0],
        [-INF, -INF, -3.0],
        [-INF] * 3,
        [0.0, INF, 1.0],
        [INF] * 3,
        [0.0, NAN, 1.0],
        [-INF, NAN, -INF],
        [NAN] * 3,
        [1e30, -1e30, 1e30],
        [-1e30, -1e30, 0.0],
    ]
    x = torch.full((len(columns), 19, 1), -INF)
    x[:, ::9, 0] = torch.tensor(columns)  # one in each tile of eight
    x = x.to(DEVICE)
    wanted = (torch.log_softmax if log else torch.softmax)(x, 1)
    assert_near(forward(x, log=log, whole=whole), wanted)


@WHOLE
def test_offsets_in_64_bits(whole):
    x = cube(2, 9, 5)
    assert torch.equal(forward(x, log=False, whole=whole, index=tl.int64), forward(x, log=False, whole=whole))


@WHOLE
@pytest.mark.skipif(not INTERPRETED, reason="the interpreter records addresses")
def test_poisoned_surroundings(whole):
    x, dy = cube(2, 9, 5), cube(2, 9, 5, seed=1)
    with watch_accesses() as accesses:
        y = forward(x, log=False, whole=whole)
    accesses.assert_reads_only(x)
    accesses.assert_writes_once(y)
    with watch_accesses() as accesses:
        dx = backward(y, dy, log=False, whole=whole)
    accesses.assert_reads_only(y, dy)
    accesses.assert_writes_once(dx)
