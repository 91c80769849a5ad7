"""Steps of training with the library and without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace as Names

from softmax_site.benchmarks.data import read
from softmax_site.benchmarks.page import NOT_MEASURED, Fragment, Measured, block, note, runs_words
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
OF = {"loss": "", "checkpointed loss": ", gradient checkpointing"}


def beside_the_first(rows: list[dict]) -> Iterator[tuple[dict, float | None, float | None]]:
    """Each row with its time and its memory as ratios to the row of transformers or TRL before it,
    which has none; a CPU's memory is unknown."""
    first: dict = {}
    for row in rows:
        first = row if row["provider"] in ("transformers", "trl") else first
        time = row["ms"]["p50"] / first["ms"]["p50"]
        memory = row["bytes"] / first["bytes"] if first["bytes"] else None
        yield (row, None, None) if row is first else (row, time, memory)


def quoted(root: Path) -> dict[str, dict[str, Names]]:
    """Time and ratios by model, attention and what a step is of; then by provider, or `fastest`."""
    found: dict[str, dict[str, Names]] = {}
    for row, time, memory in beside_the_first(read(root, FILE, {"rows": []})["rows"]):
        step = f"{row['model'].split()[0]} {row['attention']} {row['of']}".replace(" ", "_")
        provider = row["provider"].replace(", ", "_").replace(" ", "_")
        found.setdefault(step, {})[provider] = Names(ms=row["ms"]["p50"], time=time, memory=memory)
    for each in found.values():
        each["fastest"] = min(each.values(), key=lambda provider: provider.ms)
    return found


def steps(root: Path) -> Fragment:
    """A line for each model, attention and provider: the time of a step and its most memory."""
    data = read(root, FILE)
    if data is None:
        return NOT_MEASURED
    env, body = data["environment"], []
    for row, *ratios in beside_the_first(data["rows"]):
        sequences, tokens = row["batch"]
        step = f"{row['model']}, {sequences} × {tokens:,} tokens, {row['attention']}"
        step += OF.get(row["of"], f", {row['of']}")
        line = [step if ratios[0] is None else "", NAMES.get(row["provider"], row["provider"])]
        for value, ratio in zip((row["ms"]["p50"], row["bytes"] / 1e9), ratios, strict=True):
            line += [f"{value:.1f}", f"× {ratio:.2f}" if ratio else "–"]
        body.append(line)
    of_run = note(*runs_words([env]), f"transformers {env['transformers']}")
    return Fragment(f"{block(table(HEAD, body, left=2))}\n\n{of_run}", Measured(env["started"]))
