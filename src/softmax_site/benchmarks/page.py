"""What a page includes: text, and the files that it links to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from softmax_bench.roster import CHOOSER
from softmax_site.benchmarks.export import csv_text
from softmax_site.benchmarks.words import measured_line

ASSETS = "assets/bench"
"""Where the CSV files lie in the site."""


class Measured(NamedTuple):
    """What numbers rest on: how old they are, and which code they are of."""

    utc: str
    """Of the oldest row."""
    sources: dict[str, str]
    """Hash of each implementation's source as measured."""


class Fragment(NamedTuple):
    """Markdown that a page includes, and the measurement it speaks of, if any."""

    text: str
    measured: Measured | None = None
    brief: bool = False
    """Too short for a notice above it; a word in its last line has to do."""


@dataclass
class Rendered:
    """Fragments by name, and files of the site by path."""

    fragments: dict[str, Fragment] = field(default_factory=dict)
    assets: dict[str, str] = field(default_factory=dict)

    def add(self, other: Rendered) -> None:
        """Take in what another holds."""
        self.fragments |= other.fragments
        self.assets |= other.assets


def measured_by(rows: list[dict], implementations: tuple[str, ...] = (CHOOSER,)) -> Measured | None:
    """What these rows rest on; None of no rows."""
    if not rows:
        return None
    sources = {}
    for name in implementations:
        measured = [row for row in rows if row["provider"] == name and row["source"]]
        if measured:
            sources[name] = max(measured, key=lambda row: row["utc"])["source"]
    return Measured(min(row["utc"] for row in rows), sources)


def block(text: str, css: str = "bench", hidden: bool = True) -> str:
    """HTML that stands in Markdown as it is; `hidden` from the search, which numbers burden."""
    search = " data-search-exclude" if hidden else ""
    return f'<div class="{css}"{search}>\n{text}\n</div>'


class Page:
    """Collects the parts of one fragment, and its CSV."""

    def __init__(
        self,
        data: dict,
        name: str,
        rows: list[dict],
        implementations: tuple[str, ...] = (CHOOSER,),
    ):
        self.data, self.name, self.rows = data, name, rows
        self.measured = measured_by(rows, implementations)
        self.parts: list[str] = []

    def add(self, text: str) -> None:
        """A part of the fragment, in Markdown."""
        if text:
            self.parts.append(text)

    def html(self, text: str, hidden: bool = True) -> None:
        """A part of the fragment, in HTML."""
        if text:
            self.parts.append(block(text, hidden=hidden))

    def done(self) -> Rendered:
        """The fragment with its CSV."""
        path = f"{ASSETS}/{self.name}.csv"
        self.add(
            f"{measured_line(self.data, self.rows)} [All {len(self.rows)} rows as "
            f"CSV](../{path}){{ .bench-csv }}, with [machine and versions](environment.md); "
            "[how it was measured](method.md).\n{ .bench-note data-search-exclude }"
        )
        assets = {path: csv_text(self.data, self.rows)}
        text = "\n\n".join(self.parts) + "\n"
        return Rendered({f"bench-{self.name}": Fragment(text, self.measured)}, assets)
