"""Forward, backward, few rows, log-softmax and log-sum-exp."""

from __future__ import annotations

from collections.abc import Callable

from softmax_site.benchmarks import heat
from softmax_site.benchmarks.data import DTYPES, n_cols, of_suite
from softmax_site.benchmarks.page import Page, Rendered
from softmax_site.benchmarks.suites.parts import parts_of, shape, share_plot, short_table
from softmax_site.benchmarks.tables import Reasons, case_table, folded
from softmax_site.benchmarks.words import share_sentence, verdict_sentence


def speed_page(data: dict, suite: str) -> Rendered:
    """Forward or backward over the whole grid."""
    rows = of_suite(data, suite)
    page, reasons = Page(data, suite, rows), Reasons(suite, rows)
    page.html(verdict_sentence(rows))
    page.html(
        heat.heat_map(f"Softmax {suite}, by length", rows, heat.by_dtype(rows, (suite,)))
        + heat.LEGEND
    )
    page.html(share_sentence(rows))
    page.add("## Share of a copy's speed")
    for direction, dtype, part in parts_of(rows):
        page.html(share_plot(part, f"{direction.capitalize()}, {dtype}: share of the copy's speed"))
    page.add("## Every cell")
    for _, dtype, part in parts_of(rows):
        page.html(folded(f"{dtype}: times, kernels, errors, GB/s", case_table(part, reasons)))
    page.html(reasons.listing())
    return page.done()


def few_rows_page(data: dict) -> Rendered:
    """Few rows: times, since a launch weighs as much as the bytes."""
    rows = of_suite(data, "few_rows")
    page, reasons = Page(data, "few_rows", rows), Reasons("few_rows", rows)
    page.html(verdict_sentence(rows))
    page.html(share_sentence(rows))
    for direction, dtype, part in parts_of(rows):
        page.add(f"## {direction.capitalize()}, {dtype}")
        page.html(short_table(part, reasons))
        page.html(
            share_plot(part, f"{direction.capitalize()}, {dtype}: share of the copy's speed", shape)
        )
        page.html(
            folded(
                "Every cell: percentiles, kernels, errors, and everyone's time",
                case_table(part, reasons, times=True),
            )
        )
    page.html(reasons.listing())
    return page.done()


RELATIVES = (
    ("log_softmax", "forward"),
    ("log_softmax", "backward"),
    ("logsumexp", "forward"),
)


def log_softmax_page(data: dict) -> Rendered:
    """log_softmax and logsumexp on part of the grid."""
    rows = of_suite(data, "log_softmax")
    page, reasons = Page(data, "log_softmax", rows), Reasons("log_softmax", rows)
    page.html(verdict_sentence(rows))
    kinds: dict[str, Callable[[dict], bool]] = {}
    for op, direction in RELATIVES:
        for dtype in DTYPES:
            key = op, direction, dtype
            if any((r["op"], r["direction"], r["dtype"]) == key for r in rows):
                kinds[f"<b>{op} {direction}</b> {dtype}"] = lambda row, key=key: (
                    (row["op"], row["direction"], row["dtype"]) == key
                )
    page.html(heat.heat_map("By length", rows, kinds) + heat.LEGEND)
    page.html(share_sentence(rows))
    for op, direction in RELATIVES:
        page.add(f"## `{op}`, {direction}")
        for _, dtype, part in parts_of([r for r in rows if r["op"] == op], (direction,)):
            part.sort(key=n_cols)
            page.html(share_plot(part, f"{op} {direction}, {dtype}: share of the copy's speed"))
            page.html(
                folded(
                    f"Every cell, {dtype}: times, kernels, errors, GB/s",
                    case_table(part, reasons),
                )
            )
    page.html(reasons.listing())
    return page.done()
