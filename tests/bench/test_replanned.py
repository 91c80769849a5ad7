"""Cells whose constants have changed since they were measured, and no others, are left out."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from softmax_bench import replanned, sources
from softmax_site.benchmarks.data import newest
from triton_softmax.choose import Device, split_rows

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "docs/benchmarks/data/h200.json"
WRITTEN = ROOT / replanned.FILE


def row(shape, provider="triton_softmax", **more):
    return {
        "case": "case", "provider": provider, "op": "softmax", "direction": "forward",
        "dtype": "bfloat16", "shape": list(shape), "dim": -1, "layout": "contiguous",
        "source": "a", "status": "ok", "us": {"p50": 1.0}, "samples": 9, **more,
    }  # fmt: skip


def test_a_plan_follows_its_constants(monkeypatch):
    device = Device(132, nvidia=True)
    cell = row((885, 151_643))
    before = replanned.plans_of(cell, device)
    assert before[0][0] == "split_rows_kernel" and before == replanned.plans_of(cell, device)
    original = split_rows.candidates_for_many_rows
    monkeypatch.setattr(
        split_rows,
        "candidates_for_many_rows",
        lambda *facts: [(n, c._replace(registers=c.registers + 8)) for n, c in original(*facts)],
    )
    assert replanned.plans_of(cell, device) != before
    short = row((4096, 1000))
    assert replanned.plans_of(short, device)[0][0] == "packed_rows_kernel"


def test_only_such_cells_are_left_out_and_only_of_these_sources():
    data = {
        "environments": {"run1": {"sources": {"triton_softmax": "a", "naive": "n"}}},
        "rows": [
            row((1, 2)), row((1, 2), "torch", source=None), row((1, 3), case="other"),
            row((1, 3), "packed_rows", case="other"), row((1, 3), "torch", case="other"),
        ],
    }  # fmt: skip
    found = {
        "sources": {"triton_softmax": {"measured": "a", "now": "b"}},
        "cells": ["case triton_softmax", "other packed_rows"],
    }
    after = replanned.applied(data, found, {"triton_softmax": "b"})
    assert after["environments"]["run1"]["sources"] == {"triton_softmax": "b", "naive": "n"}
    kept = [(each["case"], each["provider"], each["source"]) for each in after["rows"]]
    assert kept == [("other", "triton_softmax", "b"), ("other", "torch", "b")]
    assert replanned.applied(data, found, {"triton_softmax": "c"}) is data


@pytest.mark.skipif(not WRITTEN.is_file(), reason="nothing has changed since the measurement")
def test_what_is_written_down_is_what_a_comparison_finds():
    _, data = newest(ROOT)
    shown = {f"{r['case']} {r['provider']}" for r in data["rows"]}
    for written in json.loads(WRITTEN.read_text(encoding="utf-8")):
        for name, pair in written["sources"].items():
            assert pair["now"] == sources.hash_of(name)
        assert shown and not shown & {*written["cells"]}
        found = f"{written['base']}^{{commit}}"
        known = subprocess.run(["git", "cat-file", "-e", found], cwd=ROOT, capture_output=True)
        if known.returncode:
            pytest.skip("the commit that was measured is not in this clone")
        assert replanned.compare(written["base"], ROOT, DATA) == written
