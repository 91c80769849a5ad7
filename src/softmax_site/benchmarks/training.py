"""Steps of training with the library and without."""

from __future__ import annotations

from pathlib import Path

from softmax_bench.schema import read_json
from softmax_site.benchmarks.page import NOT_MEASURED, Fragment, block, note, runs_words
from softmax_site.benchmarks.tables import table

FILE = "docs/benchmarks/training.json"
HEAD = ("step", "with", "ms", "time", "GB", "memory")
"""The most memory of a step; the ratios are to transformers or TRL alone."""
NAMES = {
    "liger": "Liger",
    "triton_softmax": "ours",
    "triton_softmax, linear loss": "ours, linear loss",
    "liger's layers, triton_softmax": "ours, Liger's layers",
    "liger's layers, triton_softmax, linear loss": "ours, linear loss, Liger's layers",
    "torch_operators": "ours, by torch_operators",
    "trl": "TRL",
}


def steps(root: Path) -> Fragment:
    """A line for each model, attention and provider: the time of a step and its most memory."""
    if not (root / FILE).is_file():
        return NOT_MEASURED
    data = read_json(root / FILE)
    env, body = data["environment"], []
    first: dict = {}
    for row in data["rows"]:
        first = row if row["provider"] in ("transformers", "trl") else first
        sequences, tokens = row["batch"]
        step = f"{row['model']}, {sequences} × {tokens:,} tokens, {row['attention']}"
        step += f", {what}" if (what := row.get("of", "loss")) != "loss" else ""
        line = [step, NAMES.get(row["provider"], row["provider"])]
        for value, before in (
            (row["ms"]["p50"], first["ms"]["p50"]),
            (row["bytes"] / 1e9, first["bytes"] / 1e9),
        ):
            ratio = f"× {value / before:.2f}" if row is not first and before else "–"
            line += [f"{value:.1f}", ratio]  # a CPU's memory is unknown
        body.append(line)
    of_run = note(*runs_words([env]), f"transformers {env['transformers']}")
    return Fragment(f"{block(table(HEAD, body))}\n\n{of_run}")
