"""Time on the host, and how many kernels are compiled."""

from __future__ import annotations

from softmax_bench.report import LEVEL, by_case, ratio, standing
from softmax_bench.roster import CHOOSER, LIBRARIES, label_of
from softmax_site.benchmarks.data import anchor, of_suite, shape_words
from softmax_site.benchmarks.page import Page, Rendered
from softmax_site.benchmarks.tables import Reasons, Row, kernel_words, table, time_cell
from softmax_site.benchmarks.words import SIGNS, percent, times

STEPS = {"forward": "forward", "forward_backward": "forward and backward"}

HOST_CALLS = {
    "forward": "no gradient wanted",
    "forward_grad": "gradient wanted, forward only",
    "forward_backward": "gradient wanted, forward and backward",
}


MARKS = f"▲ less than torch’s time, = within {percent(LEVEL)}, ▼ more"


def cost(group: dict[str, dict]) -> str:
    """Our time as a multiple of torch's, with its sign, as HTML."""
    factor = ratio(group, "torch")
    if factor is None:
        return "–"
    state = standing(factor)
    return f'<span class="{state}">{SIGNS[state]} {times(1 / factor)} × torch’s time</span>'


def host_time_page(data: dict) -> Rendered:
    """Host time per call."""
    rows = of_suite(data, "host_time")
    page, reasons = Page(data, "host_time", rows), Reasons("host_time", rows)
    there = [name for name in (CHOOSER, *LIBRARIES) if any(row["provider"] == name for row in rows)]
    body: list[Row | list[str]] = []
    for group in by_case(rows).values():
        some = next(iter(group.values()))
        cells = [HOST_CALLS[some["direction"]], cost(group)]
        cells += [time_cell(group.get(name), reasons) for name in there]
        body.append(Row(cells, anchor(some)))
    page.html(
        table(["call", "triton_softmax takes", *(label_of(name) for name in there)], body, 2)
        + '<p class="bench-caption">µs of the host for one call on a small tensor, '
        f"{shape_words(rows[0])}; {MARKS}</p>"
    )
    page.html(reasons.listing())
    return page.done()


def compiles_page(data: dict) -> Rendered:
    """How many kernels a sweep over row lengths compiles."""
    rows = of_suite(data, "compiles")
    page, reasons = Page(data, "compiles", rows), Reasons("compiles", rows)
    body: list[Row | list[str]] = [
        [
            f"{row['direction']}, {row['dtype']}",
            kernel_words(row),
            reasons.cell(row) if row["count"] is None else str(row["count"]),
            f"{row['samples']:,}",
        ]
        for row in sorted(rows, key=lambda row: row["direction"] == "backward")
    ]
    page.html(table(["calls", "kernels", "compiled", "row lengths"], body, 2))
    page.html(reasons.listing())
    return page.done()


def compiled_page(data: dict) -> Rendered:
    """Host time of a step inside torch.compile, ours and torch's."""
    rows = of_suite(data, "compiled")
    page, reasons = Page(data, "compiled", rows), Reasons("compiled", rows)
    body: list[Row | list[str]] = []
    for group in by_case(rows).values():
        some = next(iter(group.values()))
        body.append(
            [
                f"{shape_words(some)}, {some['dtype']}",
                STEPS[some["direction"]],
                some["inputs"],
                cost(group),
                time_cell(group.get(CHOOSER), reasons),
                time_cell(group.get("torch"), reasons),
            ]
        )
    head = ["shape", "step", "mode", "ours takes", "µs, ours", "torch"]
    page.html(
        table(head, body, 4) + f'<p class="bench-caption">µs of the host for one step; {MARKS}</p>'
    )
    page.html(reasons.listing())
    return page.done()
