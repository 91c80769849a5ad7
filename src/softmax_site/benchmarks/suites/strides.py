"""A reduced dimension that is not the last, and rows with gaps."""

from __future__ import annotations

from collections.abc import Callable

from softmax_bench.report import by_case, timed
from softmax_bench.roster import CHOOSER, COPY
from softmax_site.benchmarks.data import of_suite
from softmax_site.benchmarks.page import Page, Rendered
from softmax_site.benchmarks.plots import share_of
from softmax_site.benchmarks.suites.parts import parts_of, shape, share_plot, short_table
from softmax_site.benchmarks.tables import Reasons, case_table, folded
from softmax_site.benchmarks.words import verdict_sentence


def fastest_copy(rows: list[dict]) -> dict[str, float]:
    """For each case, how long the fastest copy of its direction and type takes for its bytes."""
    best: dict[tuple, float] = {}
    for row in rows:
        if row["provider"] == COPY and timed(row):
            key = row["direction"], row["dtype"]
            best[key] = max(best.get(key, 0.0), row["bytes"] / timed(row))
    return {
        row["case"]: row["bytes"] / best[row["direction"], row["dtype"]]
        for row in rows
        if row["provider"] == COPY
    }


def gap_share(rows: list[dict]) -> Callable[[dict[str, dict], str], float | None]:
    """Shares of the copy's speed, where a copy of rows with gaps, which PyTorch does slowly, gives
    way to a copy of as many bytes without gaps."""
    without_gaps = fastest_copy(rows)

    def share(group: dict[str, dict], name: str) -> float | None:
        row = group.get(name)
        if not row or row["layout"] != "row_strided":
            return share_of(name)(group)
        own = timed(row)
        return without_gaps[row["case"]] / own if own and row["case"] in without_gaps else None

    return share


def gap_sentence(rows: list[dict]) -> str:
    """What the copy of rows with gaps reaches of one without, and what ours would read against
    it."""
    without_gaps = fastest_copy(rows)
    slow = []
    for case, group in by_case(rows).items():
        copy, ours = timed(group.get(COPY)), timed(group.get(CHOOSER))
        if copy and ours and group[COPY]["layout"] == "row_strided":
            reached = without_gaps[case] / copy
            if reached < 0.9:
                slow.append((reached, copy / ours))
    if not slow:
        return ""
    return (
        "<p>PyTorch's copy of rows with gaps reaches "
        f"{min(slow)[0]:.2f} to {max(slow)[0]:.2f} of the speed that it has without gaps, so it is "
        "no limit: against it ours would stand at "
        f"{min(s for _, s in slow):.2f} to {max(s for _, s in slow):.2f}. For rows with gaps the "
        "share is therefore one of the fastest copy of the same type on this page.</p>"
    )


def strided_page(data: dict) -> Rendered:
    """A reduced dimension that is not the last, and rows with gaps."""
    rows = of_suite(data, "strided")
    page, reasons = Page(data, "strided", rows, (CHOOSER, "strided")), Reasons("strided", rows)
    page.html(verdict_sentence(rows))
    page.html(gap_sentence(rows))
    share = gap_share(rows)
    for direction, dtype, part in parts_of(rows):
        page.add(f"## {direction.capitalize()}, {dtype}")
        page.html(short_table(part, reasons, lambda group: share(group, CHOOSER)))
        page.html(
            share_plot(
                part,
                f"{direction.capitalize()}, {dtype}: share of the copy's speed",
                shape,
                share=share,
            )
        )
        page.html(
            folded(
                "Every cell: percentiles, kernels, errors, and everyone's GB/s",
                case_table(part, reasons, lambda group: share(group, CHOOSER)),
            )
        )
    page.html(reasons.listing())
    return page.done()
