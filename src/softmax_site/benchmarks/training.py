"""Steps of training with the library and without."""

from __future__ import annotations

from pathlib import Path

from softmax_bench.schema import read_json
from softmax_site.benchmarks.page import NOT_MEASURED, Fragment, block, note, runs_words
from softmax_site.benchmarks.tables import table

FILE = "docs/benchmarks/training.json"
HEAD = ("step", "ms", "ms with ours", "time", "GB", "GB with ours", "memory")
"""The most memory of a step; the ratios are ours over theirs."""


def steps(root: Path) -> Fragment:
    """A line for each model and attention: the time of a step and its most memory, with ratios."""
    if not (root / FILE).is_file():
        return NOT_MEASURED
    data = read_json(root / FILE)
    rows, env = data["rows"], data["environment"]
    body = []
    for theirs, ours in zip(rows[::2], rows[1::2]):
        sequences, tokens = theirs["batch"]
        line = [f"{theirs['model']}, {sequences} × {tokens:,} tokens, {theirs['attention']}"]
        for before, after in (
            (theirs["ms"]["p50"], ours["ms"]["p50"]),
            (theirs["bytes"] / 1e9, ours["bytes"] / 1e9),
        ):
            line += [f"{before:.1f}", f"{after:.1f}"]
            line.append(f"× {after / before:.2f}" if before else "–")  # memory of a CPU
        body.append(line)
    of_run = note(*runs_words([env]), f"transformers {env['transformers']}")
    return Fragment(f"{block(table(HEAD, body))}\n\n{of_run}")
