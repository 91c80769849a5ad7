"""What the page of each suite shows."""

from __future__ import annotations

from collections.abc import Callable

from softmax_bench.report import by_case, gbs, geometric_mean, ratio, standing, timed
from softmax_bench.roster import CHOOSER, COPY, LIBRARIES, RUNGS, label_of
from softmax_bench.targets import HOST_AT_MOST
from softmax_site.benchmarks.charts import Chart
from softmax_site.benchmarks.data import DTYPES, n_cols, of_suite, shape_text
from softmax_site.benchmarks.page import Page, Rendered
from softmax_site.benchmarks.points import named_chart, points, runs_of, speed_chart
from softmax_site.benchmarks.sentences import summary
from softmax_site.benchmarks.tables import (
    error_cell,
    folded,
    library_table,
    speed_cell,
    state_cell,
    table,
    time_cell,
)


def speed_page(data: dict, suite: str) -> Rendered:
    """Forward or backward over the whole grid."""
    rows = of_suite(data, suite)
    page = Page(data, suite, rows)
    page.add(summary(rows))
    for dtype in DTYPES:
        part = [row for row in rows if row["dtype"] == dtype]
        if not part:
            continue
        page.add(f"## {suite.capitalize()}, {dtype}")
        page.chart(speed_chart(data, f"{suite}-{dtype}", part, f"Softmax {suite}, {dtype}"))
        page.add(library_table(part, speed_cell))
    return page.done()


def few_rows_page(data: dict) -> Rendered:
    """Few rows: times, since a launch weighs as much as the bytes."""
    rows = of_suite(data, "few_rows")
    page = Page(data, "few_rows", rows)
    page.add(summary(rows))
    for direction in ("forward", "backward"):
        for dtype in DTYPES:
            part = [row for row in rows if row["direction"] == direction and row["dtype"] == dtype]
            if not part:
                continue
            page.add(f"## Few rows, {direction}, {dtype}")
            page.chart(
                named_chart(
                    data,
                    f"few_rows-{direction}-{dtype}",
                    part,
                    f"Softmax {direction} on few rows, {dtype}: microseconds by shape and library",
                    shape_text,
                    timed,
                    "µs",
                    y_log=True,
                )
            )
            page.add("Microseconds:")
            page.add(library_table(part, time_cell, shape_text, "M × N"))
    return page.done()


HOST_CALLS = {
    "forward": "no gradient",
    "forward_grad": "with gradient, forward",
    "forward_backward": "with gradient, forward and backward",
}


def host_time_page(data: dict) -> Rendered:
    """Host time per call, and how many kernels a sweep compiles."""
    rows = of_suite(data, "host_time")
    page = Page(data, "host_time", rows)
    there = [name for name in (CHOOSER, *LIBRARIES) if any(row["provider"] == name for row in rows)]

    def label(row: dict) -> str:
        return HOST_CALLS[row["direction"]]

    page.chart(
        named_chart(
            data,
            "host_time",
            rows,
            "Host time of one call by kind of call and library, in microseconds",
            label,
            timed,
            "µs",
        )
    )
    page.add("Microseconds on the host for one call:")
    body = []
    for group in by_case(rows).values():
        some = next(iter(group.values()))
        times = ratio(group, "torch")
        mark = "–" if times is None else f"{1 / times:.2f} × torch"
        if times is not None and times < 1 / HOST_AT_MOST:
            mark = f"**▼ {mark}, loss**"
        body.append(
            [label(some), shape_text(some), *(time_cell(group.get(name)) for name in there), mark]
        )
    page.add(
        table(
            ["call", "M × N", *(label_of(name) for name in there), "triton_softmax takes"], body, 2
        )
    )
    return page.done()


def compiles_page(data: dict) -> Rendered:
    """How many kernels a sweep over row lengths compiles."""
    rows = of_suite(data, "compiles")
    page = Page(data, "compiles", rows)
    body = [
        [row["dtype"], row["direction"], str(row["samples"])]
        + [
            state_cell(row) if row["count"] is None else str(row["count"]),
            "<br>".join(row["kernels"]) or "–",
        ]
        for row in rows
    ]
    page.add(table(["dtype", "direction", "different N", "kernels compiled", "which"], body, 2))
    return page.done()


INPUTS = {
    "normal": "normal, σ = 1",
    "wide": "normal, σ = 30",
    "offset": "normal plus a large constant",
    "masked": "−∞ beyond a prefix that differs by row",
    "spike": "one value far above the others",
    "equal": "all equal",
    "very_negative": "normal minus 1000",
    "all_masked": "one row all −∞",
}


def accuracy_page(data: dict) -> Rendered:
    """Largest relative error of a row against float64."""
    rows = of_suite(data, "accuracy")
    page = Page(data, "accuracy", rows)
    there = [name for name in (CHOOSER, *LIBRARIES) if any(row["provider"] == name for row in rows)]
    right = {
        name: sum(row["provider"] == name and row["status"] == "ok" for row in rows)
        for name in there
    }
    cases = len(by_case(rows))
    page.add(
        "Right answers: "
        + ", ".join(f"{label_of(name)} {right[name]} of {cases}" for name in there)
        + ". "
        "A case that a library refuses or fails counts as no right answer."
    )
    for dtype in DTYPES:
        part = [row for row in rows if row["dtype"] == dtype and row["inputs"] == "normal"]
        if len({n_cols(row) for row in part}) > 1:
            only = [row for row in part if row["direction"] == "forward"]
            page.chart(
                Chart(
                    name=f"accuracy-{dtype}",
                    alt=f"Largest relative error of a row against float64 over N, {dtype}, by "
                    "library. "
                    "The numbers are in the table below.",
                    x_title="columns N",
                    y_title="largest relative error of a row",
                    points=points(
                        data,
                        only,
                        n_cols,
                        lambda row: float(row["max_rel_error"]) if row["max_rel_error"] else None,
                    ),
                    runs=runs_of(data, only),
                    y_log=True,
                )
            )
        page.add(f"## Errors, {dtype}")
        body = []
        for group in by_case([row for row in rows if row["dtype"] == dtype]).values():
            some = next(iter(group.values()))
            body.append(
                [f"{n_cols(some):,}", some["direction"], INPUTS[some["inputs"]]]
                + [error_cell(group.get(name)) for name in there]
            )
        page.add(table(["N", "direction", "input", *(label_of(name) for name in there)], body, 3))
    return page.done()


def ladder_page(data: dict) -> Rendered:
    """Every rung on the same shapes."""
    rows = of_suite(data, "ladder")
    page = Page(data, "ladder", rows, (CHOOSER, *RUNGS))
    there = {row["provider"] for row in rows}
    who = [name for name in (COPY, "torch", *RUNGS, CHOOSER) if name in there]
    for direction in ("forward", "backward"):
        for dtype in DTYPES:
            part = [row for row in rows if row["direction"] == direction and row["dtype"] == dtype]
            if not part:
                continue
            page.add(f"## The ladder, {direction}, {dtype}")
            page.chart(
                speed_chart(
                    data, f"ladder-{direction}-{dtype}", part, f"The rungs, {direction}, {dtype}"
                )
            )
            body = []
            for group in by_case(part).values():
                some = next(iter(group.values()))
                body.append([f"{n_cols(some):,}", *(speed_cell(group.get(name)) for name in who)])
            page.add(table(["N", *(label_of(name) for name in who)], body))
    return page.done()


def strided_page(data: dict) -> Rendered:
    """A reduced dimension that is not the last, and rows with gaps."""
    rows = of_suite(data, "strided")
    page = Page(data, "strided", rows, (CHOOSER, "strided"))
    page.add(summary(rows))
    for direction in ("forward", "backward"):
        for dtype in DTYPES:
            part = [row for row in rows if row["direction"] == direction and row["dtype"] == dtype]
            if part:
                page.add(f"## Strides, {direction}, {dtype}")
                page.chart(
                    named_chart(
                        data,
                        f"strided-{direction}-{dtype}",
                        part,
                        f"Softmax {direction} over strided rows, {dtype}: GB/s by shape and "
                        "library",
                        shape_text,
                        gbs,
                        "GB/s of useful traffic",
                    )
                )
                page.add(library_table(part, speed_cell, shape_text, "shape"))
    return page.done()


def log_softmax_page(data: dict) -> Rendered:
    """log_softmax and logsumexp on part of the grid."""
    rows = of_suite(data, "log_softmax")
    page = Page(data, "log_softmax", rows)
    page.add(summary(rows))
    for op, direction in (
        ("log_softmax", "forward"),
        ("log_softmax", "backward"),
        ("logsumexp", "forward"),
    ):
        for dtype in DTYPES:
            part = [
                r
                for r in rows
                if r["op"] == op and r["direction"] == direction and r["dtype"] == dtype
            ]
            if part:
                page.add(f"## `{op}`, {direction}, {dtype}")
                name = f"log_softmax-{op}-{direction}-{dtype}"
                page.chart(speed_chart(data, name, part, f"{op} {direction}, {dtype}"))
                page.add(library_table(part, speed_cell))
    return page.done()


TUTORIAL_COLUMNS = 128 * 49


def article_page(data: dict) -> Rendered:
    """The benchmarks of two of the sources, on their shapes, with both ways of counting bytes."""
    rows = of_suite(data, "article")
    page = Page(data, "article", rows, (CHOOSER, "naive", "single_block", "two_loops"))
    there = {row["provider"] for row in rows}
    who = [
        name
        for name in (COPY, CHOOSER, "torch", "naive", "single_block", "two_loops")
        if name in there
    ]
    page.add("### As in the article: 2·M·N elements counted")
    page.chart(
        speed_chart(data, "article", rows, "Softmax forward, float32, 4,096 rows", y_half="GB/s")
    )
    body = []
    for group in by_case(rows).values():
        some = next(iter(group.values()))
        body.append([f"{n_cols(some):,}", *(speed_cell(group.get(name)) for name in who)])
    head = ["N", *(label_of(name) for name in who)]
    page.add(folded("GB/s, 2·M·N elements counted", head, body))
    lines = [name for name in (CHOOSER, "torch", "naive") if name in there]
    first = [row for row in rows if n_cols(row) <= TUTORIAL_COLUMNS and row["provider"] in lines]
    if first:
        page.add("### As in the tutorial: M·N elements counted")
        chart = speed_chart(
            data, "article-tutorial", first, "Fused, torch and naive softmax, 4,096 rows, float32"
        )
        for point in chart.points:
            point["y"] = round(point["y"] / 2, 3)
        chart.y_title = "GB/s, M·N elements counted"
        page.chart(chart)
        body = []
        for group in by_case(first).values():
            some = next(iter(group.values()))
            body.append(
                [f"{n_cols(some):,}", *(speed_cell(group.get(name), 0.5) for name in lines)]
            )
        page.add(
            folded("GB/s, M·N elements counted", ["N", *(label_of(name) for name in lines)], body)
        )
        naive = [found for group in by_case(first).values() if (found := ratio(group, "naive"))]
        if naive:
            page.add(
                f"Over these shapes `triton_softmax` is {min(naive):.1f} to {max(naive):.1f} "
                "times as fast as the "
                f"naive lines, {geometric_mean(naive):.1f} in the geometric mean; the traffic "
                "alone allows a little "
                "over four."
            )
    return page.done()


def batch_page(data: dict) -> Rendered:
    """Forward and backward across batch sizes."""
    rows = of_suite(data, "batch")
    page = Page(data, "batch", rows, (CHOOSER, "naive", "single_block"))
    there = {row["provider"] for row in rows}
    order = (COPY, CHOOSER, "torch", "torch.compile", "naive", "single_block")
    who = [name for name in order if name in there]
    for direction in ("forward", "backward"):
        part = [row for row in rows if row["direction"] == direction]
        if not part:
            continue
        page.add(f"### Across batch sizes, {direction}")
        chart = Chart(
            name=f"batch-{direction}",
            alt=f"Softmax {direction} across batch sizes, float32: microseconds over the "
            "number of rows. "
            "The numbers are in the table below.",
            x_title="rows M",
            y_title="µs",
            points=points(data, part, lambda row: row["shape"][0], timed),
            runs=runs_of(data, part),
            y_log=True,
        )
        page.chart(chart)
        page.add("Microseconds:")
        body = []
        for group in by_case(part).values():
            some = next(iter(group.values()))
            factor = ratio(group, "torch")
            text = "–" if factor is None else f"{factor:.2f} × torch"
            if factor is not None and standing(factor) == "behind":
                text = f"**▼ {text}, loss**"
            body.append([shape_text(some), *(time_cell(group.get(name)) for name in who), text])
        page.add(table(["M × N", *(label_of(name) for name in who), "against torch"], body))
    return page.done()


PAGES: dict[str, Callable[[dict], Rendered]] = {
    "forward": lambda data: speed_page(data, "forward"),
    "backward": lambda data: speed_page(data, "backward"),
    "few_rows": few_rows_page,
    "host_time": host_time_page,
    "compiles": compiles_page,
    "accuracy": accuracy_page,
    "ladder": ladder_page,
    "strided": strided_page,
    "log_softmax": log_softmax_page,
    "article": article_page,
    "batch": batch_page,
}
