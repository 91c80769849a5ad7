"""How near the constants come to the best that was found, on seeds they were chosen by and on
others."""

from __future__ import annotations

from pathlib import Path
from statistics import geometric_mean

from softmax_bench import tuned
from softmax_site.benchmarks.page import NOT_MEASURED, Fragment, block, note, runs_words
from softmax_site.benchmarks.tables import table
from softmax_site.benchmarks.words import percent

NEAR = 0.9
"""The share of the best found from which a cell counts as near it."""

HEAD = [f"{who}: {what}" for who in ("constants", "model") for what in ("mean", "worst", "near")]


def shares(cells: list[dict], chooser: str) -> list[float]:
    """The share of the best speed that a chooser reaches, in each cell where it was measured."""
    found = [tuned.share(cell["timed"], cell[chooser]) for cell in cells]
    return [share for share in found if share is not None]


def reached(cells: list[dict]) -> list[str]:
    """What the constants and the model reach: geometric mean, worst, and how often they are near
    the best."""
    out = []
    for chooser in tuned.CHOOSERS:
        found = shares(cells, chooser)
        near = sum(share >= NEAR for share in found) / max(1, len(found))
        means = found and [f"{geometric_mean(found):.3f}", f"{min(found):.2f}", percent(near)]
        out += means or ["–"] * 3
    return out


def runs_table(runs: list[dict]) -> str:
    """A line for each run: what was tried, and what was reached."""
    body = []
    for run in runs:
        cells = run["cells"]
        tried = f"{sum(len(cell['timed']) for cell in cells) / len(cells):.0f}"
        what = [f"seed {run['seed']}", "no" if run["unseen"] else "yes", str(len(cells)), tried]
        if run["seed"] == tuned.LISTED:
            what[0], what[3] = "a list of shapes", f"fastest {tuned.KEPT} of all"
        timed = " and ".join(str(len(shares(cells, who))) for who in tuned.CHOOSERS)
        body.append([*what, timed, *reached(cells)])
    head = ["cells of", "learnt from", "cells", "choices in each", "timed for both"]
    return table([*head, *HEAD], body)


def choices(root: Path) -> Fragment:
    """What was reached of the choices that were tried."""
    path = root / tuned.FILE
    runs = tuned.read(path) if path.is_file() else []
    if not runs:
        return NOT_MEASURED
    told = note(*runs_words(run["environment"] for run in runs))
    return Fragment(f"{block(runs_table(runs))}\n\n{told}")
