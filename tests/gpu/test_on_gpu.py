"""What only a GPU can show: every regime against float64, launches by the thousand, streams,
graphs, a busy device, host time."""

from __future__ import annotations

import time

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

import triton_softmax  # noqa: E402
from kernel_cases import backward, forward, forward_kernels, kernel_name  # noqa: E402
from triton_softmax import dispatch  # noqa: E402

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
COLUMNS = (
    1, 2, 15, 16, 17, 31, 33, 127, 128, 129, 781, 1000, 1023, 1024, 1025, 2047, 2049, 4095, 4097,
    8191, 8192, 8193, 16383, 16384, 16385,
    32001, 32768, 32769, 50257, 65536, 98304, 98312, 131072, 151643, 262144, 262145,
)  # fmt: skip


def _tolerance(dtype: torch.dtype) -> float:
    return {torch.float32: 2e-6, torch.bfloat16: 5e-3, torch.float16: 2e-3, torch.float64: 1e-13}[
        dtype
    ]


def _relative_error(got: torch.Tensor, want: torch.Tensor) -> float:
    return ((got.double() - want).norm() / want.norm().clamp_min(1e-300)).item()


def _check(
    x: torch.Tensor, dim: int = -1, *, log: bool = False, implementation: str | None = None
) -> None:
    ours, theirs = (
        (triton_softmax.log_softmax, torch.log_softmax)
        if log
        else (triton_softmax.softmax, torch.softmax)
    )
    x = x.detach().requires_grad_(True)
    y = ours(x, dim, implementation=implementation)
    reference_x = x.detach().double().requires_grad_(True)
    reference = theirs(reference_x, dim)
    assert y.dtype == x.dtype and y.is_contiguous()
    want = (
        reference.detach().to(x.dtype).double()
    )  # float16 has few digits left for the small numbers of a long row
    assert _relative_error(y, want) < _tolerance(x.dtype) * (2 if log else 1)
    dy = torch.randn_like(y)
    (dx,) = torch.autograd.grad(y, x, dy)
    # From the rounded y, as the backward pass sees it; the forward error is judged above.
    saved = y.detach().double()
    dy = dy.double()
    want = (
        dy - saved.exp() * dy.sum(dim, keepdim=True)
        if log
        else saved * (dy - (saved * dy).sum(dim, keepdim=True))
    )
    assert _relative_error(dx, want.to(x.dtype).double()) < _tolerance(x.dtype) * 2


@pytest.mark.parametrize("log", [False, True], ids=["softmax", "log_softmax"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n_cols", COLUMNS)
@pytest.mark.parametrize("n_rows", [1, 3, 300])
def test_every_regime_against_float64(n_rows, n_cols, dtype, log):
    torch.manual_seed(n_cols)
    _check(torch.randn(n_rows, n_cols, device="cuda", dtype=dtype) * 3, log=log)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n_cols", [1 << 20, (1 << 20) + 1, 1 << 22])
@pytest.mark.parametrize("n_rows", [1, 2, 9])
def test_very_long_rows(n_rows, n_cols, dtype):
    _check(torch.randn(n_rows, n_cols, device="cuda", dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("log", [False, True], ids=["softmax", "log_softmax"])
@pytest.mark.parametrize(
    "shape", [(20, 1 << 21), (21, (1 << 21) - 3), (20, 1_300_000), (5, 1 << 23)], ids=str
)
def test_long_rows_that_wait_for_hundreds_of_programs(shape, log, dtype):
    _check(torch.randn(shape, device="cuda", dtype=dtype), log=log)


@pytest.mark.parametrize("shape", [(5, 33), (3, 8193), (2, 20000)], ids=str)
def test_float64(shape):
    _check(torch.randn(shape, device="cuda", dtype=torch.float64))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "implementation", [i for i in triton_softmax.IMPLEMENTATIONS if i != "naive"]
)
def test_each_implementation(implementation, dtype):
    x = torch.randn(37, 3001, device="cuda", dtype=dtype)
    _check(x, implementation=implementation)
    name = "strided_loops" if implementation == "strided" else implementation  # of 3,001 columns
    assert forward_kernels(x, -1, implementation=implementation) == kernel_name(name)


LAYOUTS = {
    "dim1": lambda: (torch.randn(5, 300, 70, device="cuda"), 1),
    "dim0": lambda: (torch.randn(513, 70, device="cuda"), 0),
    "dim1-long": lambda: (torch.randn(2, 5000, 33, device="cuda"), 1),
    "dim0-long": lambda: (torch.randn(33_000, 130, device="cuda", dtype=torch.bfloat16), 0),
    "dim0-longest": lambda: (torch.randn(200_000, 20, device="cuda"), 0),
    "dim0-in-segments": lambda: (torch.randn(300_000, 8, device="cuda"), 0),
    "dim0-in-segments-bf16": lambda: (
        torch.randn(200_000, 128, device="cuda", dtype=torch.bfloat16),
        0,
    ),
    "dim0-in-segments-float64": lambda: (
        torch.randn(5000, 20, device="cuda", dtype=torch.float64),
        0,
    ),
    "dim1-loops-one-launch": lambda: (
        torch.randn(5000, 2050, 3, device="cuda", dtype=torch.float64),
        1,
    ),
    "dim1-images": lambda: (torch.randn(6, 300, 14, 14, device="cuda", dtype=torch.bfloat16), 1),
    "dim1-images-odd": lambda: (torch.randn(6, 300, 7, 7, device="cuda", dtype=torch.bfloat16), 1),
    "dim1-images-long": lambda: (
        torch.randn(3, 3000, 14, 14, device="cuda", dtype=torch.bfloat16),
        1,
    ),
    "dim1-images-long-fp32": lambda: (torch.randn(3, 3000, 6, 5, device="cuda"), 1),
    "dim1-expanded-long": lambda: (
        torch.randn(1, 20_000, 1, device="cuda").expand(3, 20_000, 40),
        1,
    ),
    "dim1-split": lambda: (torch.randn(3, 1025, 77, device="cuda", dtype=torch.float16), 1),
    "dim1-split-once": lambda: (torch.randn(70, 4096, 64, device="cuda", dtype=torch.bfloat16), 1),
    "transposed": lambda: (torch.randn(1000, 131, device="cuda").t(), 1),
    "transposed-long": lambda: (torch.randn(3, 50_000, device="cuda").t(), 0),
    "transposed-tall": lambda: (torch.randn(9000, 5, device="cuda", dtype=torch.bfloat16).t(), 1),
    "permuted": lambda: (torch.randn(4, 6, 50, 7, device="cuda").permute(3, 0, 1, 2), 2),
    "expanded": lambda: (torch.randn(1, 3000, device="cuda").expand(9, 3000), 1),
    "row-strided": lambda: (torch.randn(9, 4096, device="cuda")[:, :3001], 1),
    "row-strided-bf16": lambda: (
        torch.randn(9, 4096, device="cuda", dtype=torch.bfloat16)[:, :3000],
        1,
    ),
    "offset": lambda: (torch.randn(9, 4097, device="cuda", dtype=torch.bfloat16)[:, 1:], 1),
    "offset-long": lambda: (torch.randn(3, 70001, device="cuda", dtype=torch.bfloat16)[:, 1:], 1),
    "every-second": lambda: (torch.randn(9, 2000, device="cuda")[:, ::2], 1),
    "channels-last": lambda: (
        torch.randn(2, 8, 5, 6, device="cuda").to(memory_format=torch.channels_last),
        1,
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("log", [False, True], ids=["softmax", "log_softmax"])
def test_layouts(layout, log):
    x, dim = LAYOUTS[layout]()
    _check(x, dim, log=log)


def _hostile(n_cols: int, dtype: torch.dtype) -> torch.Tensor:
    x = torch.randn(12, n_cols, device="cuda").to(dtype)
    x[0] = -torch.inf
    x[1, n_cols // 2] = torch.inf
    x[2, n_cols - 1] = torch.nan
    x[3, : n_cols - 1] = -torch.inf  # a causal mask's first row, from the other side
    x[4, 1:] = -torch.inf
    x[5] *= 1e4
    x[6] = torch.finfo(dtype).max
    x[7] = torch.finfo(dtype).min
    x[8, ::2] = -torch.inf
    x[9] = -1000.0
    x[10, : n_cols // 2] = -torch.inf
    return x


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n_cols", [7, 781, 4096, 20000, 50257, 131072])
def test_hostile_rows(n_cols, dtype):
    x = _hostile(n_cols, dtype)
    for ours, theirs in (
        (triton_softmax.softmax(x, -1), torch.softmax(x.double(), -1)),
        (triton_softmax.log_softmax(x, -1), torch.log_softmax(x.double(), -1)),
        (triton_softmax.logsumexp(x, -1), torch.logsumexp(x.double(), -1)),
    ):
        assert torch.equal(ours.isnan(), theirs.isnan())
        # Rounding to the dtype may overflow where float64 does not.
        torch.testing.assert_close(
            ours,
            theirs.to(dtype),
            rtol=8 * _tolerance(dtype),
            atol=8 * _tolerance(dtype),
            equal_nan=True,
        )


@pytest.mark.parametrize("n_cols", [781, 16384, 50257, 262144, 1 << 22])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_same_bits_every_time(n_cols, dtype):
    x = torch.randn(max(2, (1 << 24) // n_cols), n_cols, device="cuda", dtype=dtype)
    first = triton_softmax.softmax(x, -1)
    for _ in range(20):
        assert torch.equal(triton_softmax.softmax(x, -1), first)


@pytest.mark.parametrize(
    "shape", [(8, 100_003), (64, 100_003), (600, 131_072), (90, 262_144), (20, 2_000_001)], ids=str
)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_without_partners_the_bits_are_the_same(shape, dtype, monkeypatch):
    """A program that hardly waits and computes every missing summary itself arrives at the same
    result, bit for bit."""
    from triton_softmax.choose import polling

    x, dy = (torch.randn(shape, device="cuda", dtype=dtype) for _ in range(2))
    dispatch.clear_plans()
    y = forward(x, 1)
    assert forward_kernels(x, 1) == kernel_name("split_rows")
    dx = backward(y, dy, 1)
    monkeypatch.setattr(polling, "MAX_POLLS", -1)
    dispatch.clear_plans()
    for _ in range(3):
        assert torch.equal(forward(x, 1), y)
        assert torch.equal(backward(y, dy, 1), dx)
    monkeypatch.undo()
    dispatch.clear_plans()


@pytest.mark.parametrize(
    "shape, dim", [((5, 5000, 40), 1), ((16_000, 100), 0), ((9, 4096, 4096), 1)], ids=str
)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_without_partners_columns_have_the_same_bits(shape, dim, dtype, monkeypatch):
    from triton_softmax.choose import polling

    x, dy = (torch.randn(shape, device="cuda", dtype=dtype) for _ in range(2))
    dispatch.clear_plans()
    y = forward(x, dim)
    dx = backward(y, dy, dim)
    assert "strided" in forward_kernels(x, dim)[0]
    assert _relative_error(y, torch.softmax(x.double(), dim)) < _tolerance(dtype)
    monkeypatch.setattr(polling, "MAX_POLLS", -1)
    dispatch.clear_plans()
    for _ in range(3):
        assert torch.equal(forward(x, dim), y)
        assert torch.equal(backward(y, dy, dim), dx)
    monkeypatch.undo()
    dispatch.clear_plans()


@pytest.mark.parametrize("shape, dim", [((4, 65536), 1), ((4096, 200), 0)], ids=str)
def test_ten_thousand_launches_of_split_kernels(shape, dim):
    x = torch.randn(shape, device="cuda")
    want = triton_softmax.softmax(x, dim)
    assert forward_kernels(x, dim) == kernel_name("split_rows" if dim else "split_strided")
    wrong = torch.zeros((), device="cuda", dtype=torch.int64)
    for _ in range(10_000):
        wrong += (triton_softmax.softmax(x, dim) != want).any()
    assert wrong.item() == 0


def test_two_streams_at_once():
    streams = [torch.cuda.Stream() for _ in range(4)]
    xs = [torch.randn(3, 1 << 20, device="cuda") for _ in streams]
    wants = [torch.softmax(x.double(), -1) for x in xs]
    torch.cuda.synchronize()
    results = [[] for _ in streams]
    for _ in range(50):
        for stream, x, ys in zip(streams, xs, results, strict=True):
            with torch.cuda.stream(stream):
                ys.append(triton_softmax.softmax(x, -1))
    torch.cuda.synchronize()
    for want, ys in zip(wants, results, strict=True):
        assert all(torch.equal(y, ys[0]) for y in ys)
        assert _relative_error(ys[0], want) < 2e-6


@pytest.mark.parametrize(
    "shape, dim", [((5, 200_000), 1), ((16_000, 52), 0), ((20_000, 50), 0)], ids=str
)
def test_replayed_graph_sees_new_input(shape, dim):
    x = torch.randn(shape, device="cuda")
    triton_softmax.softmax(x, dim)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(side):
        triton_softmax.softmax(x, dim)
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        y = triton_softmax.softmax(x, dim)
    ran = forward_kernels(x, dim)
    assert ran == kernel_name("split_rows") if dim else "strided" in ran[0]
    for seed in range(20):
        torch.manual_seed(seed)
        x.copy_(torch.randn_like(x) * (seed + 1))
        y.fill_(torch.nan)
        graph.replay()
        assert _relative_error(y, torch.softmax(x.double(), dim)) < 2e-6


@pytest.mark.parametrize(
    "shape, dim",
    [((2, 1 << 20), 1), ((40, 1 << 19), 1), ((20, 1 << 21), 1), ((20_000, 600), 0)],
    ids=str,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_split_kernels_on_a_busy_device(shape, dim, dtype):
    """Other kernels take most of the device, so that the programs of a row cannot all run at
    once."""
    busy = torch.cuda.Stream()
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(shape, device="cuda", dtype=dtype)
    want = torch.softmax(x.double(), dim).to(dtype).double()
    torch.cuda.synchronize()
    with torch.cuda.stream(busy):
        for _ in range(60):
            b = a @ a
    first = triton_softmax.softmax(x, dim)
    wrong = torch.zeros((), device="cuda", dtype=torch.int64)
    for _ in range(200 if shape[0] == 2 else 40):
        wrong += (triton_softmax.softmax(x, dim) != first).any()
    torch.cuda.synchronize()
    assert b is not None
    assert wrong.item() == 0 and _relative_error(first, want) < _tolerance(dtype)


def test_more_than_two_to_the_31_elements():
    x = torch.empty(
        70_000, 32_768, device="cuda", dtype=torch.bfloat16
    ).normal_()  # 2.29e9 elements
    y = triton_softmax.softmax(x, -1)
    for rows in (slice(0, 4), slice(65_530, 65_542), slice(69_990, 70_000)):
        assert _relative_error(y[rows], torch.softmax(x[rows].double(), -1)) < 5e-3
    del y
    columns = x[:, :24].t()  # offsets beyond 2^31 along the softmax dimension
    y = triton_softmax.softmax(columns, -1)
    assert _relative_error(y, torch.softmax(columns.double(), -1)) < 5e-3


def test_logsumexp_and_its_gradient():
    for shape in ((300, 1000), (2, 1 << 20), (5, 50257)):
        x = torch.randn(shape, device="cuda", requires_grad=True)
        lse = triton_softmax.logsumexp(x, -1)
        want = torch.logsumexp(x.detach().double(), -1)
        assert (lse.double() - want).abs().max() < 2e-5
        lse.sum().backward()
        assert _relative_error(x.grad, torch.softmax(x.detach().double(), -1)) < 5e-6


def test_compiles_without_graph_breaks():
    def f(x):
        return triton_softmax.softmax(x * 2, -1).sum(0)

    x = torch.randn(16, 5000, device="cuda", requires_grad=True)
    torch.testing.assert_close(torch.compile(f, fullgraph=True)(x), f(x))


def test_non_default_device_stream_and_dtype_argument():
    x = torch.randn(6, 3000, device="cuda", dtype=torch.bfloat16)
    y = triton_softmax.softmax(x, -1, dtype=torch.float32)
    assert y.dtype == torch.float32
    assert _relative_error(y, torch.softmax(x.double(), -1)) < 2e-6


def test_split_rows_launch_survives_a_long_wait():
    """No hang however the device is scheduled: bounded time for a launch with more chunks than the
    device holds."""
    x = torch.randn(1, 1 << 24, device="cuda")
    torch.cuda.synchronize()
    begin = time.monotonic()
    y = triton_softmax.softmax(x, -1, implementation="split_rows")
    torch.cuda.synchronize()
    assert time.monotonic() - begin < 30
    assert _relative_error(y, torch.softmax(x.double(), -1)) < 2e-6
