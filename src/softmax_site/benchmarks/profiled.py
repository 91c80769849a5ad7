"""What a GPU's counters say of measured calls, for sentences to quote; `softmax_bench.profile` says
what each counter is."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

from softmax_bench.profile import FILE, STALLS
from softmax_bench.roster import CHOOSER, LIBRARIES
from softmax_site.benchmarks.data import read
from softmax_site.benchmarks.values import Values


def of_call(launches: list[dict], row: dict) -> dict[str, Any]:
    """The counters of the longest launch of a call, and what all its launches did.

    >>> both = {"dram_read": 6, "dram_write": 2, "spilled_write": 0, "instructions": 1}
    >>> both |= {"stalls": {"barrier": 30.0}}
    >>> row = {"shape": [2, 4], "bytes": 16}
    >>> found = of_call([{"ns": 3000, **both}, {"ns": 1000, **both}], row)
    >>> found["moved"], found["instructions"], found["rest"], found["barrier"]
    (1.0, 8.0, 25.0, 30.0)
    """
    longest = max(launches, key=lambda each: each["ns"])
    names = ("ns", "dram_read", "dram_write", "spilled_write", "instructions")
    total = {name: sum(each[name] for each in launches) for name in names}
    memory = total["dram_read"] + total["dram_write"]
    return {
        **longest,
        **longest["stalls"],
        "launches": len(launches),
        "rest": 100 - 100 * longest["ns"] / total["ns"],
        "us": total["ns"] / 1e3,
        "memory": memory,
        "moved": memory / row["bytes"],
        "spilled": 100 * total["spilled_write"] / row["bytes"],
        "instructions": 32 * total["instructions"] / prod(row["shape"]),  # of threads, an element
    }


class Profiled:
    """Some calls: each counter by its name, over all of them; none while a call has no profile."""

    def __init__(self, calls: list[dict[str, Any]], missing: list[str]) -> None:
        self.calls, self.missing = calls, missing

    def __getattr__(self, name: str) -> Values:
        if self.missing:
            raise LookupError(f"no profile of {', '.join(self.missing)}")
        return Values(call.get(name, 0.0) if name in STALLS else call[name] for call in self.calls)


class Profiles:
    """The profiled calls, each of the last run that has it."""

    def __init__(self, root: Path, rows: list[dict]) -> None:
        runs = read(root, FILE, {"runs": []})["runs"]
        self.cells = {case: of for run in runs for case, of in run["cells"].items()}
        self.rows = {row["case"]: row for row in rows}

    def calls(self, case: str) -> dict[str, dict[str, Any]]:
        """The counters of a case's calls, by provider."""
        cell = self.cells.get(case, {})
        return {name: of_call(launches, self.rows[case]) for name, launches in cell.items()}

    def of(self, cases: list[str]) -> dict[str, Profiled]:
        """Ours of some cases, and the other libraries' beside it."""
        calls = {case: self.calls(case) for case in cases}
        missing = [case for case in cases if CHOOSER not in calls[case]]
        ours = [of[CHOOSER] for of in calls.values() if CHOOSER in of]
        peers = [of[name] for of in calls.values() for name in LIBRARIES if name in of]
        return {"ours": Profiled(ours, missing), "peer": Profiled(peers, [])}

    def __getitem__(self, case: str) -> dict[str, Profiled]:
        return self.of([case])
