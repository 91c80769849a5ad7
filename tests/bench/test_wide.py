"""Choices from everywhere: possible ones, always the same, and few enough to be kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from softmax_bench import candidates, tune, tuned, wide
from softmax_bench.case import Case
from triton_softmax.choose import Device

ROOT = Path(__file__).resolve().parents[2]
H200 = Device(132, nvidia=True)
SHAPES = ROOT / "docs/benchmarks/tuning-shapes.txt"


def problem(name: str):
    return candidates.problem_of(next(case for case in named() if case.id.endswith(name)), H200)


def named() -> list[Case]:
    return tune.listed(SHAPES)


def test_named_shapes_are_those_of_the_committed_measurement():
    run = next(run for run in tune.load(ROOT / tuned.FILE) if run.seed == tuned.LISTED)
    assert [cell.case for cell in run.cells] == named() and not run.unseen


@pytest.mark.parametrize(
    "name, kernels",
    [
        ("backward/float32/20000x104", {"packed_rows"}),
        ("forward/bfloat16/60000x77", {"packed_rows", "aligned_rows"}),
        ("forward/bfloat16/4000x18560", {"packed_rows", "split_rows"}),
        ("backward/float32/7500x4500/dim0", {"split_strided", "strided_loops"}),
        ("forward/bfloat16/1x800x7x7/dim1", {"strided", "split_strided", "strided_loops"}),
    ],
)
def test_choices_come_from_everywhere_and_hold_what_they_are_for(name, kernels):
    facing = problem(name)
    found = wide.drawn(facing, 10**6)
    assert {choice.kernel for choice in found} == kernels
    assert len(set(found)) == len(found) > 50
    length = facing.facts.n_cols
    for choice in found:
        how = choice.how
        lanes = getattr(how, "block_cols", 0) or how.block
        held = max(choice.n_chunks * (choice.chunk_cols or lanes), lanes * getattr(how, "tiles", 1))
        edges = 2 * how.vector if choice.kernel == "aligned_rows" else 0
        assert held + edges >= length, choice
    few = wide.drawn(facing, 20)
    assert len(few) == 20 and set(few) <= set(found) and few == wide.drawn(facing, 20)


def test_a_line_that_names_no_shape_is_refused(tmp_path):
    path = tmp_path / "shapes.txt"
    path.write_text("softmax/forward/float32/3x4/padded logsumexp/forward/float16/3x4x5/dim1")
    padded, strand = tune.listed(path)
    assert (padded.layout, padded.dim, strand.dim, strand.op) == ("padded", -1, 1, "logsumexp")
    path.write_text("softmax/forward/float32")
    with pytest.raises(ValueError):
        tune.listed(path)


def test_the_fastest_choices_are_kept_and_the_chosen_one_whatever_it_takes():
    run = tune.load(ROOT / tuned.FILE)[0]
    cell = max(run.cells, key=lambda cell: len(cell.timed))
    slow = max(range(len(cell.timed)), key=lambda at: cell.timed[at].first or 0.0)
    cell = cell._replace(chosen={"library": slow, "model": None})
    after = tune.pruned(cell)
    assert len(after.timed) == tune.KEPT + 1 < len(cell.timed)
    assert after.timed[after.chosen["library"]] == cell.timed[slow]
    assert after.chosen["model"] is None and after.best == cell.best
