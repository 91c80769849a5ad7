"""What a page includes: text, and the files that it links to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from softmax_bench.roster import CHOOSER
from softmax_site.benchmarks.charts import Chart, spec_text
from softmax_site.benchmarks.drawing import svg
from softmax_site.benchmarks.export import csv_text
from softmax_site.benchmarks.sentences import measured_line
from softmax_site.benchmarks.tables import all_rows, runs_table

ASSETS = "assets/bench"
"""Where the charts and tables lie in the site."""


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


class Page:
    """Collects the parts of one fragment, its charts and its CSV."""

    def __init__(
        self,
        data: dict,
        name: str,
        rows: list[dict],
        implementations: tuple[str, ...] = (CHOOSER,),
    ):
        self.data, self.name, self.rows = data, name, rows
        self.measured = measured_by(rows, implementations)
        self.parts = [measured_line(data, rows)]
        self.assets: dict[str, str] = {}

    def add(self, text: str) -> None:
        """A part of the fragment."""
        self.parts.append(text)

    def chart(self, chart: Chart) -> None:
        """A chart with the links to its data."""
        if not chart.points:
            return
        self.assets[f"{ASSETS}/{chart.name}.vl.json"] = spec_text(chart)
        self.add(
            f'<div class="bench-figure" data-search-exclude data-chart="{chart.name}">\n'
            f"{svg(chart)}\n</div>"
        )
        self.add(
            f"[Chart specification](../{ASSETS}/{chart.name}.vl.json)"
            f'{{ .bench-spec data-for="{chart.name}" }} · '
            f"[CSV](../{ASSETS}/{self.name}.csv){{ .bench-csv }}"
        )

    def done(self) -> Rendered:
        """The fragment with its charts and its CSV."""
        self.add("Runs behind this page:")
        self.add(runs_table(self.data, self.rows))
        self.add(all_rows(self.data, self.rows, f"Every row of this page ({len(self.rows)})"))
        self.assets[f"{ASSETS}/{self.name}.csv"] = csv_text(self.data, self.rows)
        text = "\n\n".join(self.parts) + "\n"
        return Rendered({f"bench-{self.name}": Fragment(text, self.measured)}, self.assets)
