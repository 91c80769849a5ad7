"""The file of runs over several GPUs; what measures them needs these."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch

import ranks as pool
from examples.symmetric_memory import Peers, softmax
from softmax_bench import ranks
from softmax_bench.launches import RANKS
from softmax_bench.results import Run
from softmax_bench.schema import ROOT, add_run

FILE = ROOT / RANKS


def test_a_run_takes_the_place_of_one_over_as_many_ranks(tmp_path):
    published, path = json.loads(FILE.read_text("utf8")), tmp_path / "ranks.json"
    for run in published["runs"]:
        add_run(path, run, "ranks", ranks.FORMAT)
    assert json.loads(path.read_text("utf8")) == published
    again = published["runs"][0] | {"commit": "another"}
    add_run(path, again, "ranks", ranks.FORMAT)
    assert json.loads(path.read_text("utf8"))["runs"] == [*published["runs"][1:], again]


def test_a_run_goes_on_with_what_is_of_the_same_commit(tmp_path):
    """Row by row, on disk after each; a run of another commit takes its place."""
    path = tmp_path / "ranks.json"
    first = Run(path, ranks.FORMAT, "ranks", "one", ranks=2)
    assert first.lacks(rows=512)
    first.add([{"call": "copy", "rows": 512, "us": 1.0}])
    again = Run(path, ranks.FORMAT, "ranks", "one", ranks=2)
    assert not again.lacks(rows=512) and again.lacks(rows=512, call="softmax")
    again.add([{"call": "copy", "rows": 2048, "us": 2.0}])
    beside = Run(path, ranks.FORMAT, "ranks", "one", ranks=4)
    assert beside.lacks(rows=512)
    beside.add([{"call": "copy", "rows": 512, "us": 3.0}])
    runs = json.loads(path.read_text("utf8"))["runs"]
    assert [(run["ranks"], len(run["rows"])) for run in runs] == [(2, 2), (4, 1)]
    other = Run(path, ranks.FORMAT, "ranks", "two", ranks=2)
    assert other.lacks(rows=512)
    other.add([{"call": "copy", "rows": 512, "us": 4.0}])
    runs = json.loads(path.read_text("utf8"))["runs"]
    assert [(run["commit"], run["ranks"], len(run["rows"])) for run in runs] == [
        ("one", 4, 1),
        ("two", 2, 1),
    ]


def test_matrices_are_cut_without_a_rest():
    """Those that ranks share are measured over one, and over so many that a part keeps columns."""
    for world in (1, 2, 4, 8):
        found = ranks.matrices(world)
        shared = [each for each in found if "total" in each]
        assert [(each["rows"], each["columns"] * world) for each in shared] == [*ranks.SHARED]
        growing = [(each["rows"], each["columns"]) for each in found if "total" not in each]
        assert growing == [(n_rows, 65_536) for n_rows in ranks.ROWS if world > 1]


def test_ranks_that_see_no_memory_of_others_say_so_each_time(monkeypatch):
    monkeypatch.setattr(torch.distributed, "barrier", lambda group: None)
    peers = Peers(SimpleNamespace(size=lambda: 2, rank=lambda: 0))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="from GPU to GPU, and there is none"):
            softmax(torch.randn(2, 32), peers)


def test_the_formula_of_megatron_is_the_loss():
    """Over two ranks, with its gradient; so it does the work that it is timed for."""
    with pool.Ranks(2, "bench_on_ranks") as both:
        both.ask("formula")
