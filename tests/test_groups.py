"""Tests that belong together run on one worker, and the longest files first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import groups

ROOT = Path(__file__).resolve().parents[1]
NOTES = """
import os
import pytest

@pytest.mark.parametrize("i", range(12))
def test_which_worker(i):
    with open("workers", "a") as file:
        file.write(f"{__name__} {os.environ['PYTEST_XDIST_WORKER']}\\n")
"""


def test_a_file_stays_on_one_worker(tmp_path):
    """In a run of its own. Without the hook, or if its base class no longer asks it, both workers
    take from both files."""
    for name in ("test_one.py", "test_other.py"):
        (tmp_path / name).write_text(NOTES)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    options = ["--numprocesses=2", "--dist=loadgroup", "--no-loadscope-reorder"]
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "groups", "-p", "no:cacheprovider", *options],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        check=True,
        capture_output=True,
        timeout=120,
    )
    lines = (tmp_path / "workers").read_text().split("\n")[:-1]
    assert len(lines) == 24
    assert sorted(set(lines)) in (
        ["test_one gw0", "test_other gw1"],
        ["test_one gw1", "test_other gw0"],
    )


def test_what_runs_first_is_there():
    assert all((ROOT / file).is_file() for file in groups.LONGEST)
