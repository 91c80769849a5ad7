"""From rows to numbers: throughput, ratios to the copy and to the best peer, and a short table for
the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import exp, log

from softmax_bench.roster import CHOOSER, COPY, LIBRARIES


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


def best_peer(group: dict[str, dict]) -> str | None:
    """The fastest other library with a right answer."""
    times = {name: timed(group.get(name)) for name in LIBRARIES}
    times = {name: value for name, value in times.items() if value}
    return min(times, key=times.get) if times else None


def ratio(group: dict[str, dict], over: str, name: str = CHOOSER) -> float | None:
    """How many times faster ours, or the provider `name`, is than another; above one is a win."""
    own, other = timed(group.get(name)), timed(group.get(over))
    return other / own if own and other else None


LEVEL = 0.02
"""Two speeds that differ by no more than this share are level."""


def standing(factor: float | None) -> str:
    """Ahead, level or behind, by how many times faster ours is; without an answer it is behind.

    >>> [standing(factor) for factor in (1.03, 1.01, 0.99, 0.97, None)]
    ['ahead', 'level', 'level', 'behind', 'behind']
    """
    if factor is None or factor < 1 - LEVEL:
        return "behind"
    return "ahead" if factor > 1 + LEVEL else "level"


def geometric_mean(values: list[float]) -> float | None:
    """The geometric mean, or None of nothing.

    >>> round(geometric_mean([2.0, 8.0]), 9)
    4.0
    """
    return exp(sum(map(log, values)) / len(values)) if values else None


def mean_and_worst(values: Iterable[float | None]) -> str:
    """Geometric mean and least of what is known, for a table of the terminal.

    >>> mean_and_worst([2.0, None, 8.0]), mean_and_worst([])
    ('  4.000   2.000', '      –       –')
    """
    known = [value for value in values if value]
    mean = geometric_mean(known)
    return f"{mean:7.3f} {min(known):7.3f}" if mean else "      –       –"


def warm(row: dict | None) -> float | None:
    """The median in microseconds with a warm cache, of a row whose answer is right."""
    return row["us_warm"]["p50"] if row and row["status"] == "ok" and "us_warm" in row else None


def summary(rows: list[dict], worst: int = 25) -> str:
    """For the terminal: each suite and kind of cell by geometric mean and worst of our speed over
    the copy's and over the best other's, and the worst cells."""
    kinds: dict[tuple[str, ...], list[tuple]] = {}
    cells = []
    for case, group in by_case(rows).items():
        ours, peer = group.get(CHOOSER), best_peer(group)
        if ours is None or ours["suite"] in ("compiles", "accuracy"):
            continue
        both = ratio(group, COPY), ratio(group, peer) if peer else None
        cells.append((case, both, peer, ours))
        suite = ours["suite"]
        for kind in ((suite,), (suite, ours["op"], ours["direction"], ours["dtype"])):
            kinds.setdefault(kind, []).append(both)
    lines = [f"{'':<52} cells of copy   worst of best   worst  level"]
    for kind, found in sorted(kinds.items()):
        shown = " ".join(map(mean_and_worst, zip(*found, strict=True)))
        level = sum(1 for _, factor in found if standing(factor) != "behind") / len(found)
        lines.append(f"{', '.join(kind):<52} {len(found):5} {shown} {level:6.0%}")
    lines.append(f"\nworst {worst} against the best other")
    for case, (copy, factor), peer, row in sorted(cells, key=lambda each: each[1][1] or 0)[:worst]:
        words = f"{factor:.3f}" if factor else row["status"]
        us = f"{timed(row) or 0:8.1f} µs, {copy or 0:.3f} of copy"
        lines.append(f"{words:>7} {peer or '':<13} {us}  {case}  {','.join(row['kernels'])}")
    failed = [row for row in rows if row["provider"] == CHOOSER and row["status"] != "ok"]
    lines += [f"{row['status']}: {row['case']}: {row['reason']}" for row in failed]
    states = Counter(row["status"] for row in rows)
    lines.append(
        "rows: " + ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    )
    return "\n".join(lines)


def seed_record(rows: list[dict]) -> dict:
    """What a seed of the suite `random` gave, in the few numbers that are kept of one on which
    constants were tuned."""
    cells = [group for group in by_case(rows).values() if CHOOSER in group and best_peer(group)]

    def mean(values: Iterable[float | None]) -> float:
        return round(geometric_mean([value for value in values if value]) or 0.0, 4)

    over_best = [ratio(group, best_peer(group) or "") or 0.0 for group in cells]
    return {
        "seed": rows[0]["seed"],
        "utc": max(row["utc"] for row in rows),
        "cells": len(cells),
        "against": [name for name in LIBRARIES if any(timed(group.get(name)) for group in cells)],
        "level": round(sum(value >= 1 - LEVEL for value in over_best) / len(cells), 4),
        "over_best": mean(over_best),
        "over_torch": mean([ratio(group, "torch") for group in cells]),
        "of_copy": mean([ratio(group, COPY) for group in cells]),
        "worst": round(min(over_best), 4),
    }
