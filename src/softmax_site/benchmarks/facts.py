"""What the measurements say to statements that the kernels' pages discuss."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from softmax_bench.report import by_case, gbs, timed
from softmax_bench.roster import COPY
from softmax_site.benchmarks.data import n_cols, of_suite
from softmax_site.benchmarks.page import Fragment, block, measured_by
from softmax_site.benchmarks.rungs import NOT_MEASURED
from softmax_site.benchmarks.suites.articles import TUTORIAL_COLUMNS, gain_sentence
from softmax_site.benchmarks.tables import Row, table
from softmax_site.benchmarks.words import measured_line

ARTICLE = ("single_block", "two_loops")
"""The kernels of ours that the article's single-block and multi-block kernels became."""


def gain(data: dict) -> Fragment:
    """How much faster one kernel is than the naive lines, and why it is more than its bytes say."""
    rows = [row for row in of_suite(data, "article") if n_cols(row) <= TUTORIAL_COLUMNS]
    if not rows:
        return NOT_MEASURED
    return Fragment(
        block(gain_sentence(rows)) + "\n\n" + measured_line(data, rows) + "\n", measured_by(rows)
    )


def observations(data: dict) -> Fragment:
    """Three sentences of the article about its multi-block kernel, beside what we measured."""
    rows = of_suite(data, "article")
    groups: dict[int, dict[str, float]] = {}
    for group in by_case(rows).values():
        times = {name: time for name, row in group.items() if (time := timed(row))}
        if {COPY, "torch", *ARTICLE} <= times.keys():
            groups[n_cols(next(iter(group.values())))] = times
    if not groups:
        return NOT_MEASURED

    def share(lengths: Callable[[int], bool]) -> str:
        found = [t[COPY] / t["two_loops"] for size, t in groups.items() if lengths(size)]
        return f"{median(found):.2f}"

    def ahead(lengths: Callable[[int], bool], of: str) -> str:
        found = [t["two_loops"] < t[of] for size, t in groups.items() if lengths(size)]
        return f"{sum(found)} of {len(found)}"

    long = [
        speed
        for row in rows
        if row["provider"] == "two_loops" and n_cols(row) > 60_000 and (speed := gbs(row))
    ]
    body: list[Row | list[str]] = [
        [
            "The multi-block kernel falls off from about 6,000 columns on.",
            f"It reaches {share(lambda n: n <= 6_000)} of a copy’s speed up to 6,000 columns, in "
            f"the median, {share(lambda n: 6_000 < n <= 12_672)} from there to 12,672, and "
            f"{share(lambda n: n > 12_672)} beyond.",
        ],
        [
            "Beyond 30,000 columns it beats torch.",
            f"It does at {ahead(lambda n: n > 30_000, 'torch')} lengths beyond 30,000, and at "
            f"{ahead(lambda n: n <= 30_000, 'torch')} below.",
        ],
        [
            "Beyond 60,000 it is the fastest of all.",
            f"It is faster than the single block at "
            f"{ahead(lambda n: n > 60_000, 'single_block')} lengths beyond 60,000, and than torch "
            f"at {ahead(lambda n: n > 60_000, 'torch')}, at {min(long):,.0f} to {max(long):,.0f} "
            "GB/s; speeds of another GPU are not comparable.",
        ],
    ]
    text = block(table(["the article, on its GPU", "here, on the same shapes"], body, 2))
    return Fragment(text + "\n\n" + measured_line(data, rows) + "\n", measured_by(rows, ARTICLE))


def fragments(data: dict) -> dict[str, Fragment]:
    """The fragments by name."""
    return {"fact-gain": gain(data), "fact-observations": observations(data)}
