"""Steps of training: measured small on a CPU, and shown on their page."""

import re

import pytest

from site_build import ROOT
from softmax_bench import training
from softmax_bench.__main__ import main
from softmax_bench.schema import read_json
from softmax_site.benchmarks.training import FILE, steps

pytest.importorskip("transformers")


def test_a_step_is_measured_with_the_library_and_without(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "CASES", training.CASES[1:2])
    monkeypatch.setattr(training, "WARM", 0)
    monkeypatch.setattr(training, "ROUNDS", 1)
    out = tmp_path / FILE
    assert main(["train", "--device", "cpu", "--out", str(out), "--commit", "0" * 40]) == 0
    theirs, ours = read_json(out)["rows"]
    assert (theirs["provider"], ours["provider"]) == training.PROVIDERS
    assert ours["calls"] == {"softmax": 1, "cross_entropy": 1}
    assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-3)
    assert "Llama 3.2 1B, 2 × 32 tokens, eager" in steps(tmp_path).text


def test_the_page_has_ratios():
    theirs, ours = read_json(ROOT / FILE)["rows"][:2]
    text = re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", steps(ROOT).text))
    for before, after in (
        (theirs["ms"]["p50"], ours["ms"]["p50"]),
        (theirs["bytes"] / 1e9, ours["bytes"] / 1e9),
    ):
        assert f"{before:.1f} {after:.1f} × {after / before:.2f} " in text


def test_without_data_the_page_says_so(tmp_path):
    assert "Not measured" in steps(tmp_path).text
