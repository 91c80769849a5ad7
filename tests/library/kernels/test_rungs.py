"""What holds for every rung: the right answer at every border, for every dtype, whatever surrounds
the rows; and what is particular to one."""

import pytest
import torch
import triton

from kernel_cases import (
    DEVICE,
    DTYPES,
    HOSTILE,
    INTERPRETED,
    assert_near,
    dtype_name,
    expected_backward,
    expected_forward,
    matrix,
    quiet,
    watch_accesses,
)
from softmax_tutorial import naive, single_block, three_loops, two_loops

pytestmark = quiet  # tiles reach past the last row, where 0 / 0 is computed and masked out

# Each rung with the options that make it take more than one tile of few elements.
RUNGS = {
    "naive": (naive, {}),
    "three_loops": (three_loops, {"block_cols": 256}),
    "three_loops-packed": (three_loops, {"block_rows": 4, "block_cols": 64}),
    "two_loops": (two_loops, {"block_cols": 256}),
    "two_loops-packed": (two_loops, {"block_rows": 4, "block_cols": 64}),
    "two_loops-tuned": (two_loops, {}),
    "single_block": (single_block, {}),
}
SHAPES = [(1, 1), (5, 31), (2, 256), (2, 257), (1, 1025)]


@pytest.fixture(params=RUNGS, ids=str)
def rung(request):
    return RUNGS[request.param]


@pytest.mark.parametrize(
    "shape, dtype, log",
    [(shape, torch.float32, False) for shape in SHAPES]
    + [((2, 257), dtype, False) for dtype in DTYPES if dtype != torch.float32]
    + [((2, 257), dtype, True) for dtype in DTYPES[1:]],
    ids=str,
)
def test_forward(rung, shape, dtype, log):
    """Every border in one element type, some in the others."""
    module, options = rung
    x = matrix(*shape, dtype, gap=3)
    y = module.softmax_forward(x, log=log, **options)
    assert y.dtype == dtype and y.is_contiguous()
    assert_near(y, expected_forward(x, log=log))


@pytest.mark.parametrize(
    "shape, log, dtype",
    [
        ((2, 256), False, torch.float32),
        ((2, 256), True, torch.float16),
        ((1, 1025), True, torch.float32),
        ((1, 1025), False, torch.bfloat16),
        ((5, 31), False, torch.float64),
    ],
    ids=str,
)
def test_backward(rung, shape, log, dtype):
    module, options = rung
    x, dy = matrix(*shape, dtype, seed=1), matrix(*shape, dtype, gap=5, scale=1.0, seed=2)
    y = matrix(*shape, dtype, gap=1)
    y.copy_(expected_forward(x, log=log))
    dx = module.softmax_backward(y, dy, log=log, **options)
    assert dx.dtype == dtype and dx.is_contiguous()
    sum_of_dy = 1e-5 if dtype == torch.float32 else None
    assert_near(dx, expected_backward(y, dy, log=log), atol=sum_of_dy)


@pytest.mark.parametrize("dtype, log", [(torch.float16, True), (torch.float32, False)], ids=str)
def test_hostile_rows_as_torch(rung, dtype, log):
    module, options = rung
    x = torch.tensor(HOSTILE, device=DEVICE).to(dtype)
    y = module.softmax_forward(x, log=log, **options)
    expected = (torch.log_softmax if log else torch.softmax)(x, dim=1)
    assert_near(y, expected)
    dy = matrix(*x.shape, dtype, scale=1.0)
    dx = module.softmax_backward(expected, dy, log=log, **options)
    assert_near(dx, expected_backward(expected, dy, log=log), atol=1e-5)


@pytest.mark.parametrize("value", [3e38, -3e38, 1e300], ids=str)
def test_the_ends_of_the_range(rung, value):
    module, options = rung
    dtype = torch.float64 if abs(value) > 1e39 else torch.float32
    x = torch.tensor([[value, -value, value, 0.0]], dtype=dtype, device=DEVICE)
    assert_near(module.softmax_forward(x, **options), expected_forward(x))


@pytest.mark.parametrize("tile", [0, 2])
def test_minus_infinity_fills_a_tile(rung, tile):
    module, options = rung
    x = matrix(2, 1024, torch.float32)
    x[0, tile * 256 : (tile + 1) * 256] = float("-inf")
    x[1, : tile * 256] = float("-inf")
    assert_near(module.softmax_forward(x, **options), expected_forward(x))


@pytest.mark.parametrize(
    "dtypes",
    [(torch.float16, torch.float32), (torch.float32, torch.bfloat16)],
    ids=lambda pair: "-to-".join(map(dtype_name, pair)),
)
def test_out_dtype_rounds_the_input_first(rung, dtypes):
    module, options = rung
    in_dtype, out_dtype = dtypes
    x = matrix(3, 300, in_dtype, gap=1)
    if (
        INTERPRETED and out_dtype == torch.bfloat16
    ):  # the interpreter truncates; give it nothing to round
        x = x.to(torch.bfloat16).to(in_dtype)
    y = module.softmax_forward(x, out_dtype=out_dtype, **options)
    assert y.dtype == out_dtype
    assert_near(y, torch.softmax(x.to(out_dtype).double(), dim=1))
    dy = matrix(3, 300, out_dtype, scale=1.0, seed=3)
    dx = module.softmax_backward(y, dy, in_dtype=in_dtype, **options)
    assert dx.dtype == in_dtype
    coarse = max((in_dtype, out_dtype), key=lambda dtype: torch.finfo(dtype).eps)
    assert_near(dx, expected_backward(y, dy), dtype=coarse)


def test_the_input_is_left_alone(rung):
    module, options = rung
    x = matrix(3, 300, torch.float32)
    before = x.clone()
    y = module.softmax_forward(x, **options)
    y_before = y.clone()
    module.softmax_backward(y, x, **options)
    assert torch.equal(x, before) and torch.equal(y, y_before)


@pytest.mark.skipif(not INTERPRETED, reason="the interpreter records addresses")
@pytest.mark.parametrize("shape", [(3, 33), (2, 300)], ids=lambda s: f"{s[0]}x{s[1]}")
def test_no_access_out_of_range(rung, shape):
    module, options = rung
    if module is naive:
        pytest.skip("PyTorch's own kernels")
    x = matrix(*shape, torch.float32, gap=7)
    with watch_accesses() as accesses:
        y = module.softmax_forward(x, **options)
    accesses.assert_reads_only(x)
    accesses.assert_writes_once(y)
    with watch_accesses() as accesses:
        dx = module.softmax_backward(y, x, **options)
    accesses.assert_reads_only(y, x)
    accesses.assert_writes_once(dx)


@pytest.mark.skipif(not INTERPRETED, reason="the memory is only touched at its ends")
def test_row_offsets_beyond_32_bits(rung):
    module, options = rung
    row_stride = 2**31 + 5
    x = torch.empty(row_stride + 40, dtype=torch.float16).as_strided((2, 40), (row_stride, 1))
    x.copy_(matrix(2, 40, torch.float16))
    y = module.softmax_forward(x, **options)
    assert_near(y, expected_forward(x))
    assert_near(module.softmax_backward(y, x, **options), expected_backward(y, x))


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: torch.zeros(3), "non-empty matrix"),
        (lambda: torch.zeros(2, 3, 4), "non-empty matrix"),
        (lambda: torch.zeros(0, 3), "non-empty matrix"),
        (lambda: torch.zeros(3, 0), "non-empty matrix"),
        (lambda: torch.zeros(2, 3, dtype=torch.int64), "not torch.int64"),
        (lambda: torch.zeros(3, 2).T, "column stride of 2"),
    ],
    ids=["1-d", "3-d", "no-rows", "no-columns", "integers", "transposed"],
)
def test_what_a_rung_refuses(rung, make, message):
    module, options = rung
    x = make().to(DEVICE)
    with pytest.raises(ValueError, match=message):
        module.softmax_forward(x, **options)
    with pytest.raises(ValueError, match=message):
        module.softmax_backward(x, x, **options)


def test_different_shapes_are_refused(rung):
    module, options = rung
    with pytest.raises(ValueError, match="the shapes differ"):
        module.softmax_backward(
            torch.zeros(2, 3, device=DEVICE), torch.zeros(2, 4, device=DEVICE), **options
        )


# --- three loops


# --- two loops: the online recurrence over tiles, and the tuner


@pytest.mark.parametrize("log", [False, True], ids=["softmax", "log"])
def test_rows_of_781(log):
    """Enough rows to fill one tile and begin another."""
    x, dy = (matrix(67, 781, torch.float32, seed=seed) for seed in (0, 1))
    how = {"log": log, "block_rows": 64, "block_cols": 256}
    y = two_loops.softmax_forward(x, **how)
    assert_near(y, expected_forward(x, log=log))
    dx = two_loops.softmax_backward(y, dy, **how)
    assert_near(dx, expected_backward(y, dy, log=log), atol=1e-4 if log else 2e-6)


def test_the_tuning_space():
    space = {(config.kwargs["BLOCK_COLS"], config.num_warps) for config in two_loops.tuning_space()}
    lengths = (256, 512, 1024, 2048, 4096, 8192)
    assert space == {(cols, warps) for cols in lengths for warps in (2, 4, 8, 16)}
    assert len(two_loops.CONFIGS) == (1 if INTERPRETED else 24)
    kernels = (
        two_loops.softmax_forward_two_loops_kernel,
        two_loops.softmax_backward_two_loops_kernel,
    )
    for kernel in kernels:
        assert isinstance(kernel, triton.runtime.Autotuner) and kernel.keys == ["n_cols"]


# --- a single block: the heuristic, its thresholds, and the longest row


def test_num_warps_for_block():
    said = {1: 4, 1024: 4, 2048: 8, 4096: 8, 8192: 16, 16384: 16, 32768: 32, 65536: 32, 1 << 20: 32}
    assert {size: single_block.num_warps_for_block(size) for size in said} == said


@pytest.mark.parametrize("threshold", [2048, 32768])
@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_the_borders_of_the_heuristic(threshold, offset):
    x = matrix(1, threshold + offset, torch.float32)
    y = single_block.softmax_forward(x)
    assert_near(y, expected_forward(x))
    assert_near(single_block.softmax_backward(y, x), expected_backward(y, x))


@pytest.mark.parametrize("n_cols", [single_block.MAX_COLS + 1, 1 << 22])
def test_longer_rows_are_refused(n_cols):
    x = torch.empty(1, n_cols, device=DEVICE)
    for call in (
        lambda: single_block.softmax_forward(x),
        lambda: single_block.softmax_backward(x, x),
    ):
        with pytest.raises(ValueError, match="at most 1,048,576 columns"):
            call()


def test_the_longest_row():
    x = matrix(1, single_block.MAX_COLS, torch.float32)
    assert_near(single_block.softmax_forward(x), expected_forward(x), atol=1e-9)
