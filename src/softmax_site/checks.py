"""The counts of the last whole run of the tests, as a table."""

from __future__ import annotations

import json
from pathlib import Path

COUNTS = "docs/reference/checks.json"
"""Written by the run itself, see `tests/counting.py`."""

WORDS = {
    "programs": "blocks of Python on a page, each run as a program of its own",
    "sessions": "sessions with a prompt on a page, whose output is compared",
    "docstrings": "docstrings with examples, whose output is compared",
    "equations": "equations, both sides evaluated in float64",
    "corrections": "corrections of the sources, each with the mistake reproduced",
    "kernels": "tests of kernels in the interpreter: values, accesses, hostile rows",
    "compiled": "tests of kernels compiled for GPUs that are not there",
    "library": "tests of the library around the kernels",
    "benchmarks": "tests of what measures, and of the bytes that are counted",
    "site": "tests of the pages, their data and their source",
    "browser": "checks of pages in a browser",
    "mistakes": "mistakes planted, each of which has to be found",
    "gpu": "tests that need a GPU",
}
"""The kinds of check, in the order of the table."""


def table(root: Path) -> str:
    """How many checks of each kind passed, or that no run is recorded."""
    path = root / COUNTS
    if not path.is_file():
        return "No whole run is recorded for this state of the repository.\n"
    counts = json.loads(path.read_text("utf8"))
    rows = [
        f"| {counts[kind]['passed']:,} | {counts[kind]['skipped'] or '–'} | {words} |"
        for kind, words in WORDS.items()
        if kind in counts
    ]
    total = sum(each["passed"] for each in counts.values())
    return "\n".join(
        [
            f"The last run of everything on a CPU passed {total:,} checks and failed none:",
            "",
            "| passed | skipped | what |",
            "|--:|--:|---|",
            *rows,
            "",
        ]
    )
