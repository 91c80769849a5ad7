"""The counts on the page of verification come from a run."""

import json
import re

import pytest

import counting
from site_build import ROOT
from softmax_site.benchmarks import quoted
from softmax_site.benchmarks.values import filled

PAGE = (ROOT / "docs/reference/verified.md").read_text("utf8")


def test_every_kind_of_check_is_in_the_table():
    kinds = {*counting.FOLDERS.values(), "browser", "sessions", "programs", "docstrings"}
    assert kinds == set(re.findall(r"checks\[kinds\]\[(\w+)\]\[passed\]", PAGE))
    assert "gpu_tests[counts][passed]" in PAGE  # which a run without a GPU skips


def test_the_table_adds_up():
    names = quoted.load(ROOT)
    kinds = names["checks"]["kinds"]
    assert names["checks"]["passed"] == sum(each["passed"] for each in kinds.values())
    text = filled("{{ checks[kinds][gpu][skipped] }} {{ checks[utc]:.10 }}", names, bare=True)
    assert text == f"{kinds['gpu']['skipped']:,} {names['checks']['utc'][:10]}"


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
    # What the plugin of Hypothesis imports takes longer than the run.
    arguments = ["-p", "no:hypothesispytest", *(["-k", "passes"] if chosen else [])]
    result = pytester.inline_run(*arguments, plugins=[counting])
    assert result.ret == 0 and written.exists() is not chosen
    if not chosen:
        counts = json.loads(written.read_text())
        assert (counts["passed"], counts["skipped"]) == (1, 1)
        assert counts["kinds"] == {
            "browser": {"passed": 0, "skipped": 1},
            "site": {"passed": 1, "skipped": 0},
        }


def test_every_file_that_the_page_names_exists():
    page = (ROOT / "docs/reference/what-checks-what.md").read_text("utf8")
    named = set(re.findall(r"`(tests/[\w/]+\.py)`", page))
    assert len(named) > 10
    assert not [path for path in named if not (ROOT / path).is_file()]
