"""The file of runs over several GPUs; what measures them needs these."""

from __future__ import annotations

import json
from pathlib import Path

from softmax_bench import ranks
from softmax_bench.schema import add_run

FILE = Path(__file__).resolve().parents[2] / "docs/benchmarks/ranks.json"


def test_a_run_takes_the_place_of_one_over_as_many_ranks(tmp_path):
    published, path = json.loads(FILE.read_text("utf8")), tmp_path / "ranks.json"
    for run in published["runs"]:
        add_run(path, run, "ranks", ranks.FORMAT)
    assert json.loads(path.read_text("utf8")) == published
    again = published["runs"][0] | {"commit": "another"}
    add_run(path, again, "ranks", ranks.FORMAT)
    assert json.loads(path.read_text("utf8"))["runs"] == [*published["runs"][1:], again]
