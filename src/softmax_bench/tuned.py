"""The file that `softmax_bench.tune` writes, read without torch: what was found best in each cell,
and how near to it the library and its model came."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from softmax_bench.schema import DataError, read_json

FORMAT = 1

FILE = "docs/benchmarks/tuning.json"

CHOOSERS = ("library", "model")
"""Who chose, by the name under which a cell says which choice it was."""

KEPT = 10
"""How many of the fastest choices are kept of a cell of which many were tried."""

LISTED = 0
"""The seed of cells that no seed has drawn, but somebody named."""

SMALL_MICROSECONDS = 10.0
"""A tensor is small if its copy takes less."""


def read(path: Path) -> list[dict]:
    """The runs of a file, each with its cells.

    Raises:
        DataError: it is not what `tune` writes, or has a cell without positive times, or one of
            another seed.
    """
    try:
        data = read_json(path)
        if data["format"] != FORMAT:
            raise DataError(f"format {data['format']}, not {FORMAT}")
        for run in data["runs"]:
            for cell in run["cells"]:
                _check(run, cell)
        return data["runs"]
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise DataError(f"{path}: {type(error).__name__}: {error}") from error


def _check(run: dict, cell: dict) -> None:
    if cell["seed"] != run["seed"]:
        raise DataError(f"a cell of seed {cell['seed']} in a run of seed {run['seed']}")
    times = [time for each in cell["timed"] for time in each[1:] if time is not None]
    if min(cell["copy"], *times) <= 0:
        raise DataError(f"{cell['shape']}: a time that cannot be")
    for name in CHOOSERS:
        if cell[name] is not None and not (0 <= cell[name] < len(cell["timed"])):
            raise DataError(f"{cell['shape']}: no choice {cell[name]} of the {name}")
    best(cell["timed"])


def pruned(cell: dict) -> dict:
    """The cell with its fastest choices, and those of the library and the model."""
    timed = cell["timed"]
    order = sorted(range(len(timed)), key=lambda at: timed[at][1] or float("inf"))
    chosen = {who: cell[who] for who in CHOOSERS}
    kept = sorted({*order[:KEPT], *(at for at in chosen.values() if at is not None)})
    chosen = {who: None if at is None else kept.index(at) for who, at in chosen.items()}
    return {**cell, **chosen, "timed": [timed[at] for at in kept]}


def best(timed: Sequence[Sequence[Any]]) -> int:
    """Which of (choice, time, time) was fastest in the first round; what failed has no times.

    >>> best([("a", 3.0, 3.1), ("b", 2.0, 2.5), ("c", None, None)])
    1
    """
    known = [at for at, (_, first, second) in enumerate(timed) if first and second]
    if not known:
        raise DataError("a cell in which everything failed")
    return min(known, key=lambda at: timed[at][1])


def share(timed: Sequence[Sequence[Any]], at: int | None) -> float | None:
    """The speed of one of (choice, time, time) over that of the best one, both in the second round;
    None if it was not measured."""
    if at is None or not timed[at][2]:
        return None
    return timed[best(timed)][2] / timed[at][2]


def kind(cell: dict) -> tuple[str, str, str]:
    """(geometry, direction, size of the tensor) of a cell."""
    geometry = cell["timed"][0][0][0]
    if geometry in ("split_strided", "two_pass"):
        geometry = "strided"
    size = "small" if cell["copy"] < SMALL_MICROSECONDS else "large"
    return geometry, cell["direction"], size
