"""What a page includes: text, the measurement that it speaks of, and the files that it links to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from softmax_bench.roster import CHOOSER, RUNGS
from softmax_site.benchmarks.data import runs_used, time_text
from softmax_site.benchmarks.export import csv_text

ASSETS = "assets/bench"
"""Where the CSV files lie in the site."""


class Measured(NamedTuple):
    """What numbers rest on: how old they are, and whether they are of what is launched today."""

    utc: str
    """Of the oldest row."""
    changed: int = 0
    """How many calls of ours launch something else today."""
    calls: int = 0
    """How many calls of ours there are."""


class Fragment(NamedTuple):
    """Markdown that a page includes, and the measurement it speaks of, if any."""

    text: str
    measured: Measured | None = None
    brief: bool = False
    """Too short for a notice above it; a word in its last line has to do."""


NOT_MEASURED = Fragment("Not measured yet.\n")


@dataclass
class Rendered:
    """Fragments by name, and files of the site by path."""

    fragments: dict[str, Fragment] = field(default_factory=dict)
    assets: dict[str, str] = field(default_factory=dict)

    def add(self, other: Rendered) -> None:
        """Take in what another holds."""
        self.fragments |= other.fragments
        self.assets |= other.assets


def measured_by(rows: list[dict]) -> Measured | None:
    """What these rows rest on; None of no rows."""
    if not rows:
        return None
    changed = sum(row.get("changed", False) for row in rows)
    calls = sum(row["provider"] in (CHOOSER, *RUNGS) for row in rows)
    return Measured(min(row["utc"] for row in rows), changed, calls)


def block(text: str, css: str = "bench", hidden: bool = True) -> str:
    """HTML that stands in Markdown as it is; `hidden` from the search, which numbers burden."""
    search = " data-search-exclude" if hidden else ""
    return f'<div class="{css}"{search}>\n{text}\n</div>'


def note(*facts: str) -> str:
    """Facts as a line in small type."""
    return f"{' · '.join(facts)}\n{{ .bench-note data-search-exclude }}\n"


def origin(data: dict, rows: list[dict], csv: str = "") -> str:
    """The machine, versions, days and commits of some rows."""
    *earlier, env = (data["environments"][name] for name in runs_used(data, rows))
    links = (
        f"[{len(rows)} rows as CSV](/{csv}){{ .bench-csv }}",
        "[machine and versions](/benchmarks/environment.md)",
        "[method](/benchmarks/method.md)",
    )
    return note(
        f"Measured: one {env['gpu']}",
        f"torch {env['torch'].split('+')[0]}",
        f"triton {env['triton']}",
        f"{time_text(max(row['utc'] for row in rows))} UTC",
        f"commit `{env['commit'][:12]}`",
        *(
            f"some rows on another {run['gpu']}, {time_text(run['started'])} UTC, "
            f"commit `{run['commit'][:12]}`"
            for run in earlier
        ),
        *(links if csv else ()),
    )


def origin_of(data: dict, suite: str, rows: list[dict], measured: Measured | None) -> Rendered:
    """The line of a suite's rows, `origin-SUITE`, which carries the notices of its page, and the
    rows as CSV."""
    path = f"{ASSETS}/{suite}.csv"
    line = Fragment(origin(data, rows, path), measured)
    return Rendered({f"origin-{suite}": line}, {path: csv_text(data, rows)})
