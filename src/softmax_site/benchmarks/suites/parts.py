"""What the pages of suites share: their plots, parts and short tables."""

from __future__ import annotations

from softmax_bench.report import best_peer, by_case, ratio
from softmax_bench.roster import CHOOSER, COPY
from softmax_site.benchmarks.data import DTYPES, anchor, is_odd, n_cols, shape_words
from softmax_site.benchmarks.plots import Plot, columns_of, draw, library_series
from softmax_site.benchmarks.tables import Reasons, Row, share_cell, table, time_cell
from softmax_site.benchmarks.words import verdict


def length(row: dict) -> str:
    """The length of a row, as an axis writes it."""
    return f"{n_cols(row):,}"


def share_plot(rows: list[dict], title: str, label=length, **more) -> str:
    """The share of the copy's speed over lengths or shapes: ours, the best other, torch."""
    plot = Plot(
        title=title,
        alt=f"{title}: triton_softmax, the best other library and torch. Every number is in the "
        "table below.",
        columns=columns_of(rows, label, is_odd, words=shape_words, **more),
        series=library_series(rows),
    )
    return draw(plot)


def parts_of(rows: list[dict], directions=("forward", "backward")) -> list[tuple]:
    """Direction, type and rows, forward first and float32 first."""
    return [
        (direction, dtype, part)
        for direction in directions
        for dtype in DTYPES
        if (part := [r for r in rows if r["direction"] == direction and r["dtype"] == dtype])
    ]


def shape(row: dict) -> str:
    """The shape, short enough for an axis."""
    text = "×".join(_short(size) for size in row["shape"])
    return text + (" gaps" if row["layout"] == "row_strided" else "")


def _short(size: int) -> str:
    if size % 2**20 == 0:
        return f"{size >> 20}M"
    return f"{size >> 10}k" if size % 1024 == 0 and size >= 8192 else f"{size:,}"


def short_table(rows: list[dict], reasons: Reasons, share=None) -> str:
    """Shape, verdict, share of a copy, our time: what a reader looks at first."""
    body: list[Row | list[str]] = []
    for group in by_case(rows).values():
        ours = group.get(CHOOSER)
        some = ours or next(iter(group.values()))
        body.append(
            [
                f'<a href="#{anchor(some)}">{shape_words(some)}</a>',
                verdict(group),
                share_cell((share or (lambda group: ratio(group, COPY)))(group)),
                time_cell(ours, reasons),
                time_cell(group.get(best_peer(group) or ""), reasons),
                time_cell(group.get("torch"), reasons),
            ]
        )
    head = ["shape", "against the best other", "of a copy", "µs, ours", "best other", "torch"]
    return table(head, body, 2)
