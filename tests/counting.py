"""Count what a run has checked, for the page that says how the site is verified.

A run of everything on a CPU in which nothing fails leaves `docs/reference/checks.json`: when it
was, with which versions, how many checks of each kind passed, and how many were skipped. The sums
leave out those that need a GPU. `docs/reference/verified.md` quotes it.
"""

import json
from collections import Counter
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import pytest
import torch
from _pytest.doctest import DoctestItem
from pytest_markdown_docs.plugin import MarkdownInlinePythonItem

COUNTS = Path(__file__).resolve().parents[1] / "docs/reference/checks.json"
FOLDERS = {
    "tests/site/test_equations.py": "equations",
    "tests/site/test_corrections.py": "corrections",
    "tests/site/test_mutations.py": "mistakes",
    "tests/library/kernels/test_compile.py": "compiled",
    "tests/library/test_matrix.py": "callers",
    "tests/library/kernels/": "kernels",
    "tests/library/": "library",
    "tests/bench/": "benchmarks",
    "tests/": "site",
}
"""The kind of a test by where it is; the first that fits."""


def kind_of(item: pytest.Item) -> str:
    """What an item checks, in one word of the table."""
    for marker in ("gpu", "browser"):
        if item.get_closest_marker(marker):
            return marker
    if isinstance(item, MarkdownInlinePythonItem):
        return "sessions" if item.runner_name == "Session" else "programs"
    if isinstance(item, DoctestItem):
        return "docstrings"
    return next(kind for start, kind in FOLDERS.items() if item.nodeid.startswith(start))


def is_whole(config: pytest.Config) -> bool:
    """Whether a run takes everything that there is, on a CPU."""
    option = config.option
    chosen = option.keyword or option.markexpr or option.deselect or option.collectonly
    paths = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    return paths and not chosen and not torch.cuda.is_available()


passed: Counter[str] = Counter()
skipped: Counter[str] = Counter()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Send the kind along with each report, to whichever process counts."""
    for item in items:
        item.user_properties.append(("kind", kind_of(item)))


def pytest_runtest_logreport(report):
    kind = dict(report.user_properties).get("kind")
    if kind and report.skipped:
        skipped[kind] += 1
    elif kind and report.when == "call" and report.passed:
        passed[kind] += 1


def pytest_sessionfinish(session, exitstatus):
    worker = hasattr(session.config, "workerinput")
    if not worker and exitstatus == pytest.ExitCode.OK and is_whole(session.config):
        kinds = sorted({*passed, *skipped})
        counts = {
            "utc": f"{datetime.now(UTC):%Y-%m-%dT%H:%M}Z",
            "torch": torch.__version__.partition("+")[0],
            "triton": metadata.version("triton"),
            "passed": passed.total(),
            "skipped": skipped.total() - skipped["gpu"],
            "kinds": {kind: {"passed": passed[kind], "skipped": skipped[kind]} for kind in kinds},
        }
        COUNTS.write_text(json.dumps(counts, indent=1) + "\n", "utf8")
