"""What the front page shows: softmax beside a copy, and the loss beside other libraries."""

from __future__ import annotations

from pathlib import Path

from softmax_bench.roster import CHOOSER, label_of
from softmax_site.benchmarks.data import measurements, of_suite
from softmax_site.benchmarks.page import Fragment, block, measured_by
from softmax_site.benchmarks.quoted import front_loss
from softmax_site.benchmarks.tables import Row, table
from softmax_site.figures import share

SUITES = ("forward", "backward")


def figure(data: dict) -> str:
    """The figure in two widths, of which the style sheet shows one."""
    every = share.rows(data)
    alt = f'role="img" aria-label="{share.alt(every)}"'
    wide = share.svg(every, 640, 16, f'class="for-wide" {alt}')
    narrow = share.svg(every, 358, 17, f'class="for-narrow" {alt}')
    return block(f"{wide}\n{narrow}", "copy-share") + "\n"


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
    return {
        "home-figure": Fragment(figure(data) if share.rows(data) else "", measured_by(softmax)),
        "home-loss": Fragment(loss(rows) if rows else "", measured_by(rows)),
    }
