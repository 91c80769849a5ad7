"""What holds for every rung: the right answer at every border, for every dtype, whatever surrounds
the rows; and what is particular to one."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
import triton

from kernel_cases import (
    DEVICE,
    DTYPES,
    HOSTILE,
    INTERPRETED,
    assert_near,
    expected_backward,
    expected_forward,
    matrix,
    quiet,
    watch_accesses,
)
from softmax_tutorial import naive, single_block, three_loops, two_loops
from triton_softmax import Softmax
from triton_softmax.operations.softmax import SOFTMAX, SOFTMAX_VJP
from triton_softmax.plan import KERNELS, plan_of

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
    """The two functions of a rung, with its options."""
    module, options = RUNGS[request.param]
    functions = {"forward": module.softmax_forward, "backward": module.softmax_backward}
    return SimpleNamespace(**{name: partial(each, **options) for name, each in functions.items()})


@pytest.mark.parametrize(
    "shape, dtype, log",
    [(shape, torch.float32, False) for shape in SHAPES]
    + [((2, 257), dtype, False) for dtype in DTYPES if dtype != torch.float32]
    + [((2, 257), dtype, True) for dtype in DTYPES[1:]],
    ids=str,
)
def test_forward(rung, shape, dtype, log):
    """Every border in one element type, some in the others; the input is left alone."""
    x = matrix(*shape, dtype, gap=3)
    before = x.clone()
    y = rung.forward(x, log=log)
    assert y.dtype == dtype and y.is_contiguous()
    assert torch.equal(x, before)
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
    x, dy = matrix(*shape, dtype, seed=1), matrix(*shape, dtype, gap=5, scale=1.0, seed=2)
    y = matrix(*shape, dtype, gap=1)
    y.copy_(expected_forward(x, log=log))
    dx = rung.backward(y, dy, log=log)
    assert dx.dtype == dtype and dx.is_contiguous()
    sum_of_dy = 1e-5 if dtype == torch.float32 else None
    assert_near(dx, expected_backward(y, dy, log=log), atol=sum_of_dy)


@pytest.mark.parametrize(
    "dtype, log",
    [(torch.float16, True), (torch.float32, False), (torch.float64, False)],
    ids=str,
)
def test_hostile_rows_as_torch(rung, dtype, log):
    rows = [*HOSTILE, [1e300, -1e300, 1e300]]  # whose differences overflow
    x = torch.tensor(rows, dtype=torch.float64, device=DEVICE).to(dtype)
    y = rung.forward(x, log=log)
    expected = (torch.log_softmax if log else torch.softmax)(x, dim=1)
    assert_near(y, expected)
    dy = matrix(*x.shape, dtype, scale=1.0)
    dx = rung.backward(expected, dy, log=log)
    assert_near(dx, expected_backward(expected, dy, log=log), atol=1e-5)


@pytest.mark.parametrize("tile", [0, 2])
def test_minus_infinity_fills_a_tile(rung, tile):
    x = matrix(2, 1024, torch.float32)
    x[0, tile * 256 : (tile + 1) * 256] = float("-inf")
    x[1, : tile * 256] = float("-inf")
    assert_near(rung.forward(x), expected_forward(x))


@pytest.mark.skipif(not INTERPRETED, reason="the interpreter records addresses")
@pytest.mark.parametrize("shape", [(3, 33), (2, 300)], ids=lambda s: f"{s[0]}x{s[1]}")
def test_no_access_out_of_range(rung, shape, request):
    if "naive" in request.node.name:
        pytest.skip("PyTorch's own kernels")
    x = matrix(*shape, torch.float32, gap=7)
    with watch_accesses() as accesses:
        y = rung.forward(x)
    accesses.assert_reads_only(x)
    accesses.assert_writes_once(y)
    with watch_accesses() as accesses:
        dx = rung.backward(y, x)
    accesses.assert_reads_only(y, x)
    accesses.assert_writes_once(dx)


@pytest.mark.skipif(not INTERPRETED, reason="the memory is only touched at its ends")
def test_row_offsets_beyond_32_bits(rung):
    row_stride = 2**31 + 5
    x = torch.empty(row_stride + 40, dtype=torch.float16).as_strided((2, 40), (row_stride, 1))
    x.copy_(matrix(2, 40, torch.float16))
    y = rung.forward(x)
    assert_near(y, expected_forward(x))
    assert_near(rung.backward(y, x), expected_backward(y, x))


REFUSED = {
    "non-empty matrix": [(3,), (2, 3, 4), (0, 3), (3, 0)],
    "not torch.int64": [torch.zeros(2, 3, dtype=torch.int64)],
    "column stride of 2": [torch.zeros(3, 2).T],
}


def test_what_a_rung_refuses(rung):
    for message, refused in REFUSED.items():
        for x in refused:
            x = (x if isinstance(x, torch.Tensor) else torch.zeros(x)).to(DEVICE)
            for call in (lambda x=x: rung.forward(x), lambda x=x: rung.backward(x, x)):
                with pytest.raises(ValueError, match=message):
                    call()
    y = torch.zeros(2, 4, device=DEVICE)
    with pytest.raises(ValueError, match="the shapes differ"):
        rung.backward(y[:, :3].contiguous(), y)


# --- two loops: the online recurrence over tiles, and the tuner


@pytest.mark.parametrize("log", [False, True], ids=["softmax", "log"])
def test_rows_of_781(log):
    """The shape of the tutorial's test; in the interpreter enough rows to fill one tile and begin
    another."""
    n_rows = 67 if INTERPRETED else 1823
    x, dy = (matrix(n_rows, 781, torch.float32, seed=seed) for seed in (0, 1))
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
    for way in ("forward", "backward"):
        kernel = getattr(two_loops, f"softmax_{way}_two_loops_kernel")
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
    with pytest.raises(ValueError, match="at most 1,048,576 columns"):
        single_block.softmax_forward(x)
    with pytest.raises(ValueError, match="at most 1,048,576 columns"):
        single_block.softmax_backward(x, x)


def test_the_longest_row():
    x = matrix(1, single_block.MAX_COLS, torch.float32)
    assert_near(single_block.softmax_forward(x), expected_forward(x), atol=1e-9)


class OfRung(torch.autograd.Function):
    """A kernel of the tutorial as the article wraps its own: the output is kept."""

    @staticmethod
    def forward(ctx, x, rung):
        y = rung.softmax_forward(x)
        ctx.save_for_backward(y)
        ctx.rung = rung
        return y

    @staticmethod
    def backward(ctx, dy):
        return ctx.rung.softmax_backward(*ctx.saved_tensors, dy), None


def by_name(kernel):
    """The kernel of the library as a rung."""

    def along_rows(op, *inputs):
        return plan_of(op, inputs, 1, kernel=kernel)(*inputs)

    return SimpleNamespace(
        softmax_forward=partial(along_rows, SOFTMAX),
        softmax_backward=partial(along_rows, SOFTMAX_VJP),
    )


@pytest.mark.parametrize("kernel", [None, *KERNELS, "single_block", "two_loops"])
@pytest.mark.parametrize("one_hot", [False, True])
def test_the_check_of_the_article(kernel, one_hot):
    """Forward against torch, and backward through a cross-entropy of the output, whose targets are
    indices of any class or, as in the article, one-hot rows of the first three."""
    n_rows = 256 if DEVICE == "cuda" else 16
    x = torch.randn(n_rows, 512, device=DEVICE, requires_grad=True)
    target = torch.randint(3 if one_hot else 512, (n_rows,), device=DEVICE)
    if one_hot:
        target = torch.nn.functional.one_hot(target, 512).float()
    rung = by_name(kernel) if kernel in KERNELS else RUNGS[kernel][0] if kernel else None
    found = []
    for softmax in (
        torch.nn.Softmax(dim=1),
        (lambda x: OfRung.apply(x, rung)) if rung else Softmax(dim=1),
    ):
        y = softmax(x)
        found.append((y, *torch.autograd.grad(torch.nn.CrossEntropyLoss()(y, target), x)))
    torch.testing.assert_close(found[1], found[0])
