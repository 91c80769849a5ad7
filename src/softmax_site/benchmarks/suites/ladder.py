"""Every rung on the same shapes."""

from __future__ import annotations

from softmax_bench.report import LEVEL, by_case, geometric_mean, standing, timed
from softmax_bench.roster import CHOOSER, COPY, RUNGS, label_of
from softmax_site.benchmarks.data import anchor, is_odd, of_suite, shape_words
from softmax_site.benchmarks.page import Page, Rendered
from softmax_site.benchmarks.plots import Plot, Series, columns_of, draw, share_of
from softmax_site.benchmarks.suites.parts import length, parts_of
from softmax_site.benchmarks.tables import Reasons, Row, share_cell, speed_cell, table
from softmax_site.benchmarks.words import percent


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
