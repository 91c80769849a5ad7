"""The picture that says what the site is about: trips of a matrix through memory, in their time."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from softmax_bench import traffic
from softmax_bench.roster import COPY
from softmax_site.benchmarks.charts import tag
from softmax_site.figures import moving
from softmax_site.figures.share import text

IDEAS = {
    "naive": ("five lines of PyTorch", "each writes what the next one reads"),
    "torch": ("torch.softmax", "PyTorch's own kernel"),
    "three_loops": ("three loops", "one kernel: nothing is written between them"),
    "two_loops": ("two loops", "the sum no longer waits for the maximum"),
    "split_rows": ("split rows", "programs share a row, and tell each other (m, d)"),
    COPY: ("a copy", "computes nothing"),
}
"""What each kernel is called, and which idea saves a trip."""


class Row(NamedTuple):
    """A kernel: its passes over the matrix, and their time."""

    name: str
    trips: list[str]
    """"read" or "write", in order; none where they are not counted."""
    us: float


def rows(root: Path) -> list[Row]:
    """The kernels in the order of their ideas; none if the data lack their times."""
    try:
        data, out = moving.one_row(root), []
    except moving.NotMeasured:
        return []
    for name in IDEAS:
        passes = data["passes"]["forward"].get(name, ())  # in their order, of what has a trace
        trips = [kind for kind, _, size in passes if size == "MN"]
        if not trips and name != "torch":
            moved = traffic.FORWARD["split_rows" if name == COPY else name]
            trips = ["read"] * moved.reads_mn + ["write"] * moved.writes_mn
        out.append(Row(name, trips, data["forward"][name]))
    return out


def title(shown: list[Row]) -> str:
    """What there is to see."""
    if not shown:
        return ""
    first, *_, ours, copy = shown
    trips = f"{len(first.trips)} trips through memory become {len(ours.trips)}"
    return f"{trips}: softmax in {ours.us / copy.us:.2f} times the time of a copy"


def alt(shown: list[Row]) -> str:
    """The picture in words."""
    said = [f"{IDEAS[row.name][0]}, {row.us:,.0f} µs: {', '.join(row.trips)}" for row in shown]
    return f"{title(shown)}. {'; '.join(said)}."


def svg(shown: list[Row], width: int, attributes: str) -> str:
    """The drawing: a bar for each kernel as long as its time, cut into its trips."""
    wide = width > 500
    left, pitch, bar = (282.0, 54, 30) if wide else (0.0, 76, 26)
    unit = (width - left - 78) / max((row.us for row in shown), default=1)
    copy = left + unit * shown[-1].us if shown else 0
    first, bottom = 12 if wide else 42, pitch * len(shown)
    reach = pitch if wide else bar + 8  # between the words of a narrow picture only
    ends = "".join(f"M{copy:.1f} {at + first - 4}v{reach}" for at in range(0, bottom, pitch))
    out = [tag("path", d=ends, stroke="var(--quiet)", stroke_dasharray="4 4")]
    for at, row in enumerate(shown):
        name, idea = IDEAS[row.name]
        y = pitch * at + first
        at_name, at_idea = (y + 12, y + 29) if wide else (y - 25, y - 8)
        strong = {"fill": "var(--ink)", "font_weight": 600, "font_size": 15}
        out += [text(0, at_name, name, **strong), text(0, at_idea, idea)]
        long = unit * row.us / max(1, len(row.trips))
        for nth, trip in enumerate(row.trips or [""]):
            x, colour = left + nth * long, "ours" if trip == "read" else "best"
            colour = f"var(--{'torch' if row.name in (COPY, 'torch') else colour})"
            out.append(tag("rect", x=x, y=y, width=long - 2, height=bar, rx=3, fill=colour))
            inside = {
                "fill": "var(--paper)",
                "text_anchor": "middle",
                "font_size": 11 if wide else 10,
            }
            out.append(text(x + long / 2 - 1, y + bar / 2 + 4, trip, **inside))
        out.append(text(left + unit * row.us + 8, y + bar / 2 + 5, f"{row.us:,.0f} µs", **strong))
    content = "\n".join(out)
    return f'<svg viewBox="0 0 {width} {bottom}" font-size="12" {attributes}>\n{content}\n</svg>'
