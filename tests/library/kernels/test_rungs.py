"""What holds for every rung: the right answer at every border, for every dtype, whatever surrounds
the rows."""

import pytest
import torch

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
    "shape, dtype",
    [(shape, torch.float32) for shape in SHAPES]
    + [((2, 257), dtype) for dtype in DTYPES if dtype != torch.float32],
    ids=lambda each: f"{each[0]}x{each[1]}" if isinstance(each, tuple) else dtype_name(each),
)
def test_forward(rung, shape, dtype):
    """Every border in one element type, some in the others."""
    module, options = rung
    x = matrix(*shape, dtype, gap=3)
    y = module.softmax_forward(x, **options)
    assert y.dtype == dtype and y.is_contiguous()
    assert_near(y, expected_forward(x))


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=dtype_name)
def test_forward_log(rung, dtype):
    module, options = rung
    x = matrix(2, 257, dtype, gap=3)
    assert_near(module.softmax_forward(x, log=True, **options), expected_forward(x, log=True))


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
    [
        (torch.float16, torch.float32),
        (torch.float32, torch.bfloat16),
    ],
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


def test_an_expanded_gradient(rung):
    module, options = rung
    y = expected_forward(matrix(5, 300, torch.float32)).float()
    dy = torch.randn(1, 300, device=DEVICE).expand(5, 300)
    assert dy.stride(0) == 0
    assert_near(module.softmax_backward(y, dy, **options), expected_backward(y, dy))


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
