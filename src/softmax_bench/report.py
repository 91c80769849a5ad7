"""From rows to numbers: throughput, ratios to the copy and to the best peer; for the terminal a
short table of a run, or two runs beside each other: a guard against a kernel that became slower."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from statistics import geometric_mean as mean_of
from typing import NamedTuple

from softmax_bench.roster import CHOOSER, COPY, LIBRARIES, RUNGS


def gbs(row: dict | None) -> float | None:
    """Useful traffic over the median time, in GB/s; None where there is no time."""
    if not row or not row["us"] or not row["us"]["p50"] or not row["bytes"]:
        return None
    return row["bytes"] / row["us"]["p50"] / 1e3


def by_case(rows: list[dict]) -> dict[str, dict[str, dict]]:
    """Rows by case and provider, cases in the order of the data."""
    table: dict[str, dict[str, dict]] = {}
    for row in rows:
        table.setdefault(row["case"], {})[row["provider"]] = row
    return table


def timed(row: dict | None) -> float | None:
    """The median in microseconds of a row whose answer is right."""
    if row is None or row["status"] != "ok" or not row["us"]:
        return None
    return row["us"]["p50"]


class Answers(NamedTuple):
    """What became of the cases that a library might have answered."""

    right: int
    wrong: int
    failed: int
    """It refused them, or broke."""
    unasked: int
    """It is not installed, or a case is not for it."""


def answers(groups: Iterable[dict[str, dict]]) -> dict[str, Answers]:
    """What became of the cases, by library, of those that some case was for.

    >>> rows = [{"status": "ok", "us": {"p50": 1.0}}, {"status": "refused", "us": None}]
    >>> answers([{"torch": rows[0], "quack": rows[1]}, {"torch": rows[0]}])["quack"]
    Answers(right=0, wrong=0, failed=1, unasked=1)
    """
    cases = list(groups)
    found = {}
    for name in LIBRARIES:
        rows = [group[name] for group in cases if name in group]
        right = sum(timed(row) is not None for row in rows)
        states = Counter(row["status"] for row in rows)
        wrong, failed = states["wrong"], states["refused"] + states["failed"]
        if rows:
            found[name] = Answers(right, wrong, failed, len(cases) - right - wrong - failed)
    return found


def says_no(reason: str | None) -> bool:
    """Whether a library says in an error of no particular type that it does not take the shape.

    >>> says_no("RuntimeError: n = 81188 exceeds the recommended Triton blocksize = 65536.")
    True
    """
    return "exceeds the recommended Triton blocksize" in (reason or "")


def best_peer(group: dict[str, dict]) -> str | None:
    """The fastest other library with a right answer."""
    times = {name: timed(group.get(name)) for name in LIBRARIES}
    times = {name: value for name, value in times.items() if value}
    return min(times, key=times.get) if times else None


def ratio(group: dict[str, dict], over: str, name: str = CHOOSER) -> float | None:
    """How many times faster ours, or the provider `name`, is than another; above one is a win."""
    own, other = timed(group.get(name)), timed(group.get(over))
    return other / own if own and other else None


TURNS = 10
"""How often all who are compared are timed in turn."""

APART = 0.416
"""So many microseconds are no difference: by as much what passes between events and kernel
alternates from launch to launch (docs/benchmarks/pace.json)."""

NEAR = 0.02
"""Nor is so large a share of the time: tensors elsewhere in memory change a copy's time by as
much, which turns on the same tensors do not show."""


LEVEL = 0.05
"""Speeds of rows whose turns were not kept, as before 2026-11-28, are level within this share."""


def interval(group: dict[str, dict], over: str, name: str = CHOOSER) -> tuple[float, float] | None:
    """Between what two values a `ratio` lies, from the medians of turns that both took: the second
    least and the second largest of `TURNS` ratios have their median between them with a confidence
    of 98 %, whatever the distribution. Of fewer turns, as slow calls take, all ratios lie between
    them. None where one has no right answer.

    >>> of_row = {"status": "ok", "us": {"p50": 20.0}}
    >>> rows = {"ours": [20.0] * 10, "torch": [30.0, 30.2] * 4 + [31.0, 99.0]}
    >>> group = {name: of_row | {"us_turns": turns} for name, turns in rows.items()}
    >>> interval(group, "torch", "ours")
    (1.5, 1.55)
    """
    rows = [group[each] for each in (over, name) if timed(group.get(each))]
    if len(rows) < 2:
        return None
    if not all("us_turns" in row for row in rows):
        factor = rows[0]["us"]["p50"] / rows[1]["us"]["p50"]
        return factor * (1 - LEVEL), factor / (1 - LEVEL)
    turns = [row["us_turns"] for row in rows]
    ratios = sorted(other / own for other, own in zip(*turns, strict=False))
    left_out = len(ratios) == TURNS
    return ratios[left_out], ratios[-1 - left_out]


def standing(group: dict[str, dict], over: str, name: str = CHOOSER) -> str:
    """Ahead of or behind another, if the interval of their ratio excludes one and their times
    differ by more than `APART` and `NEAR`; else level. Without an answer it is behind.

    >>> of_row = {"status": "ok", "us": {"p50": 30.0}, "us_turns": [30.0, 30.1] * 5}
    >>> rest = {"noisy": [29.0, 31.0] * 5, "slow": [31.0, 31.1] * 5, "near": [30.1, 30.2] * 5}
    >>> other = {name: {"us": {"p50": of[0]}, "us_turns": of} for name, of in rest.items()}
    >>> group = {"ours": of_row, **{name: of_row | of for name, of in other.items()}}
    >>> [standing(group, name, "ours") for name in rest]
    ['level', 'ahead', 'level']
    >>> standing(group, "ours", "slow"), standing(group, "ours", "none")
    ('behind', 'behind')
    """
    bounds = interval(group, over, name)
    if bounds is None:
        return "behind"
    slower_by = group[over]["us"]["p50"] - group[name]["us"]["p50"]
    apart = max(APART, NEAR * group[name]["us"]["p50"])
    if bounds[0] > 1 and slower_by > apart:
        return "ahead"
    return "behind" if bounds[1] < 1 and slower_by < -apart else "level"


def geometric_mean(values: list[float]) -> float | None:
    """The geometric mean, or None of nothing.

    >>> round(geometric_mean([2.0, 8.0]), 9)
    4.0
    """
    return mean_of(values) if values else None


def warm(row: dict | None) -> float | None:
    """The median in microseconds with a warm cache, of a row whose answer is right."""
    return row["us_warm"]["p50"] if row and row["status"] == "ok" and "us_warm" in row else None


def looped(row: dict | None) -> float | None:
    """The microseconds of a call in a loop, of a row whose answer is right."""
    return row["us_loop"] if row and row["status"] == "ok" and "us_loop" in row else None


def means(columns: tuple[str, ...], kinds: dict[str, list[tuple[float | None, ...]]]) -> str:
    """For the terminal: of each kind of cell the geometric mean and the least of each column, whose
    values are None where nothing was measured."""
    lines = [f"{'':<48} cells" + "".join(f"  {name:>12}   worst" for name in columns)]
    for kind, cells in sorted(kinds.items()):
        known = [[value for value in column if value] for column in zip(*cells, strict=True)]
        shown = (
            f"  {geometric_mean(each) or 0:12.3f} {min(each, default=0):7.3f}" for each in known
        )
        lines.append(f"{kind:<48} {len(cells):5}" + "".join(shown))
    return "\n".join(lines)


def summary(rows: list[dict]) -> str:
    """For the terminal: our speed over the copy's and over the best other's, and what failed."""
    kinds: dict[str, list[tuple[float | None, ...]]] = {}
    beside = Counter()
    for group in by_case(rows).values():
        ours = group.get(CHOOSER)
        if ours and ours["suite"] not in ("compiles", "accuracy"):
            kind = ", ".join(ours[name] for name in ("suite", "op", "direction", "dtype"))
            peer = best_peer(group) or ""
            kinds.setdefault(kind, []).append((ratio(group, COPY), ratio(group, peer)))
            if peer:
                beside[standing(group, peer)] += 1
    failed = [row for row in rows if row["provider"] == CHOOSER and row["status"] != "ok"]
    lines = [f"{row['status']}: {row['case']}: {row['reason']}" for row in failed]
    if beside:
        counts = ", ".join(f"{beside[state]} {state}" for state in ("ahead", "level", "behind"))
        lines.append(f"beside the best other, by intervals from paired turns: {counts}")
    states = Counter(row["status"] for row in rows)
    lines.append("rows: " + ", ".join(f"{number} {state}" for state, number in states.items()))
    return "\n".join([means(("of the copy", "of the best"), kinds), *lines])


def slowdowns(before: list[dict], after: list[dict], *, per_copy: bool) -> list[tuple]:
    """(case, provider, before, after, ratio) for each row of ours that both runs hold; a ratio
    above one is a slowdown.

    An answer that was right and no longer is counts as infinitely slow. With `per_copy` each time
    is divided by the time of the copy of its own run, so that two machines of different speed can
    be compared.
    """
    found, of_cases = [], by_case(after)
    for case, old in by_case(before).items():
        new = of_cases.get(case, {})
        for name in (CHOOSER, *RUNGS):
            first, second = timed(old.get(name)), timed(new.get(name))
            if first and second:
                then, now = second, first
                if per_copy:
                    then, now = ratio(old, COPY, name), ratio(new, COPY, name)
                if then and now:
                    found.append((case, name, first, second, then / now))
            elif first and name in new and new[name]["status"] in ("wrong", "failed", "refused"):
                found.append((case, name, first, None, float("inf")))
    return sorted(found, key=lambda item: -item[4])


def compare(before: list[dict], after: list[dict], max_slowdown: float, *, per_copy: bool = False):
    """The table as text, and whether every row keeps to the limit."""
    rows = slowdowns(before, after, per_copy=per_copy)
    lines = [f"{'case':<58} {'provider':<15} {'before µs':>10} {'after µs':>10} {'ratio':>7}"]
    for case, provider, first, second, factor in rows:
        mark = "  SLOWER" if factor > max_slowdown else ""
        after_us = f"{second:10.1f}" if second is not None else f"{'no answer':>10}"
        lines.append(f"{case:<58} {provider:<15} {first:10.1f} {after_us} {factor:7.3f}{mark}")
    if not rows:
        lines.append("the two files have no row in common")
        return "\n".join(lines), False
    finite = [factor for *_, second, factor in rows if second is not None]
    if finite:
        lines.append(f"geometric mean {geometric_mean(finite):.3f} over {len(finite)} rows")
    worse = sum(factor > max_slowdown for *_, factor in rows)
    lines.append(f"{worse} rows slower than {max_slowdown:g} times before")
    return "\n".join(lines), worse == 0
