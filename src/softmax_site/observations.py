"""What the texts that this site corrects observed in their benchmarks, beside what is measured
here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from softmax_bench.report import by_case, gbs, ratio, timed
from softmax_bench.roster import COPY
from softmax_bench.traffic import FORWARD
from softmax_site.benchmarks.data import n_cols, newest, of_suite
from softmax_site.benchmarks.page import Fragment, measured_by

TUTORIAL_COLUMNS = range(128 * 2, 128 * 50, 128)
"""The lengths of the first tutorial's plot."""


def spans(lengths: list[int], holds: Callable[[int], bool]) -> str:
    """The runs of measured lengths for which something holds, as words.

    >>> spans([256, 384, 512, 640, 768], lambda n: n in (256, 640, 768))
    '256 and 640 to 768'
    >>> spans([256, 384], lambda n: False)
    'none'
    """
    runs: list[list[int]] = []
    previous = False
    for n in lengths:
        now = holds(n)
        if now and previous:
            runs[-1].append(n)
        elif now:
            runs.append([n])
        previous = now
    words = [f"{run[0]:,}" + (f" to {run[-1]:,}" if len(run) > 1 else "") for run in runs]
    return " and ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words) or "none"


def _speeds(rows: list[dict]) -> dict[int, dict[str, float]]:
    """GB/s by length and implementation."""
    found: dict[int, dict[str, float]] = {}
    for row in rows:
        speed = gbs(row) if row["status"] == "ok" else None
        if speed:
            found.setdefault(n_cols(row), {})[row["provider"]] = speed
    return dict(sorted(found.items()))


def article(rows: list[dict]) -> str:
    """The article's three observations, and whether they hold on the machine measured here."""
    speeds = _speeds(rows)
    names = ("two_loops", "single_block", "torch")
    lengths = [n for n, found in speeds.items() if all(name in found for name in names)]

    def faster(one: str, other: str) -> str:
        return spans(lengths, lambda n: speeds[n][one] > speeds[n][other])

    best = max(lengths, key=lambda n: speeds[n]["two_loops"])
    longest = speeds[lengths[-1]]["two_loops"]
    lines = [
        (
            "several tiles per row: the throughput falls from some 6,000 columns on",
            f"`two_loops` is fastest at {best:,} columns, {speeds[best]['two_loops']:,.0f} GB/s; "
            f"at {lengths[-1]:,} it has {longest:,.0f}",
        ),
        (
            "several tiles beat torch from some 30,000 columns on",
            f"`two_loops` is slower than torch only at {faster('torch', 'two_loops')} columns",
        ),
        (
            "several tiles beat one block from some 60,000 columns on",
            f"`two_loops` is faster than `single_block` at {faster('two_loops', 'single_block')} "
            "columns",
        ),
        (
            "one block and torch",
            f"`single_block` is slower than torch at {faster('torch', 'single_block')} columns",
        ),
    ]
    head = ["| the article observes | measured here, 4,096 rows, float32 |", "|---|---|"]
    return "\n".join([*head, *(f"| {theirs} | {ours} |" for theirs, ours in lines), ""])


def tutorial(rows: list[dict]) -> str:
    """The gain from fusing, by time and by traffic, and where the difference comes from."""
    gains, shares = [], []
    for group in by_case(rows).values():
        some = next(iter(group.values()))
        copy, naive, gain = timed(group.get(COPY)), timed(group.get("naive")), ratio(group, "naive")
        if n_cols(some) in TUTORIAL_COLUMNS and copy and naive and gain:
            M, N = some["shape"]
            gains.append(gain)
            # A copy moves 2MN elements; the lines move four times that and a little.
            shares.append(copy / naive * FORWARD["naive"].elements(M, N) / (2 * M * N))
    gains.sort()
    return (
        f"Measured on the tutorial's {len(gains)} lengths, the library is {gains[0]:.1f} to "
        f"{gains[-1]:.1f} times as fast as the naive lines, {gains[len(gains) // 2]:.1f} in the "
        "median. That is more than the traffic alone allows, because each of the five lines is a "
        f"kernel that falls short of a copy by itself: they move their bytes at {min(shares):.2f} "
        f"to {max(shares):.2f} of the copy's rate.\n"
    )


def fragments(root: Path) -> dict[str, Fragment]:
    """By name, for the page of the sources."""
    names = {"article-observations": article, "tutorial-gain": tutorial}
    found = newest(root)
    rows = of_suite(found[1], "article") if found else []
    if not rows:
        return {name: Fragment("Not measured yet.\n") for name in names}
    measured = measured_by(rows, ("triton_softmax", "single_block", "two_loops", "naive"))
    return {name: Fragment(make(rows), measured) for name, make in names.items()}
