"""The traffic that the pages state, against what the code asks for."""

import inspect

import pytest
import torch

import triton_softmax
from geometries import BLOCK_INNER, GEOMETRIES, groups_of_columns
from kernel_cases import DEVICE, INTERPRETED
from softmax_bench import traffic
from triton_softmax import reference
from triton_softmax.kernels import naive, single_block, three_loops, two_loops
from triton_softmax.operations.softmax import SOFTMAX, SOFTMAX_VJP

SHAPES = [(1, 1), (3, 50), (6, 300)]
# Rungs whose launchers take a plain contiguous matrix of any size.
MODULES = {
    "naive": naive,
    "three_loops": three_loops,
    "two_loops": two_loops,
    "single_block": single_block,
}


def test_the_naive_totals():
    """5MN + 2M reads, as the lines add up, where the source's comment says 7MN; and 3MN + 2M
    writes, as it says."""
    assert traffic.FORWARD["naive"] == traffic.Traffic(
        reads_mn=5, reads_m=2, writes_mn=3, writes_m=2
    )
    assert traffic.FORWARD["naive"].formula == "8MN + 4M"


def test_the_best_gain():
    """(8MN + 4M) / 2MN is 4 + 2/N: a little over 4, where the source says about 5."""
    for M, N in ((1, 1), (1823, 781), (4096, 1024)):
        assert traffic.best_gain(M, N) == pytest.approx(4 + 2 / N)


@pytest.mark.parametrize(
    "function, lines",
    [
        (reference.softmax_naive_torch, traffic.NAIVE_LINES),
        (reference.softmax_vjp_torch, traffic.NAIVE_BACKWARD_LINES),
    ],
    ids=["forward", "backward"],
)
def test_each_naive_line_moves_what_is_written_beside_it(function, lines):
    source = inspect.getsource(function)
    M, N = 7, 50
    values = {"x": torch.randn(M, N), "y": torch.rand(M, N), "dy": torch.randn(M, N)}
    for line in lines:
        assert f"    {line.code}\n" in source
        with traffic.count_elements() as count:
            exec(line.code, values)
        assert (count.reads, count.writes) == (
            line.traffic.reads(M, N),
            line.traffic.writes(M, N),
        ), line.code


def test_the_lines_are_the_whole_function():
    for function, lines in (
        (reference.softmax_naive_torch, traffic.NAIVE_LINES),
        (reference.softmax_vjp_torch, traffic.NAIVE_BACKWARD_LINES),
    ):
        body = inspect.getsource(function).rsplit('"""', 1)[1].strip().splitlines()
        assert [line.strip() for line in body[:-1]] == [line.code for line in lines]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.skipif(not INTERPRETED, reason="only interpreted kernels are counted")
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("name", MODULES, ids=str)
def test_each_rung_moves_what_the_table_says(name, shape):
    x = torch.randn(shape, device=DEVICE)
    with traffic.count_elements() as count:
        y = MODULES[name].softmax_forward(x)
    expected = traffic.FORWARD[name]
    assert (count.reads, count.writes) == (expected.reads(*shape), expected.writes(*shape))
    with traffic.count_elements() as count:
        MODULES[name].softmax_backward(y, x)
    expected = traffic.BACKWARD[name]
    assert (count.reads, count.writes) == (expected.reads(*shape), expected.writes(*shape))


def summaries(geometry, op, x: torch.Tensor) -> tuple[int, int]:
    """How many numbers of summaries are read and written by loads and stores: a word is one, and is
    published by an atomic operation, which is not counted."""
    chunks, n_rows = geometry.n_chunks, x.numel() // x.shape[1]
    if geometry.kernel == "split_rows":  # each chunk reads the words of its row
        return n_rows * chunks**2, 0
    if geometry.kernel == "split_strided":  # once to see whether they are there, once to merge
        return 2 * n_rows * chunks**2, 0
    if geometry.kernel == "strided_loops" and chunks > 1:
        lines = groups_of_columns(x) * BLOCK_INNER * chunks
        return (2 if op.shifted else 1) * lines * chunks, 2 * lines
    return 0, 0


@pytest.mark.skipif(not INTERPRETED, reason="only interpreted kernels are counted")
@pytest.mark.parametrize("op", [SOFTMAX, SOFTMAX_VJP], ids=lambda op: op.name)
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=lambda geometry: geometry.label)
def test_each_geometry_moves_what_the_table_says(geometry, op):
    """One that exchanges words is launched when its partners have published theirs: that is when
    the device is its own."""
    inputs = tuple(torch.rand(geometry.shape, device=DEVICE) for _ in range(op.inputs))
    out = torch.empty_like(inputs[0])
    words = geometry.workspace()
    if words:
        geometry.launch(op, inputs, out, *words)
    with traffic.count_elements() as count:
        geometry.launch(op, inputs, out, *words)
    twice = geometry.kernel == "strided_loops" or "two-launches" in geometry.label
    table = traffic.FORWARD if op.inputs == 1 else traffic.BACKWARD
    same = {"split_strided": "strided"}
    expected = table["two_loops" if twice else same.get(geometry.kernel, geometry.kernel)]
    shape = out.numel() // out.shape[1], out.shape[1]
    read, written = summaries(geometry, op, out)
    assert count.reads == expected.reads(*shape) + read
    assert count.writes == expected.writes(*shape) + written


def test_the_tables_name_every_implementation():
    assert tuple(traffic.FORWARD) == tuple(traffic.BACKWARD) == triton_softmax.IMPLEMENTATIONS


def test_the_table_in_the_package_docstring():
    for name in triton_softmax.IMPLEMENTATIONS:
        row = next(
            line
            for line in triton_softmax.kernels.__doc__.splitlines()
            if line.startswith(f"| `{name}`")
        )
        assert f"| {traffic.FORWARD[name].formula} |" in row
        if name != "three_loops":
            assert row.endswith(f"| {traffic.BACKWARD[name].formula} |")


def test_bytes():
    assert traffic.FORWARD["two_loops"].bytes(3, 5, itemsize=2) == 3 * 15 * 2
    assert str(traffic.Traffic()) == "reads nothing, writes nothing"
