"""The counts on the page of verification come from a run."""

from __future__ import annotations

import json
import re

import pytest

import counting
from site_build import ROOT
from softmax_site.benchmarks import bookkeeping


def test_every_kind_of_check_has_words():
    kinds = {*counting.FOLDERS.values(), "gpu", "browser", "sessions", "programs", "docstrings"}
    assert kinds == set(bookkeeping.WORDS)


def test_without_a_run_the_page_says_so(tmp_path):
    assert "No whole run" in bookkeeping.checks(tmp_path)


def test_the_table_adds_up(tmp_path):
    path = tmp_path / bookkeeping.COUNTS
    path.parent.mkdir(parents=True)
    counts = {
        "equations": {"passed": 1200, "skipped": 0},
        "gpu": {"passed": 0, "skipped": 7},
    }
    path.write_text(json.dumps(counts))
    text = bookkeeping.checks(tmp_path)
    assert "passed 1,200 checks" in text and "| 1,200 | – | equations" in text
    assert "| 0 | 7 | tests that need a GPU |" in text


RUN = """
import pytest

def test_passes(): pass

@pytest.mark.browser
def test_is_skipped(): pytest.skip("no browser")
"""


@pytest.mark.parametrize("chosen", [False, True])
def test_a_whole_run_writes_what_passed(pytester, monkeypatch, chosen):
    """And a part of one writes nothing."""
    written = pytester.path / "checks.json"
    monkeypatch.setattr(counting, "COUNTS", written)
    monkeypatch.setattr(counting, "passed", type(counting.passed)())
    monkeypatch.setattr(counting, "skipped", type(counting.skipped)())
    monkeypatch.setattr(counting.torch.cuda, "is_available", lambda: False)
    pytester.makeini("[pytest]\ntestpaths = tests\nmarkers =\n  browser:\n  gpu:\n")
    pytester.mkdir("tests").joinpath("test_one.py").write_text(RUN)
    result = pytester.inline_run(*(["-k", "passes"] if chosen else []), plugins=[counting])
    assert result.ret == 0 and written.exists() is not chosen
    if not chosen:
        assert json.loads(written.read_text()) == {
            "browser": {"passed": 0, "skipped": 1},
            "site": {"passed": 1, "skipped": 0},
        }


def test_every_file_that_the_page_names_exists():
    page = (ROOT / "docs/reference/verified.md").read_text("utf8")
    named = set(re.findall(r"`(tests/[\w/]+\.py)`", page))
    assert len(named) > 10
    assert not [path for path in named if not (ROOT / path).is_file()]
