"""What only a GPU can show: every regime against float64, launches by the thousand and by every
form, hooks, streams, threads, graphs, exceptions, a busy device, other processes."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

import probe
import triton_softmax
from kernel_cases import (
    expected,
    launched,
)
from triton_softmax.config import splitting
from triton_softmax.operations import OPERATIONS
from triton_softmax.plan import launch

pytestmark = pytest.mark.gpu

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
COLUMNS = (
    1, 2, 15, 16, 17, 31, 33, 127, 128, 129, 781, 1000, 1023, 1024, 1025, 2047, 2049, 4095, 4097,
    8191, 8192, 8193, 16383, 16384, 16385,
    32001, 32768, 32769, 50257, 65536, 98304, 98312, 131072, 151643, 262144, 262145,
)  # fmt: skip


@triton.jit
def _exp2_of_bits_kernel(bits_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.exp2(tl.load(bits_ptr + at).to(tl.float32, bitcast=True)))


def test_the_error_of_the_exponential_of_the_device():
    """Every float32 from -126 to 0: the relative error stays below 2⁻²², which NVIDIA's PTX
    documentation states of `ex2.approx`, and is less than 2.5 units of 2⁻²⁴."""
    worst, step = 0.0, 2**26
    first, last = -(2**31), -(2**31) + 0x42FC0000  # the bits of -0.0 and of -126.0
    for start in range(first, last, step):
        bits = torch.arange(start, start + step, dtype=torch.int64, device="cuda").to(torch.int32)
        y = torch.empty(step, device="cuda")
        _exp2_of_bits_kernel[(step // 1024,)](bits, y, BLOCK=1024)
        exact = bits.view(torch.float32).double().exp2()
        error = (y.double() / exact - 1).abs()[: last - start]
        worst = max(worst, error.max().item())
    assert 1 < worst * 2**24 < 2.5


def _tolerance(dtype: torch.dtype) -> float:
    return {torch.float32: 2e-6, torch.bfloat16: 5e-3, torch.float16: 2e-3, torch.float64: 1e-13}[
        dtype
    ]


def _relative_error(got: torch.Tensor, want: torch.Tensor) -> float:
    return ((got.double() - want).norm() / want.norm().clamp_min(1e-300)).item()


def _check(x: torch.Tensor, dim: int = -1, *, log: bool = False) -> None:
    name = "log_softmax" if log else "softmax"
    x = x.detach().requires_grad_(True)
    y = getattr(triton_softmax, name)(x, dim)
    assert y.dtype == x.dtype and y.is_contiguous()
    dy = torch.randn_like(y)
    (dx,) = torch.autograd.grad(y, x, dy)
    # The gradient from the rounded y, as the backward pass sees it.
    of_y = expected(f"{name}_backward", (y.detach(), dy), dim)
    for got, want in ((y.detach(), expected(name, (x.detach(),), dim)), (dx, of_y)):
        # float16 has few digits left for the small numbers of a long row
        assert _relative_error(got, want.to(x.dtype).double()) < 2 * _tolerance(x.dtype)


def kernels_of(x: torch.Tensor, dim: int) -> set[str]:
    """The kernels of softmax, by their geometries."""
    return {*launched(probe.plan_of("softmax", (x,), dim))}


SHAPES = [(n_rows, n_cols) for n_cols in COLUMNS for n_rows in (1, 3, 300)]
SHAPES += [(n_rows, n_cols) for n_cols in (2**20, 2**20 + 1, 2**22) for n_rows in (1, 2, 9)]
SHAPES += [(20, 2**21), (21, 2**21 - 3), (20, 1_300_000), (5, 2**23)]
"""The last wait for hundreds of programs."""


@pytest.mark.parametrize("log", [False, True], ids=["softmax", "log_softmax"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_regime_against_float64(shape, dtype, log):
    _check(torch.randn(shape, device="cuda", dtype=dtype) * 3, log=log)


# Every operation on every geometry, on both sides of what a tile or a chunk holds.
GEOMETRIES = {
    "packed_rows": [((300, n), 1) for n in (16, 1024, 4096, 8192)],
    "aligned_rows": [((300, n), 1) for n in (133, 1023, 1025, 8191)],
    "split_rows": [((300, 32_776), 1), ((300, 32_777), 1), ((9, 131_073), 1), ((1, 262_144), 1)],
    "strided": [((5, 21, 49), 1), ((5, 255, 64), 1), ((512, 70), 0)],
    "split_strided": [((3, 1025, 64), 1), ((3, 4097, 64), 1), ((16_384, 40), 0)],
    "two_pass": [((3, 65_537, 24), 1), ((70_000, 5), 0), ((2, 70_016, 49), 1)],
}
FLOAT64_LOOPS = [((3, 8193), 1), ((3, 1025, 24), 1), ((100_000, 5), 0)]


def _inputs(operation: str, shape: tuple[int, ...], dim: int, dtype: torch.dtype):
    x = 3 * torch.randn(shape, device="cuda", dtype=torch.float32)
    if not operation.endswith("backward"):
        return (x.to(dtype),)
    if OPERATIONS[operation].numbers:
        return x.to(dtype), torch.randn_like(x.select(dim, 0)).to(dtype)
    y = (torch.log_softmax if operation.startswith("log_") else torch.softmax)(x.double(), dim)
    return y.to(dtype), torch.randn(shape, device="cuda").to(dtype)


def _assert_right(
    operation: str, got: torch.Tensor, inputs: tuple[torch.Tensor, ...], dim: int
) -> None:
    want = expected(operation, inputs, dim)
    assert got.dtype == inputs[0].dtype and got.shape == want.shape and got.is_contiguous()
    if operation == "logsumexp":
        _assert_logsumexp(got, want)
    else:
        want = want.to(got.dtype).double()
        assert _relative_error(got, want) < 2 * _tolerance(got.dtype)


def _assert_logsumexp(got: torch.Tensor, want: torch.Tensor) -> None:
    """Each number by itself, relative to its size, or to 1 if it is smaller."""
    assert torch.equal(got.isnan(), want.isnan())
    assert torch.equal(got.isinf() & (got > 0), want.to(got.dtype).isinf() & (want > 0))
    assert torch.equal(got.isinf() & (got < 0), want.to(got.dtype).isinf() & (want < 0))
    finite = got.isfinite()
    got, want, dtype = got[finite].double(), want[finite], got.dtype
    rounding = {torch.float32: 2e-7, torch.bfloat16: 4e-3, torch.float16: 1e-3}.get(dtype, 4e-15)
    error = ((got - want).abs() / want.abs().clamp_min(1.0)).max().item() if len(got) else 0.0
    assert error <= rounding, error


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64], ids=str)
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_every_operation_on_every_geometry(geometry, dtype, operation):
    cases = GEOMETRIES[geometry]
    if dtype == torch.float64:
        cases = FLOAT64_LOOPS if geometry == "two_pass" else cases
        cases = [] if geometry.startswith("split") else cases  # its summaries do not fit a word
    for shape, dim in cases:
        inputs = _inputs(operation, shape, dim, dtype)
        plan = probe.plan_of(operation, inputs, dim)
        kernels = {*launched(plan)} - {"merge_chunks_kernel"}
        assert kernels == {f"{geometry}_kernel"}, (shape, plan.kernels)
        for each in plan.launches:
            assert each.constants["OP"] is OPERATIONS[operation]
        for _ in range(2):  # the first launch, and one that is repeated
            _assert_right(operation, probe.run(operation, inputs, dim), inputs, dim)


# One case of each geometry, the launches of split rows and of loops in turn included.
CALLS = [
    ((300, 1024), 1), ((300, 1025), 1), ((3, 100_003), 1), ((1, 1 << 24), 1), ((5, 256, 70), 1),
    ((3, 1025, 64), 1), ((70_000, 5), 0),
]  # fmt: skip
ON_CALLS = pytest.mark.parametrize("shape, dim", CALLS, ids=str)


@pytest.fixture
def new_plans():
    """Plans made during a test are forgotten after it."""
    probe.forget()
    yield
    probe.forget()


@ON_CALLS
@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_fast_form_of_a_launch_equals_the_public_one_which_hooks_see(
    operation, shape, dim, monkeypatch, new_plans
):
    """Tuples of addresses and constants reach the kernel as they do from Triton's own launcher."""
    inputs = _inputs(operation, shape, dim, torch.float32)
    forms, seen = [], []
    fast_form, chain = launch.fast_form, triton.knobs.runtime.launch_enter_hook
    monkeypatch.setattr(launch, "fast_form", lambda c: forms.append(fast_form(c)) or forms[-1])
    results = [probe.run(operation, inputs, dim) for _ in range(3)]
    kernels = probe.plan_of(operation, inputs, dim).kernels
    assert len(forms) == len(kernels) and None not in forms

    def hook(metadata):
        seen.append(metadata.get()["name"])

    chain.add(hook)
    try:
        results += [probe.run(operation, inputs, dim) for _ in range(3)]
    finally:
        chain.remove(hook)
    results.append(probe.run(operation, inputs, dim))
    assert seen == [f"{OPERATIONS[operation].name}_{kernel}" for kernel in kernels] * 3
    monkeypatch.setattr(launch, "fast_form", lambda compiled: None)
    probe.forget()
    results += [probe.run(operation, inputs, dim) for _ in range(3)]
    assert all(torch.equal(each, results[0]) for each in results)


LAYOUTS = {
    "rows-float64-long": ((2, 20_000), 1, "float64"),
    "dim0-in-segments": ((300_000, 8), 0, "float32"),
    "dim0-in-segments-bf16": ((200_000, 128), 0, "bfloat16"),
    "dim0-in-segments-float64": ((5000, 20), 0, "float64"),
    "dim1-loops-one-launch": ((5000, 2050, 3), 1, "float64"),
    "dim1-images": ((6, 300, 14, 14), 1, "bfloat16"),
    "dim1-images-odd": ((6, 300, 7, 7), 1, "bfloat16"),
    "dim1-images-long": ((3, 3000, 14, 14), 1, "bfloat16"),
    "dim1-images-long-fp32": ((3, 3000, 6, 5), 1, "float32"),
    "dim1-expanded-long": ((1, 20_000, 1), 1, "float32", lambda x: x.expand(3, 20_000, 40)),
    "dim1-split-once": ((70, 4096, 64), 1, "bfloat16"),
    "transposed": ((1000, 131), 1, "float32", lambda x: x.t()),
    "transposed-long": ((3, 50_000), 0, "float32", lambda x: x.t()),
    "transposed-tall": ((9000, 5), 1, "bfloat16", lambda x: x.t()),
    "permuted": ((4, 6, 50, 7), 2, "float32", lambda x: x.permute(3, 0, 1, 2)),
    "expanded": ((1, 3000), 1, "float32", lambda x: x.expand(9, 3000)),
    "row-strided": ((9, 4096), 1, "float32", lambda x: x[:, :3001]),
    "offset": ((9, 4097), 1, "bfloat16", lambda x: x[:, 1:]),
    "offset-long": ((3, 70001), 1, "bfloat16", lambda x: x[:, 1:]),
    "every-second": ((9, 2000), 1, "float32", lambda x: x[:, ::2]),
    "channels-last": (
        (2, 8, 5, 6), 1, "float32", lambda x: x.to(memory_format=torch.channels_last),
    ),
}  # fmt: skip
"""Shape, dim, dtype, and what is made of the tensor."""


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("log", [False, True], ids=["softmax", "log_softmax"])
def test_layouts(layout, log):
    shape, dim, dtype, *view = LAYOUTS[layout]
    x = torch.randn(shape, device="cuda", dtype=getattr(torch, dtype))
    _check(view[0](x) if view else x, dim, log=log)


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


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64], ids=str)
@pytest.mark.parametrize("offset", [0.0, 1e4, -1e4])
@pytest.mark.parametrize(
    "n_cols, dim", [(n, 1) for n in (7, 781, 1024, 4097, 20_000, 50_257, 131_072)]
    + [(n, 0) for n in (300, 4096, 70_000)],
)  # fmt: skip
def test_hostile_rows(n_cols, dim, offset, dtype):
    """Rows of infinities and NaN, and numbers far from 0, by each geometry."""
    x = _hostile(n_cols, torch.float32 if dtype == torch.float64 else dtype)
    x = (x.to(dtype) + offset).to(dtype)
    x = x if dim else x.t().contiguous()
    near = {"rtol": 8 * _tolerance(dtype), "atol": 8 * _tolerance(dtype), "equal_nan": True}
    for _ in range(2):
        _assert_logsumexp(triton_softmax.logsumexp(x, dim), torch.logsumexp(x.double(), dim))
        for name in ("softmax", "log_softmax") if not offset else ():
            ours, theirs = (getattr(of, name) for of in (triton_softmax, torch))
            # Rounding to the dtype may overflow where float64 does not.
            torch.testing.assert_close(ours(x, dim), theirs(x.double(), dim).to(dtype), **near)


@pytest.mark.parametrize(
    "shape, dim",
    [
        ((8, 100_003), 1), ((64, 100_003), 1), ((600, 131_072), 1), ((90, 262_144), 1),
        ((20, 2_000_001), 1), ((5, 5000, 40), 1), ((16_000, 100), 0), ((9, 4096, 4096), 1),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_without_partners_the_bits_are_the_same(shape, dim, dtype, monkeypatch, new_plans):
    """A program that hardly waits and computes every missing summary itself arrives at the same
    result, bit for bit."""
    x, dy = (torch.randn(shape, device="cuda", dtype=dtype) for _ in range(2))
    run = lambda: (  # noqa: E731
        y := probe.run("softmax", (x,), dim),
        probe.run("softmax_backward", (y, dy), dim),
    )
    y, dx = run()
    assert (kernels_of(x, dim) == {"split_rows_kernel"}) == (len(shape) == 2 and dim == 1)
    assert _relative_error(y, torch.softmax(x.double(), dim).to(dtype).double()) < _tolerance(dtype)
    monkeypatch.setattr(splitting, "MAX_POLLS", -1)
    probe.forget()
    for _ in range(3):
        assert all(map(torch.equal, run(), (y, dx)))


@pytest.mark.parametrize("shape, dim", [((4, 65536), 1), ((4096, 200), 0)], ids=str)
@pytest.mark.parametrize("operation", ["softmax", "softmax_backward", "logsumexp"])
def test_ten_thousand_launches_of_split_kernels(operation, shape, dim):
    inputs = _inputs(operation, shape, dim, torch.float32)
    want = probe.run(operation, inputs, dim)
    kernels = probe.plan_of(operation, inputs, dim).kernels
    assert kernels == ("split_rows_kernel" if dim else "split_strided_kernel",)
    _assert_right(operation, want, inputs, dim)
    wrong = torch.zeros((), device="cuda", dtype=torch.int64)
    for _ in range(10_000):
        wrong += (probe.run(operation, inputs, dim) != want).any()
    assert wrong.item() == 0


def test_threads_on_streams_of_their_own(new_plans):
    """Threads plan, look up and launch at once, some of them the same calls, others of their own;
    each takes words of its own stream."""
    shapes = [((3, 100_003), 1), ((2, 1 << 20), 1), ((4096, 200), 0), ((300, 1025), 1)]
    names = ("softmax", "softmax_backward", "logsumexp")
    cases = [
        (name, _inputs(name, shape, dim, torch.float32), dim)
        for name in names
        for shape, dim in shapes
    ]
    wants = [probe.run(*case) for case in cases]
    torch.cuda.synchronize()
    probe.forget()
    start = threading.Barrier(4)
    failures = []

    def work(seed):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            wrong = torch.zeros((), device="cuda", dtype=torch.int64)
            start.wait()
            for step in range(300):
                i = (step * (2 * seed + 1)) % len(cases)
                wrong += (probe.run(*cases[i]) != wants[i]).any()
            stream.synchronize()
            if wrong.item():
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not any(thread.is_alive() for thread in threads) and not failures


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
    assert {each.endswith("_rows_kernel") for each in kernels_of(x, dim)} == {dim == 1}
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


def test_what_the_sanitizer_is_given_runs():
    script = Path(__file__).with_name("sanitize.py")
    roots = f"{script.parents[1]}:{script.parents[2] / 'src'}"
    environment = {**os.environ, "PYTHONPATH": f"{roots}:{os.environ.get('PYTHONPATH', '')}"}
    subprocess.run([sys.executable, str(script)], env=environment, check=True, timeout=900)


OTHER = """
import sys, torch, triton_softmax
x = torch.randn(8, 1 << 20, device="cuda")
a = torch.randn(16384, 16384, device="cuda", dtype=torch.bfloat16)
print("ready", flush=True)
while True:
    for _ in range(100):
        y = triton_softmax.softmax(x, -1)
    a @ a
    torch.cuda.synchronize()
"""


def test_another_process_fills_the_device_and_is_killed():
    """It launches kernels that wait, and multiplies matrices on all multiprocessors; it dies in the
    middle of both. Neither changes a bit here."""
    x = torch.randn(40, 1 << 19, device="cuda")
    first = triton_softmax.softmax(x, -1)
    assert _relative_error(first, torch.softmax(x.double(), -1)) < 2e-6
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for _ in range(2):
        with subprocess.Popen(
            [sys.executable, "-c", OTHER], env=environment, stdout=subprocess.PIPE, text=True
        ) as other:
            assert other.stdout is not None and other.stdout.readline() == "ready\n"
            wrong = torch.zeros((), device="cuda", dtype=torch.int64)
            for step in range(300):
                if step == 200:
                    other.kill()
                wrong += (triton_softmax.softmax(x, -1) != first).any()
            assert wrong.item() == 0 and other.wait() == -9


@pytest.mark.parametrize("shape, dim", [((4, 65536), 1), ((4096, 200), 0)], ids=str)
def test_an_exception_in_the_middle_leaves_nothing_behind(shape, dim):
    """A hook that raises before a launch, and a result that does not fit: the next call is right,
    bit for bit, with words that nobody has used."""
    x = torch.randn(shape, device="cuda")
    first = triton_softmax.softmax(x, dim)
    triton_softmax.softmax(x, dim)

    def refuse(_):
        raise KeyError("in the middle")

    for _ in range(20):
        triton.knobs.runtime.launch_enter_hook.add(refuse)
        try:
            with pytest.raises(KeyError, match="in the middle"):
                triton_softmax.softmax(x, dim)
        finally:
            triton.knobs.runtime.launch_enter_hook.remove(refuse)
        assert torch.equal(triton_softmax.softmax(x, dim), first)
    with pytest.raises(torch.OutOfMemoryError):
        triton_softmax.softmax(x[:1, :1].expand(1 << 21, 1 << 18), -1)
    assert torch.equal(triton_softmax.softmax(x, dim), first)


def test_split_rows_launch_survives_a_long_wait():
    """No hang however the device is scheduled: bounded time for a launch with more chunks than the
    device holds."""
    x = torch.randn(1, 1 << 24, device="cuda")
    torch.cuda.synchronize()
    begin = time.monotonic()
    y = probe.run("softmax", (x,), -1, None, "split_rows")
    torch.cuda.synchronize()
    assert time.monotonic() - begin < 30
    assert _relative_error(y, torch.softmax(x.double(), -1)) < 2e-6


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str
)
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_batch_invariant(name, dtype):
    """A row's bits at any place of any batch, forward and backward, on every border."""
    function = getattr(triton_softmax, name)

    def both(x, g):
        x = x.detach().requires_grad_()
        y = function(x, -1, batch_invariant=True)
        return y.detach(), *torch.autograd.grad(y, x, g)

    for n_cols in (2, 7, 33, 129, 777, 1024, 3001, 8192, 8193, 12345, 50257, 131072):
        many = max(17, min(100_000, 2**23 // n_cols))
        x = torch.randn(many, n_cols, device="cuda", dtype=torch.float32).to(dtype)
        g = torch.randn_like(x) if name != "logsumexp" else torch.randn_like(x[:, 0])
        together = both(x, g)
        for i in (0, 3, many // 2, many - 1):
            for first in (i, max(0, i - 2), max(0, i - 15)):
                some = both(x[first : i + 1], g[first : i + 1])
                for few, all_ in zip(some, together, strict=True):
                    assert torch.equal(few[-1], all_[i]), (n_cols, i, first)
        if n_cols <= 1024:
            apart = both(x[:17].t().contiguous().t(), g[:17])
            for one, all_ in zip(apart, together, strict=True):
                assert torch.equal(one, all_[:17]), n_cols


@pytest.mark.parametrize("n_cols", [333, 5000])
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_inside_torch_compile(name, n_cols):
    """A short row becomes PyTorch's operators, a long one stays a call of ours; both are right."""
    torch._dynamo.reset()
    function = getattr(triton_softmax, name)
    compiled = torch.compile(lambda x: function(x * 0.5, -1) * 2, fullgraph=True)
    x = torch.randn(64, n_cols, device="cuda", requires_grad=True)
    y = compiled(x)
    want = getattr(torch, name)(x * 0.5, -1) * 2
    g = torch.randn_like(y)
    torch.testing.assert_close(y, want, rtol=1e-5, atol=1e-6)
    ours, theirs = (torch.autograd.grad(each, x, g)[0] for each in (y, want))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
