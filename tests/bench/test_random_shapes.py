"""The suite `random`: what a seed draws, and how the terminal sums it up."""

from __future__ import annotations

import json
import math
from collections import Counter

import pytest

from made_data import row
from softmax_bench import __main__, report
from softmax_bench.cases import SUITES, select
from softmax_bench.random_shapes import CELLS, DIVISORS, ELEMENTS, LENGTHS, draw, layout_of, pitch
from softmax_bench.schema import FORMAT

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


def test_the_seed_is_handed_on_and_taken_up_again(tmp_path, capsys):
    assert select(["random"], seed=7) == SUITES["random"](7) == draw(7)
    out = tmp_path / "data.json"
    out.write_text(json.dumps({"format": FORMAT, "rows": [{"seed": 31}]}), encoding="utf-8")
    options = __main__.argparse.Namespace(seed=None, out=str(out))
    assert __main__._seed(options) == options.seed == 31
    assert __main__.main(["list", "--suite", "random", "--seed", "7"]) == 0
    assert draw(7)[0].id in capsys.readouterr().out


def test_cells_may_be_named_in_a_file(tmp_path, capsys):
    """To measure some again."""
    named = tmp_path / "named"
    named.write_text("\n".join(case.id for case in draw(7)[3:5]), encoding="utf-8")
    selection = ["--suite", "random", "--seed", "7", "--cases", str(named)]
    assert __main__.main(["list", *selection]) == 0
    found = [line.split()[0] for line in capsys.readouterr().out.splitlines()[:-1]]
    assert found == [case.id for case in draw(7)[3:5]]


def test_the_summary_adds_up():
    cases = draw(4)[:40]
    rows = [row(case, name) for case in cases for name in case.providers]
    text = report.summary(rows)
    assert next(line for line in text.splitlines() if line.startswith("random ")).split()[1] == "40"
    worst = text.split(f"worst {report.WORST}")[1].splitlines()[1 : 1 + report.WORST]
    assert all("random/seed4" in line for line in worst)
    assert {layout_of(each) for each in rows} == {
        "last dimension",
        "other dimension",
        "rows with gaps",
    }
