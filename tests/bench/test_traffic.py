"""The traffic that the pages state, against what the code asks for."""

import inspect
from pathlib import Path

import pytest
import torch

import probe
import triton_softmax
from kernel_cases import DEVICE, INTERPRETED, launched
from softmax_bench import traffic
from softmax_tutorial import naive, reference, single_block, three_loops, two_loops
from softmax_tutorial.ladder import RUNGS
from triton_softmax import plan
from triton_softmax.config import Choice
from triton_softmax.config.constants import TILE_KERNELS, SplitRows, SplitStrided, TwoPass
from triton_softmax.operations import OPERATIONS
from triton_softmax.plan import KERNELS

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


@pytest.mark.parametrize(
    "function, lines",
    [
        (reference.softmax_naive_torch, traffic.NAIVE_LINES),
        (reference.softmax_vjp_torch, traffic.NAIVE_BACKWARD_LINES),
    ],
    ids=["forward", "backward"],
)
def test_each_naive_line_moves_what_is_written_beside_it(function, lines):
    """And the lines are the whole function."""
    body = inspect.getsource(function).rsplit('"""', 1)[1].strip().splitlines()
    shown = [line.strip() for line in body[:-1] if not line.strip().startswith("#")]
    assert shown == [*lines]
    M, N = 7, 50
    values = {"x": torch.randn(M, N), "y": torch.rand(M, N), "dy": torch.randn(M, N)}
    for line, moved in lines.items():
        with traffic.count_elements() as count:
            exec(line, values)
        assert (count.reads, count.writes) == (moved.reads(M, N), moved.writes(M, N)), line


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


GEOMETRIES = {
    # shape of x, dim; words read per row; constants where none are chosen for so few elements
    "packed_rows": ((3, 48), 1, 0, None),
    "aligned_rows": ((3, 133), 1, 0, None),
    "split_rows": (
        (3, 1001), 1, 1,
        SplitRows(
            1024, 1, edges=False, pairs=False, barrier=False, keep_terms=False, depth=0, wait=False,
            backoff=0, publish=True, write=True, words=32, polls=1,
        ),
    ),
    "strided": ((2, 40, 5), 1, 0, None),
    "split_strided": (
        (2, 40, 5), 1, 2,
        SplitStrided(64, 8, 1, barrier=False, wide_index=False, wait=False, chunks=4, polls=1),
    ),
    "two_pass": (
        (2, 40, 5), 1, 0,
        TwoPass(16, 8, 1, wide_index=False, publish=True, write=True),
    ),
}  # fmt: skip


def inputs_of(name: str, operation: str, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    op = OPERATIONS[operation]
    return (x,) * op.inputs + (x.sum(GEOMETRIES[name][1]),) * op.numbers


def call_of(name: str, operation: str, x: torch.Tensor) -> plan.Plan:
    """A call that launches this geometry once."""
    shape, dim, _, how = GEOMETRIES[name]
    op = OPERATIONS[operation]
    inputs = inputs_of(name, operation, x)
    if how is None:
        return probe.plan_of(operation, inputs, dim)
    choice = Choice(name, how, num_warps=1, chunk_cols=shape[dim])
    out = x.sum(dim) if op.reduces else x
    spread = [
        each if each.shape == shape else each.unsqueeze(dim).expand(shape)
        for each in (*inputs, out)
    ]
    outer, cols, *inner = zip(*(each.stride() for each in spread))
    across = (cols, (shape[2], *inner[0])) if inner else ()
    launches, workspace = plan.launches_of(op, choice, (shape[0], *outer), shape[1], *across)
    return plan.Plan(launches, x, [(out.shape, out.dtype)], workspace)


def stated(name: str) -> tuple[str, str]:
    """(forward, backward) of a row of the table in the package's docstring."""
    (row,) = (
        line
        for line in triton_softmax.kernels.__doc__.splitlines()
        if line.startswith(f"| `{name}`")
    )
    forward, backward = row.split("|")[-3:-1]
    return forward.strip(), backward.strip()


@pytest.mark.skipif(not INTERPRETED, reason="only interpreted kernels are counted")
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("name", GEOMETRIES)
def test_each_geometry_moves_what_the_table_says(name, operation):
    shape, dim, words, _ = GEOMETRIES[name]
    op = OPERATIONS[operation]
    x = torch.rand(shape, device=DEVICE)
    call = call_of(name, operation, x)
    assert launched(call) == (f"{name}_kernel",)
    inputs = inputs_of(name, operation, x)
    with traffic.count_elements() as count:
        call(*inputs)
    n_rows, n_cols = x.numel() // shape[dim], shape[dim]
    # Who reduces writes a number for each row, once it has read the row.
    reads = 1 if op.reduces else op.inputs * (2 if name == "two_pass" else 1)
    words += op.numbers
    zeros = call.workspace.n_words if call.workspace is not None and call.workspace.zeroed else 0
    assert count.reads == reads * n_rows * n_cols + words * n_rows
    assert count.writes == (n_rows if op.reduces else n_rows * n_cols) + zeros
    if not op.reduces:
        assert stated(name)[op.inputs - 1] == f"{reads + 1}MN"


def test_every_kernel_is_counted():
    """A module of a kernel is a geometry, or one of those whose rows are not of one length."""
    modules = {path.stem for path in Path(triton_softmax.kernels.__file__).parent.glob("[a-z]*.py")}
    others = {"row_scalars", "modified_rows", "tile", "token_rows"}
    assert modules - others == {*GEOMETRIES} - {*TILE_KERNELS}


def test_the_tables_name_every_rung():
    named = (*RUNGS, *KERNELS)
    assert tuple(traffic.FORWARD) == tuple(traffic.BACKWARD) == named


def test_the_table_in_the_package_docstring():
    for name in KERNELS:
        assert stated(name) == (traffic.FORWARD[name].formula, traffic.BACKWARD[name].formula)


def test_sums_and_words():
    assert traffic.FORWARD["two_loops"].elements(3, 5) == 3 * 15
    assert str(traffic.Traffic()) == "reads nothing, writes nothing"
