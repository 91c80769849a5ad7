"""The suite `random`: what a seed draws, and how the terminal sums it up."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from made_data import row, turns
from softmax_bench import report
from softmax_bench.__main__ import main
from softmax_bench.cases import select
from softmax_bench.launches import DATA, read_rows
from softmax_bench.random_shapes import CELLS, DIVISORS, ELEMENTS, LENGTHS, draw, layout_of, pitch
from softmax_bench.report import timed
from softmax_bench.roster import CHOOSER
from softmax_bench.schema import ROOT

SEEDS = (0, 1, 987654)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_draws_every_kind_of_cell(seed):
    found = draw(seed)
    assert len({case.id for case in found}) == len(found) == CELLS >= 300
    assert all(f"random/seed{seed}/" in case.id for case in found)
    for case in found:
        assert LENGTHS[0] <= case.n_cols <= LENGTHS[1]
        assert ELEMENTS[0] <= case.elements <= ELEMENTS[1]
        if case.layout == "padded":
            assert case.n_rows * pitch(case.n_cols) <= ELEMENTS[1]
    kinds = Counter(math.gcd(case.n_cols, 128) for case in found)
    assert all(kinds[kind] > CELLS / 10 for kind in DIVISORS)
    for name in ("dtype", "op", "direction"):
        assert min(Counter(getattr(case, name) for case in found).values()) > CELLS / 12
    shapes = {(len(case.shape), case.dim) for case in found}
    assert {(2, -1), (4, -1), (2, 0), (3, 1), (4, 1), (4, 2)} <= shapes
    assert {case.layout for case in found} == {"contiguous", "padded"}


def test_lengths_are_spread_evenly_on_a_logarithmic_scale():
    octaves = Counter(min(21, int(math.log2(case.n_cols))) for case in draw(5))
    assert set(octaves) == set(range(1, 22))
    assert max(octaves.values()) < 3 * min(octaves.values())


def test_only_who_offers_a_cell_is_asked_for_it():
    for case in draw(2):
        narrow = case.op != "softmax" or case.dim != -1
        assert narrow != ("quack" in case.providers) and narrow != ("liger" in case.providers)
        assert (case.op == "logsumexp") != ("flag_gems" in case.providers)
        assert {"copy", "triton_softmax", "torch"} <= set(case.providers)


def test_the_command_draws_the_published_cells_or_those_of_a_seed(capsys):
    of_seven = [case.id for case in draw(7)]
    assert select(["random/*"], seed=7) == draw(7)
    for options, drawn in (([], draw()), (["--seed", "7"], draw(7))):
        assert main(["list", "--cases", "random/*", *options]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines] == [case.id for case in drawn]
    some = ",".join(of_seven[3:5])
    assert main(["list", "--seed", "7", "--cases", some]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


CUT_OFF = {"random/seed30834/softmax/forward/float16/339x227350"}
"""What was being measured when a machine's time was over: what stands is not chosen."""


def test_the_seed_is_that_of_the_published_cells():
    published = {row["case"] for row in read_rows(ROOT / DATA) if row["suite"] == "random"}
    assert published == {case.id for case in draw()} - CUT_OFF


def test_the_summary_adds_up():
    cases = draw(4)[:40]
    rows = [row(case, name) for case in cases for name in case.providers]
    lines = [line.split(", ") for line in report.summary(rows).splitlines()]
    of_suite = [line for line in lines if line[0] == "random"]
    assert sum(int(line[-1].split()[1]) for line in of_suite) == 40
    for each in filter(timed, rows):
        us = 1.0 if each["provider"] == CHOOSER else 2.0
        each |= {"us": {"p50": us}, "us_turns": turns(us)}
    assert "from paired turns: 40 ahead, 0 level, 0 behind" in report.summary(rows)
    layouts = {"last dimension", "other dimension", "rows with gaps"}
    assert {layout_of(each) for each in rows} == layouts
