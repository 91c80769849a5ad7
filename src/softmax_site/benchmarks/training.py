"""Steps of training with the library and without."""

from __future__ import annotations

from pathlib import Path

from softmax_bench.schema import read_json
from softmax_site.benchmarks.page import NOT_MEASURED, Fragment, block, note, runs_words
from softmax_site.benchmarks.tables import table

FILE = "docs/benchmarks/training.json"
HEAD = ("", "step, ms", "step with ours, ms", "most memory, GB", "most memory with ours, GB")


def steps(root: Path) -> Fragment:
    """A line for each model and attention: the time of a step and its most memory."""
    if not (root / FILE).is_file():
        return NOT_MEASURED
    data = read_json(root / FILE)
    rows, env = data["rows"], data["environment"]
    body = []
    for theirs, ours in zip(rows[::2], rows[1::2]):
        sequences, tokens = theirs["batch"]
        both = [[f"{row['ms']['p50']:.1f}", f"{row['bytes'] / 1e9:.1f}"] for row in (theirs, ours)]
        what = f"{theirs['model']}, {sequences} × {tokens:,} tokens, {theirs['attention']}"
        body.append([what, both[0][0], both[1][0], both[0][1], both[1][1]])
    of_run = note(*runs_words([env]), f"transformers {env['transformers']}")
    return Fragment(f"{block(table(HEAD, body))}\n\n{of_run}")
