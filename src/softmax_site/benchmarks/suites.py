"""What the page of each suite shows."""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape
from statistics import median

from softmax_bench import traffic
from softmax_bench.report import (
    LEVEL,
    best_peer,
    by_case,
    geometric_mean,
    ratio,
    standing,
    timed,
)
from softmax_bench.roster import CHOOSER, COPY, LIBRARIES, RUNGS, label_of
from softmax_bench.targets import HOST_AT_MOST
from softmax_site.benchmarks import heat
from softmax_site.benchmarks.data import (
    DTYPES,
    anchor,
    is_odd,
    n_cols,
    of_suite,
    shape_words,
)
from softmax_site.benchmarks.page import Page, Rendered
from softmax_site.benchmarks.plots import (
    Column,
    Plot,
    Series,
    columns_of,
    draw,
    library_series,
    share_of,
)
from softmax_site.benchmarks.tables import (
    Reasons,
    Row,
    case_table,
    error_text,
    folded,
    kernel_words,
    share_cell,
    speed_cell,
    spread_cell,
    table,
    time_cell,
)
from softmax_site.benchmarks.words import percent, share_sentence, verdict, verdict_sentence


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


HOST_CALLS = {
    "forward": "no gradient wanted",
    "forward_grad": "gradient wanted, forward only",
    "forward_backward": "gradient wanted, forward and backward",
}


def host_time_page(data: dict) -> Rendered:
    """Host time per call."""
    rows = of_suite(data, "host_time")
    page, reasons = Page(data, "host_time", rows), Reasons("host_time", rows)
    there = [name for name in (CHOOSER, *LIBRARIES) if any(row["provider"] == name for row in rows)]
    body: list[Row | list[str]] = []
    for group in by_case(rows).values():
        some = next(iter(group.values()))
        factor = ratio(group, "torch")
        cost = "–" if factor is None else f"{1 / factor:.2f} × torch's time"
        over = factor is not None and 1 / factor > HOST_AT_MOST
        css = "behind" if over else "level"
        mark = f'<span class="{css}">{"▼ " if over else ""}{cost}</span>'
        body.append(
            [
                HOST_CALLS[some["direction"]],
                mark,
                *(time_cell(group.get(name), reasons) for name in there),
            ]
        )
    page.html(
        table(["call", "triton_softmax takes", *(label_of(name) for name in there)], body, 2)
        + '<p class="bench-caption">µs of the host for one call on a small tensor, '
        f"{shape_words(rows[0])}; ▼: more than {HOST_AT_MOST:g} times torch's</p>"
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


def error_of(row: dict) -> float | None:
    """The largest relative error of a row; infinite where an answer is not a number."""
    return None if row["max_rel_error"] is None else float(row["max_rel_error"])


def power_text(power: int) -> str:
    """A power of ten as an axis writes it.

    >>> power_text(-7)
    '10⁻⁷'
    """
    return "10" + str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def error_strip(rows: list[dict], there: list[str], title: str) -> str:
    """A mark per case on a logarithmic axis, a line per library; the worst is marked.

    What is far below the median, as an answer that is exactly right, stands at the left edge.
    """
    errors = {
        name: [e for row in rows if row["provider"] == name and (e := error_of(row)) is not None]
        for name in there
    }
    every = [e for values in errors.values() for e in values]
    finite = [e for e in every if 0 < e < math.inf]
    low = math.floor(math.log10(median(finite))) - 1
    endless = any(math.isinf(e) for e in every)
    high = math.ceil(math.log10(max(finite))) + endless

    def x(value: float) -> float:
        at = high if math.isinf(value) else math.log10(max(value, 10.0**low))
        return 100 * (at - low) / (high - low)

    height = 26 * len(there)
    alt = f"{title}. The numbers are in the table below."
    out = [
        f'<div class="strip"><p class="plot-title">{escape(title)}</p>'
        f'<svg role="img" aria-label="{escape(alt)}" style="height: {height + 30}px">'
    ]
    for power in range(low, high + 1):
        name = power_text(power)
        if power == low:
            name = f"≤{name}"
        if power == high and endless:
            name = "∞"
        at = f"{100 * (power - low) / (high - low):.2f}%"
        out.append(f'<line class="grid" x1="{at}" x2="{at}" y1="0" y2="{height}"/>')
        first = " first" if power == low else ""
        out.append(f'<text class="tick-x{first}" x="{at}" y="{height + 20}">{name}</text>')
    for index, name in enumerate(there):
        y, values = 26 * index + 14, errors[name]
        css = "ours" if name == CHOOSER else "other"
        out.append(f'<text class="tick-y" x="0" dx="-12" y="{y + 4}">{label_of(name)}</text>')
        places = dict.fromkeys(f"{x(e):.1f}" for e in sorted(values))
        marks = (
            f'<rect class="{css}" x="{at}%" y="{y - 6}" width="2" height="12"/>' for at in places
        )
        out.append("".join(marks))
        if values:
            worst = x(max(values))
            out.append(f'<circle class="{css} worst" cx="{worst:.1f}%" cy="{y}" r="5"/>')
    out.append("</svg></div>")
    return "\n".join(out)


def accuracy_page(data: dict) -> Rendered:
    """Largest relative error of a row against float64: how it is distributed, and where it is
    worst."""
    rows = of_suite(data, "accuracy")
    page, reasons = Page(data, "accuracy", rows), Reasons("accuracy", rows)
    there = [name for name in (CHOOSER, *LIBRARIES) if any(row["provider"] == name for row in rows)]
    right = {
        name: sum(row["provider"] == name and row["status"] == "ok" for row in rows)
        for name in there
    }
    cases = len(by_case(rows))
    listed = ", ".join(
        f"<b>{label_of(name)}</b> {right[name]}"
        if name == CHOOSER
        else f"{label_of(name)} {right[name]}"
        for name in there
    )
    page.html(
        f'<p class="verdict-sentence">Right answers in {cases} cases: {listed}.</p>'
        '<p class="bench-caption">A case that a library refuses, or that breaks it, is no right '
        "answer.</p>"
    )
    for dtype in DTYPES:
        part = [row for row in rows if row["dtype"] == dtype]
        if not part:
            continue
        page.add(f"## {dtype}")
        page.html(
            error_strip(
                part, there, f"Relative error, {dtype}: a mark per case, a dot at the worst"
            )
        )
        body: list[Row | list[str]] = []
        for name in there:
            mine = [row for row in part if row["provider"] == name]
            errors = sorted(e for row in mine if (e := error_of(row)) is not None)
            wrong = [row for row in mine if row["status"] == "wrong"]
            without = [row for row in mine if error_of(row) is None]
            worst = max(
                (r for r in mine if error_of(r) is not None),
                key=lambda row: error_of(row) or 0.0,
                default=None,
            )
            answers = f"{sum(row['status'] == 'ok' for row in mine)} of {len(mine)}"
            body.append(
                [
                    label_of(name),
                    f'<span class="behind">▼ {answers}</span>' if wrong or without else answers,
                    f"{len(wrong)} {reasons.cell(wrong[0])}" if wrong else "–",
                    f"{len(without)} {reasons.cell(without[0])}" if without else "–",
                    error_text(median(errors)) if errors else "–",
                    error_text("inf" if errors and math.isinf(errors[-1]) else errors[-1])
                    if errors
                    else "–",
                    f"{worst['direction']}, {shape_words(worst)}, {INPUTS[worst['inputs']]}"
                    if worst
                    else "–",
                ]
            )
        head = ["library", "right", "wrong", "no answer", "median error", "worst error", "where"]
        page.html(table(head, body, 2, also=(6,)))
    page.html(reasons.listing())
    return page.done()


def ladder_page(data: dict) -> Rendered:
    """Every rung on the same shapes."""
    rows = of_suite(data, "ladder")
    page, reasons = Page(data, "ladder", rows, (CHOOSER, *RUNGS)), Reasons("ladder", rows)
    there = {row["provider"] for row in rows}
    rungs = [name for name in RUNGS if name in there]
    page.html(ladder_sentence(rows, rungs))
    for direction, dtype, part in parts_of(rows):
        page.add(f"## {direction.capitalize()}, {dtype}")
        series = [
            Series(CHOOSER, label_of(CHOOSER)),
            *(
                Series(name, label_of(name), name in ("naive", "three_loops", "two_loops"))
                for name in rungs
            ),
            Series("torch", "torch", False),
        ]
        plot = Plot(
            title=f"{direction.capitalize()}, {dtype}: share of the copy's speed, rung by rung",
            alt=f"The rungs, {direction}, {dtype}. The numbers are in the table below.",
            columns=columns_of(part, length, is_odd, others=(*rungs, "torch"), words=shape_words),
            series=series,
            spread=True,
        )
        page.html(draw(plot))
        body: list[Row | list[str]] = []
        for group in by_case(part).values():
            some = next(iter(group.values()))
            cells = []
            for name in (*rungs, "torch"):
                share = share_of(name)(group)
                cells.append(share_cell(share) if share else reasons.cell(group.get(name)))
            ours = share_of(CHOOSER)(group)
            body.append(
                Row(
                    [
                        length(some),
                        f'<b class="ahead">{share_cell(ours)}</b>',
                        *cells,
                        speed_cell(group.get(COPY), reasons),
                    ],
                    anchor(some),
                )
            )
        head = ["length", "triton_softmax", *(label_of(n) for n in rungs), "torch", "copy, GB/s"]
        page.html(table(head, body))
    page.html(reasons.listing())
    return page.done()


def ladder_sentence(rows: list[dict], rungs: list[str]) -> str:
    """Where the chooser is behind a rung of its own, and how far up each rung gets."""
    cells = by_case(rows).values()
    gaps = []
    for group in cells:
        times = {n: t for n in rungs if (t := timed(group.get(n)))}
        ours = timed(group.get(CHOOSER))
        if times and ours:
            best = min(times, key=lambda name: times[name])
            gaps.append((times[best] / ours, best, group[CHOOSER]))
    if not gaps:
        return ""
    mean = {
        name: geometric_mean([s for group in cells if (s := share_of(name)(group))])
        for name in (*rungs, CHOOSER)
    }
    climb = ", ".join(
        f"{label_of(name)} {mean[name]:.2f}"
        for name in ("naive", "three_loops", "two_loops", "single_block")
        if mean.get(name)
    )
    factor, best, row = min(gaps, key=lambda item: item[0])
    text = (
        f"Of a copy's speed, in the geometric mean of all lengths: {climb}, and "
        f'<b class="ahead">{mean[CHOOSER]:.2f}</b> for <code>triton_softmax</code>, which chooses '
        "among all rungs. "
    )
    if standing(factor) == "behind":
        where = f'<a href="#{anchor(row)}">{row["direction"]}, {row["dtype"]}, {length(row)}</a>'
        text += f"Its worst choice is {where}, at {factor:.2f} of {label_of(best)}."
    else:
        text += f"No rung beats its choice by more than {percent(LEVEL)} anywhere here."
    return f'<p class="verdict-sentence">{text}</p>'


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


TUTORIAL_COLUMNS = 128 * 49


def speed_lines(
    rows: list[dict],
    who: list[str],
    title: str,
    counted: float = 1.0,
    later: tuple[str, ...] = (),
) -> str:
    """GB/s over the length, as lines; those in `later` on demand."""

    def speed(group: dict[str, dict], name: str) -> float | None:
        row = group.get(name)
        us = timed(row)
        return counted * row["bytes"] / us / 1e3 if row and us else None

    columns = []
    for group in by_case(rows).values():
        some = next(iter(group.values()))
        values = {name: value for name in who if (value := speed(group, name))}
        spoken = [f"{label_of(name)} {values[name]:,.0f}" for name in who if name in values]
        half = (len(spoken) + 1) // 2
        tip = [f"{shape_words(some)}, GB/s", ", ".join(spoken[:half]), ", ".join(spoken[half:])]
        columns.append(Column(length(some), values, tip))
    plot = Plot(
        title=title,
        alt=f"{title}. The numbers are in the CSV file of this page.",
        columns=columns,
        series=[Series(name, label_of(name), name not in later) for name in who],
        unit="GB/s",
        lines=True,
    )
    return draw(plot)


def article_page(data: dict) -> Rendered:
    """The benchmarks of two of the sources, on their shapes, with both ways of counting bytes."""
    rows = of_suite(data, "article")
    page = Page(data, "article", rows, (CHOOSER, "naive", "single_block", "two_loops"))
    reasons = Reasons("article", rows)
    there = {row["provider"] for row in rows}
    order = (COPY, CHOOSER, "torch", "naive", "single_block", "two_loops")
    who = [name for name in order if name in there]
    page.add("### As in the article: 2·M·N elements counted")
    page.html(
        speed_lines(
            rows,
            who,
            "Softmax forward, float32, 4,096 rows: GB/s over the length",
            later=(COPY, "naive"),
        )
    )
    body: list[Row | list[str]] = []
    for group in by_case(rows).values():
        some = next(iter(group.values()))
        body.append([length(some), *(speed_cell(group.get(name), reasons) for name in who)])
    page.html(
        folded(
            "GB/s, 2·M·N elements counted; half of it counting M·N",
            table(["length", *(label_of(name) for name in who)], body),
        )
    )
    lines = [name for name in (CHOOSER, "torch", "naive") if name in there]
    first = [row for row in rows if n_cols(row) <= TUTORIAL_COLUMNS and row["provider"] in lines]
    if first:
        page.add("### As in the tutorial: M·N elements counted")
        page.html(
            speed_lines(first, lines, "Fused, torch and naive softmax, 4,096 rows, float32", 0.5)
        )
        page.html(gain_sentence([row for row in rows if n_cols(row) <= TUTORIAL_COLUMNS]))
    return page.done()


def gain_sentence(rows: list[dict]) -> str:
    """Why the gain in time is more than the gain in bytes."""
    gains, fused, naive, bytes_gain = [], [], [], []
    for group in by_case(rows).values():
        copy, ours, lines = (timed(group.get(name)) for name in (COPY, CHOOSER, "naive"))
        if not copy or not ours or not lines:
            continue
        some = group[CHOOSER]
        factor = traffic.best_gain(some["shape"][0], n_cols(some))
        gains.append(lines / ours)
        bytes_gain.append(factor)
        fused.append(copy / ours)
        naive.append(factor * copy / lines)
    if not gains:
        return ""
    mean = geometric_mean
    return (
        f"<p>Over these shapes <code>triton_softmax</code> is {min(gains):.1f} to "
        f"{max(gains):.1f} times as fast as the naive lines, {mean(gains):.1f} in the geometric "
        f"mean, although it moves only {mean(bytes_gain):.2f} times less. The rest is how fast "
        "each moves what it moves: counting every byte that they read and write, the naive lines "
        f"reach {mean(naive):.2f} of the copy's speed, the fused kernel {mean(fused):.2f}; and "
        f"{mean(bytes_gain):.2f} × {mean(fused):.2f} / {mean(naive):.2f} is {mean(gains):.1f}. "
        "Each of the five lines is a launch of its own.</p>"
    )


def batch_page(data: dict) -> Rendered:
    """Forward and backward across batch sizes."""
    rows = of_suite(data, "batch")
    page = Page(data, "batch", rows, (CHOOSER, "naive", "single_block"))
    reasons = Reasons("batch", rows)
    there = {row["provider"] for row in rows}
    order = ("torch", "torch.compile", "naive", "single_block")
    who = [name for name in order if name in there]
    for direction, dtype, part in parts_of(rows):
        page.add(f"### Across batch sizes, {direction}")
        plot = Plot(
            title=f"{direction.capitalize()}, {dtype}, rows of {length(part[0])}: share of the "
            "copy's speed over the number of rows",
            alt=f"Softmax {direction} across batch sizes. The numbers are in the table below.",
            columns=columns_of(
                part, lambda row: f"{row['shape'][0]:,}", others=tuple(who), words=shape_words
            ),
            series=[
                Series(CHOOSER, label_of(CHOOSER)),
                *(Series(name, label_of(name), name in ("torch", "naive")) for name in who),
            ],
            spread=True,
        )
        page.html(draw(plot))
        body: list[Row | list[str]] = []
        for group in by_case(part).values():
            some = next(iter(group.values()))
            body.append(
                Row(
                    [
                        shape_words(some),
                        verdict(group, "torch"),
                        spread_cell(group.get(CHOOSER)),
                        *(time_cell(group.get(name), reasons) for name in (*who, COPY)),
                    ],
                    anchor(some),
                )
            )
        head = ["shape", "against torch", 'µs, ours <span class="quiet">p20–p80</span>']
        page.html(table([*head, *(label_of(name) for name in (*who, COPY))], body, 2))
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
