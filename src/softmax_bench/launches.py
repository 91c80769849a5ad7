"""What a measurement is of: the launches of the call that was measured.

A cell of the data is identified by what its call launched, in order: on which grid, with which
numbers, and which machine code. Text may change as it likes. What all cells launched at the commit
that measured them, and what they launch today, is in a file that the pages read; `replay` asks
and writes it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from softmax_bench.roster import CHOOSER, RUNGS
from softmax_bench.schema import ROOT, read_json, write

FILE = "docs/benchmarks/launches.json"
DATA = "docs/benchmarks/data"
RANKS = "docs/benchmarks/ranks.json"
INVARIANT = "docs/benchmarks/invariant.json"

FOLLOWED = ("softmax, part alone", "softmax", "cross-entropy, part alone", "cross-entropy")
"""The calls of several GPUs that are followed. Pushed words are not: they need the GPUs' memory."""


class Launch(NamedTuple):
    """One launch of a cell."""

    kernel: str  # its name
    machine: str  # a hash of its machine code
    grid: str
    numbers: str
    words: str = ""  # constants and options, to be read by people; not committed

    def differs(self, other: Launch) -> list[str]:
        """By what another launch differs, in words; empty if by nothing that a GPU would notice."""
        found = [f"grid {self.grid} → {other.grid}"] if self.grid != other.grid else []
        if self.numbers != other.numbers:
            found.append(f"numbers {self.numbers} → {other.numbers}")
        if self.machine != other.machine:
            both = [(each.kernel, each.words) for each in (self, other)]
            shown = [" ".join(each) if self.words and other.words else each[0] for each in both]
            found.append("machine code" if shown[0] == shown[1] else " → ".join(shown))
        return found


Cells = dict[str, list[Launch]]


def cell_of(row: dict) -> str:
    """The name of a row's cell."""
    return f"{row['case']} {row['provider']}"


def rows_of_ranks(run: dict) -> list[dict]:
    """The calls of a run over several GPUs that are followed, as rows of the data."""
    found = []
    for row in run["rows"]:
        if row["call"] in FOLLOWED:
            case = f"ranks/{row['call']}/{run['ranks']}x{row['rows']}x{row['columns']}"
            of_call = {"case": case, "provider": CHOOSER, "suite": "ranks", "op": row["call"]}
            shape = [row["rows"], row["columns"]]
            found.append(of_call | {"ranks": run["ranks"], "shape": shape})
    return found


def read_rows(path: Path, load: Callable[[Path], dict] = read_json) -> list[dict]:
    """The rows of a run, or of all runs in a folder, each with the machine and software of its
    run."""
    files = map(load, sorted(path.glob("*.json")) if path.is_dir() else [path])
    return [row | {"environment": data["environment"]} for data in files for row in data["rows"]]


def measured() -> dict[str, list[dict]]:
    """The rows of calls of ours, by the commit that they were measured at; those over several GPUs
    and batch-invariant ones too, which stand beside the plain call."""
    found: dict[str, list[dict]] = {}
    run = read_json(ROOT / INVARIANT)
    common = {"provider": CHOOSER, "suite": "invariant", "op": "invariant"}
    found[run["commit"]] = [{"case": f"invariant/{call}", **common} for call in run["calls"]]
    for run in read_json(ROOT / RANKS)["runs"]:
        found.setdefault(run["commit"], []).extend(rows_of_ranks(run))
    for row in read_rows(ROOT / DATA):
        if row["provider"] in (CHOOSER, *RUNGS) and row["status"] == "ok":
            found.setdefault(row["environment"]["commit"], []).append(row)
    return found


def differences(old: Cells, new: Cells) -> dict[str, str]:
    """The cells that launch something else, with what is different."""
    found = {}
    for cell, before in old.items():
        after = new[cell]
        if len(before) != len(after):
            names = [", ".join(each.kernel for each in some) for some in (before, after)]
            found[cell] = f"launches {names[0] or 'nothing'} → {names[1] or 'nothing'}"
        else:
            words = [text for a, b in zip(before, after, strict=True) for text in a.differs(b)]
            if words:
                found[cell] = "; ".join(dict.fromkeys(words))
    return found


# --- the committed file ---


def write_down(
    root: Path, commits: dict[str, list[str]], before: Cells, after: Cells, known: dict[str, str]
) -> None:
    """Write the file, a cell a line: what it launched, and what it launches today where that is
    something else.

    Args:
        root: the folder that the file lies below.
        commits: the cells that were measured at a commit.
        before: what they launched then.
        after: what they launch today.
        known: hashes of today's kernels, see `Committed`.
    """
    changed = differences(before, after)

    def lines(cell: str) -> list[list[str]]:
        shown = (before[cell], after[cell]) if cell in changed else (after[cell],)
        return [[" ".join(launch[:4]) for launch in some] for some in shown]

    cells = {commit: {cell: lines(cell) for cell in some} for commit, some in commits.items()}
    write(root / FILE, {"known": known, "cells": cells}, depth=3)


class Committed(NamedTuple):
    """The file, read."""

    known: dict[str, str]  # hashes of the first language by key, and of the machine code by these
    commits: dict[str, str]  # that measured a cell
    measured: Cells
    today: Cells

    @property
    def changed(self) -> frozenset[str]:
        """The cells that launch something else today."""
        return frozenset(cell for cell in self.today if self.today[cell] != self.measured[cell])


def read(root: Path) -> Committed:
    """The file below a folder; of nothing if there is none."""
    path = root / FILE
    data = read_json(path) if path.is_file() else {"known": {}, "cells": {}}
    found = Committed(data["known"], {}, {}, {})
    for commit, cells in data["cells"].items():
        for cell, lists in cells.items():
            found.commits[cell] = commit
            for launches, lines in ((found.measured, lists[0]), (found.today, lists[-1])):
                launches[cell] = [Launch(*line.split(" ")) for line in lines]
    return found
