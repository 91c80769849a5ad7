"""The benchmarks of two of the sources, on their shapes."""

from __future__ import annotations

from softmax_bench import traffic
from softmax_bench.report import by_case, geometric_mean, timed
from softmax_bench.roster import CHOOSER, COPY, label_of
from softmax_site.benchmarks.data import anchor, n_cols, of_suite, shape_words
from softmax_site.benchmarks.page import Page, Rendered
from softmax_site.benchmarks.plots import Column, Plot, Series, columns_of, draw
from softmax_site.benchmarks.suites.parts import length, parts_of
from softmax_site.benchmarks.tables import (
    Reasons,
    Row,
    folded,
    speed_cell,
    spread_cell,
    table,
    time_cell,
)
from softmax_site.benchmarks.words import verdict

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
