"""What the front page shows: trips through memory, softmax beside a copy, and the loss beside
other libraries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from softmax_bench.roster import CHOOSER, label_of
from softmax_site.benchmarks.data import measurements, of_suite
from softmax_site.benchmarks.page import NOT_MEASURED, Fragment, block, measured_by
from softmax_site.benchmarks.quoted import front_loss
from softmax_site.benchmarks.tables import Row, table
from softmax_site.figures import moving, share, trips

SUITES = ("forward", "backward")
WIDTHS = ((640, "for-wide"), (358, "for-narrow"))


def figure(data: dict) -> str:
    """The shares of a copy's speed."""
    every = share.rows(data)

    def draw(width: int, more: str) -> str:
        return share.svg(every, width, 16 if width > 500 else 17, more)

    return in_two_widths(draw, share.alt(every), "copy-share")


def in_two_widths(draw: Callable[[int, str], str], alt: str, css: str) -> str:
    """A drawing in two widths, of which the style sheet shows one."""
    said = f'role="img" aria-label="{alt}"'
    drawn = [draw(at, f'class="{name}" {said}') for at, name in WIDTHS]
    return block("\n".join(drawn), f"drawn {css}") + "\n"


def trips_through_memory(root: Path) -> str:
    """The picture of what the site is about, or that it is not measured."""
    every = trips.rows(root)
    if not every:
        return NOT_MEASURED.text
    title = f'<p class="figure-title">{trips.title(every)}</p>\n'
    draw = lambda width, more: trips.svg(every, 720 if width > 500 else width, more)  # noqa: E731
    return title + in_two_widths(draw, trips.alt(every), "trips")


def loss(rows: list[dict]) -> str:
    """Time and memory of cross-entropy with its gradient: a bar each, a row a library."""
    taken = [(label_of(row["provider"]), row["us"]["p50"], row["peak_bytes"]) for row in rows]
    columns = [us for _, us, _ in taken], [peak / 2**20 for *_, peak in taken]
    bar = '<span class="bar" style="--share:{:.3f}">{:,.0f}</span>'
    bars = zip(*([bar.format(each / max(column), each) for each in column] for column in columns))
    lines = [
        Row([name, *both], 'class="ours"' * (name == label_of(CHOOSER)))
        for (name, *_), both in zip(taken, bars)
    ]
    drawn = table(["", "µs", "peak memory, MiB"], lines, css="bars")
    return block(drawn, "home-loss") + "\n"


def fragments(root: Path) -> dict[str, Fragment]:
    """What the front page includes."""
    data = measurements(root)
    softmax = [row for suite in SUITES for row in of_suite(data, suite)]
    rows = front_loss(data)
    ladder = [row for row in of_suite(data, "ladder") if row["shape"] == moving.ROWS]
    drawn = [row for row in ladder if (row["dtype"], row["direction"]) == ("float32", "forward")]
    drawn = [row for row in drawn if row["provider"] in trips.IDEAS]
    return {
        "home-trips": Fragment(trips_through_memory(root), measured_by(drawn)),
        "home-figure": Fragment(figure(data) if share.rows(data) else "", measured_by(softmax)),
        "home-loss": Fragment(loss(rows) if rows else "", measured_by(rows)),
    }
