"""Steps of training: measured small on a CPU, and shown on their page."""

import pytest

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


def test_without_data_the_page_says_so(tmp_path):
    assert "Not measured" in steps(tmp_path).text
