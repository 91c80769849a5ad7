"""Softmax down a dimension whose elements lie apart: in tiles that hold all of it, in tiles that
wait for each other, and in loops."""

import pytest
import torch
import triton
import triton.language as tl

from kernel_cases import (
    DEVICE,
    DTYPES,
    INTERPRETED,
    assert_near,
    dtype_name,
    matrix,
    quiet,
    watch_accesses,
)
from softmax_bench import traffic
from triton_softmax.kernels.split_strided import (
    softmax_backward_split_strided_kernel,
    softmax_forward_split_strided_kernel,
)
from triton_softmax.kernels.strided import (
    softmax_backward_strided_kernel,
    softmax_forward_strided_kernel,
)
from triton_softmax.kernels.strided_loops import (
    softmax_backward_strided_loops_kernel,
    softmax_forward_strided_loops_kernel,
)

pytestmark = quiet
BOTH = pytest.mark.parametrize("log", [False, True], ids=["softmax", "log"])
HOW = pytest.mark.parametrize("how", ["whole", "split", "loops", "segments"])
FORWARD = {
    "whole": softmax_forward_strided_kernel,
    "split": softmax_forward_split_strided_kernel,
    "loops": softmax_forward_strided_loops_kernel,
}
BACKWARD = {
    "whole": softmax_backward_strided_kernel,
    "split": softmax_backward_split_strided_kernel,
    "loops": softmax_backward_strided_loops_kernel,
}
INF, NAN = float("inf"), float("nan")


def launch(tensors, *, log, how, inner=4, cols=8, vector=1, index=tl.int32, words=None):
    """Run a kernel: tiles of cols × inner, or of the whole dimension; loops in one launch, or in
    segments of two tiles in two launches."""
    n_outer, n_cols, n_inner = tensors[0].shape
    strides = [step for tensor in tensors for step in tensor.stride()]
    groups = n_outer * triton.cdiv(n_inner, inner)
    forward = len(tensors) == 2
    kernel = (FORWARD if forward else BACKWARD)[how.replace("segments", "loops")]
    common = {"LOG": log, "VECTOR": vector, "INDEX": index, "BLOCK_INNER": inner}
    if how == "whole":
        held = {"HOLD": False} if forward else {}
        kernel[(groups,)](
            *tensors,
            *strides,
            n_cols,
            n_inner,
            **held,
            BLOCK_COLS=triton.next_power_of_2(n_cols),
            **common,
        )
        return tensors[-1]
    if how == "split":
        if tensors[0].dtype == torch.float64:
            pytest.skip("a word holds two float32 numbers")
        n_chunks = triton.cdiv(n_cols, cols)
        if words is None:
            words = torch.zeros(groups * n_chunks * inner, dtype=torch.int64, device=DEVICE)
        chunks = max(
            triton.next_power_of_2(n_chunks), 1 if INTERPRETED else 128 // inner
        )  # on a GPU every thread looks
        blocks = {"BLOCK_COLS": cols, "CHUNKS": chunks, "LOOKS": max(1, chunks * inner // 128)}
        kernel[(groups * n_chunks,)](
            *tensors,
            words,
            *strides,
            n_cols,
            n_inner,
            n_chunks,
            1024,
            HOLD=False,
            WAIT=not INTERPRETED,
            **blocks,
            **common,
        )
        return tensors[-1]
    segment_cols = 2 * cols if how == "segments" else triton.cdiv(n_cols, cols) * cols
    n_segments = triton.cdiv(n_cols, segment_cols)
    if words is None:
        words = torch.full(
            (2 * groups * n_segments * inner,), -1, dtype=torch.int64, device=DEVICE
        )  # need not be zero
    steps = [(True, True)] if n_segments == 1 else [(True, False), (False, True)]
    for publish, write in steps:
        kernel[(groups * n_segments,)](
            *tensors,
            words,
            *strides,
            n_cols,
            n_inner,
            n_segments,
            segment_cols,
            PUBLISH=publish,
            WRITE=write,
            BLOCK_COLS=cols,
            **common,
        )
    return tensors[-1]


def forward(x, *, y=None, **options):
    y = torch.full(x.shape, NAN, dtype=x.dtype, device=x.device) if y is None else y
    return launch((x, y), **options)


def backward(y, dy, **options):
    dx = torch.full(y.shape, NAN, dtype=y.dtype, device=y.device)
    return launch((y, dy, dx), **options)


def cube(*shape, dtype=torch.float32, seed=0, scale=4.0):
    """A tensor amid NaN with gaps along every dimension."""
    n_outer, n_cols, n_inner = shape
    flat = matrix(n_outer * (n_cols + 1), n_inner, dtype, gap=3, seed=seed, scale=scale)
    return flat.as_strided(
        shape, (flat.stride(0) * (n_cols + 1), flat.stride(0), 1), flat.storage_offset()
    )


def exact(x, log):
    return (torch.log_softmax if log else torch.softmax)(x.double(), 1)


def exact_backward(y, dy, log):
    y, dy = y.double(), dy.double()
    return (
        dy - y.exp() * dy.sum(1, keepdim=True) if log else y * (dy - (y * dy).sum(1, keepdim=True))
    )


@BOTH
@HOW
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_name)
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (2, 7, 3), (1, 8, 4), (2, 9, 5), (1, 33, 1), (1, 150, 5)], ids=str
)
def test_forward_and_backward(shape, dtype, how, log):
    x = cube(*shape, dtype=dtype)
    y = forward(x, log=log, how=how)
    # truncation leaves log-softmax of 16 bits one unit in its last place
    assert_near(y, exact(x, log), atol=1e-2 if log and dtype.itemsize == 2 else None)
    dy = cube(*shape, dtype=dtype, seed=1, scale=1.0)
    wanted = exact_backward(y, dy, log)
    assert_near(
        backward(y, dy, log=log, how=how),
        wanted,
        atol=1e-5 if dtype == torch.float32 else 2e-3 if dtype.itemsize == 2 else None,
    )


@BOTH
@HOW
def test_every_order_of_dimensions(how, log):
    storage = cube(3, 5, 6)
    for order in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)):
        x = storage.permute(order)
        y = torch.empty_like(storage).permute(order)
        assert_near(forward(x, y=y, log=log, how=how), exact(x, log))
        dy = storage.permute(order)[:1].expand(x.shape)
        assert_near(backward(y, dy, log=log, how=how), exact_backward(y, dy, log), atol=1e-4)


@BOTH
@HOW
def test_edges_as_torch(how, log):
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
    assert_near(forward(x, log=log, how=how), wanted)


@BOTH
@HOW
def test_maxima_that_rise_and_fall(how, log):
    """200 elements, in up to 13 segments, which are merged eight at a time."""
    rising = (torch.arange(200.0) / 8).view(1, 200, 1)
    x = torch.cat([rising, rising.flip(1), rising.roll(100, 1)], dim=2).to(DEVICE)
    assert_near(forward(x, log=log, how=how), exact(x, log))


@HOW
def test_offsets_in_64_bits(how):
    x = cube(2, 9, 5)
    assert torch.equal(
        forward(x, log=False, how=how, index=tl.int64), forward(x, log=False, how=how)
    )


@HOW
def test_a_vector_that_divides_the_lines_changes_nothing(how):
    x = cube(3, 19, 12)[:, :, :8]
    x, dy = x.contiguous(), x.flip(1).contiguous()
    y = forward(x, log=False, how=how)
    for vector in (2, 4):
        assert torch.equal(forward(x, log=False, how=how, vector=vector), y)
        assert torch.equal(
            backward(y, dy, log=False, how=how, vector=vector), backward(y, dy, log=False, how=how)
        )


@HOW
@pytest.mark.skipif(not INTERPRETED, reason="the interpreter records addresses")
def test_poisoned_surroundings(how):
    x, dy = cube(2, 18, 5), cube(2, 18, 5, seed=1)
    words = torch.zeros(2 * 2 * 3 * 4 * 2, dtype=torch.int64)
    numbers = words if how == "split" else words.view(torch.float32)
    with watch_accesses() as accesses:
        y = forward(x, log=False, how=how, words=words)
    accesses.assert_reads_only(x, numbers)
    accesses.assert_writes_once(y, workspace=numbers)
    words.zero_()
    with watch_accesses() as accesses:
        dx = backward(y, dy, log=False, how=how, words=words)
    accesses.assert_reads_only(y, dy, numbers)
    accesses.assert_writes_once(dx, workspace=numbers)


@pytest.mark.skipif(not INTERPRETED, reason="only interpreted kernels are counted")
@pytest.mark.parametrize("how, reads", [("whole", 1), ("loops", 2)])
def test_elements_moved(how, reads):
    x, dy = cube(2, 19, 5), cube(2, 19, 5, seed=1)
    y, dx, words = torch.empty(2, 19, 5), torch.empty(2, 19, 5), torch.empty(1, dtype=torch.int64)
    with traffic.count_elements() as count:
        launch((x, y), log=False, how=how, words=words)
    assert (count.reads, count.writes) == (reads * x.numel(), x.numel())
    with traffic.count_elements() as count:
        launch((y, dy, dx), log=False, how=how, words=words)
    assert (count.reads, count.writes) == (2 * reads * x.numel(), x.numel())


@BOTH
@pytest.mark.parametrize("published", ["none", "some", "all"])
def test_doing_without_partners_does_not_change_a_bit(published, log):
    """33 columns in 5 chunks, two bundles of 4: words that are there are believed, words that are
    not are computed."""
    x, dy, y = cube(1, 33, 6), cube(1, 33, 6, seed=1), cube(1, 33, 6, seed=2)
    for run in (
        lambda **given: forward(x, log=log, how="split", **given),
        lambda **given: backward(y, dy, log=log, how="split", **given),
    ):
        words = torch.zeros(2 * 5 * 4, dtype=torch.int64, device=DEVICE)
        result = run(words=words)
        before = words.clone()
        assert (before.view(2, 5, 4)[0] != 0).all() and (
            before.view(2, 5, 4)[1, :, :2] != 0
        ).all(), "all published"
        assert (before.view(2, 5, 4)[1, :, 2:] == 0).all(), "nothing for columns that do not exist"
        if published == "none":
            words.zero_()
        elif published == "some":
            words[::3] = 0
        assert torch.equal(run(words=words), result)
        assert torch.equal(words, before)
