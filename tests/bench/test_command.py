"""The command line when something is missing, broken or stopped: one clear line, an exit status
that says so, and nothing lost."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from softmax_bench import runner, schema
from softmax_bench.__main__ import main
from softmax_bench.schema import ROOT

CPU = ["--device", "cpu", "--processes", "0"]
READS = {
    "compare": ["compare", "other.json"],
    "tune": ["tune", "--report"],
    "gpu-report": ["gpu-report", "--out", "report.json", "--junitxml"],
    "run": ["run", *CPU, "--cases", "host_time/*", "--out"],
    "compile": ["compile-everywhere", "--gpus", "sm_90", "--out"],
}
"""Commands, each to be followed by a file that it reads."""


@pytest.mark.parametrize("text", [None, '{"format": "tri', "[1]", '{"format": "another/1"}'])
@pytest.mark.parametrize("name", READS)
def test_a_file_that_is_missing_half_written_or_foreign(name, text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "data.json"
    if text is not None:
        path.write_text(text)
    elif name in ("run", "compile"):
        path.mkdir()  # they go on with a file, or start one
    assert main([*READS[name], str(path)]) == 2
    said = capsys.readouterr().err
    assert ("data.json" in said or "other.json" in said) and len(said) < 1000, said
    assert text is None or path.read_text() == text


def test_no_gpu_is_said_before_anything_is_done(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name in ("run", "tune"):
        assert main([name, "--out", str(tmp_path / "data.json")]) == 2
        assert "no CUDA device" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["run", "tune"])
def test_an_output_that_cannot_be_written_is_noticed_before_the_measurement(
    name, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(runner.Runner, "_case", lambda *_: pytest.fail("measured"))
    (tmp_path / "file").write_text("")
    assert main([name, *CPU, "--out", str(tmp_path / "file" / "data.json")]) == 2
    assert "file" in capsys.readouterr().err


def test_a_name_that_does_not_exist(capsys):
    assert main(["list", "--cases", "forward/*,nothing/*"]) == 2
    assert "no case fits nothing/*" in capsys.readouterr().err
    assert main(["list", "--providers", "nobody"]) == 2
    assert "no such provider: nobody" in capsys.readouterr().err
    assert main(["replay", "no-commit"]) == 2
    assert "no-commit" in capsys.readouterr().err


@pytest.mark.parametrize("measured", [0, 3])
def test_who_stops_a_run_keeps_what_was_measured(measured, tmp_path, monkeypatch, capsys):
    out, calls, measure = tmp_path / "data.json", [], runner.Runner._case

    def case(self, case, names):
        calls.append(case)
        if len(calls) > measured:
            raise KeyboardInterrupt
        return measure(self, case, names)

    monkeypatch.setattr(runner.Runner, "_case", case)
    arguments = ["run", *CPU, "--cases", "batch/*", "--providers", "torch", "--out", str(out)]
    assert main(arguments) == 130
    assert f"stopped; what was measured is in {out}" in capsys.readouterr().err
    assert len(schema.load(out)["rows"]) == 2 * measured


def test_a_reader_that_has_enough_ends_a_list_quietly():
    command = f"{sys.executable} -m softmax_bench list | head -1"
    run = subprocess.run(
        command,
        shell=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    )
    assert len(run.stdout.splitlines()) == 1 and not run.stderr
