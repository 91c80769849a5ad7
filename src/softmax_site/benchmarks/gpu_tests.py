"""The last run of the GPU tests, for the page on the environment."""

from __future__ import annotations

import json
from pathlib import Path

from softmax_bench.gpu_report import sentence
from softmax_site.benchmarks.page import Fragment, Measured

REPORT = "docs/benchmarks/gpu-tests.json"


def fragment(root: Path) -> Fragment:
    """The run in a sentence and by test module, with what the code was then."""
    path = root / REPORT
    if not path.is_file():
        return Fragment("No run of the GPU tests is recorded yet.\n")
    data = json.loads(path.read_text(encoding="utf-8"))
    return Fragment(text(data), Measured(data["utc"], data["sources"]))


def text(data: dict) -> str:
    """The run as Markdown."""
    lines = [
        sentence(data),
        "",
        "| test module | passed | failed | skipped |",
        "| :-- | --: | --: | --: |",
    ]
    lines += [
        f"| `{name}` | " + " | ".join(map(str, numbers)) + " |"
        for name, numbers in data["modules"].items()
    ]
    if data["failures"]:
        lines += ["", "Failed:", ""] + [f"* `{name}`" for name in data["failures"]]
    return "\n".join(lines) + "\n"
