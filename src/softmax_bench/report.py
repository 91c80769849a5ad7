"""From rows to numbers: throughput, ratios to the copy and to the best peer, and a short table for
the terminal."""

from __future__ import annotations

from collections.abc import Sequence
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


def ratio(group: dict[str, dict], over: str) -> float | None:
    """How many times faster ours is than another provider; above one is a win."""
    ours, other = timed(group.get(CHOOSER)), timed(group.get(over))
    return other / ours if ours and other else None


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


def short_table(rows: list[dict], limit: int = 150) -> str:
    """One line per case with ours: share of the copy, and ratio to the best peer."""
    lines, over_peer, over_torch = [], [], []
    states: dict[str, int] = {}
    for row in rows:
        states[row["status"]] = states.get(row["status"], 0) + 1
    for case, group in by_case(rows).items():
        ours = group.get(CHOOSER)
        if ours is None or ours["suite"] in ("compiles", "accuracy"):
            continue
        copy, peer = ratio(group, COPY), best_peer(group)
        to_peer = ratio(group, peer) if peer else None
        if to_peer:
            over_peer.append(to_peer)
        if ratio(group, "torch"):
            over_torch.append(ratio(group, "torch"))
        us = timed(ours)
        lines.append(
            f"{case:<52} {f'{us:9.1f} us' if us else ours['status']:>12}"
            f" {f'{copy:.3f} of copy' if copy else '':>14}"
            f" {f'{to_peer:.3f} x {peer}' if to_peer else '':>22}"
            f"{'  LOSS' if to_peer and standing(to_peer) == 'behind' else ''}"
        )
    shown = lines[-limit:]
    if len(lines) > limit:
        shown.insert(0, f"… {len(lines) - limit} lines left out")
    for name, values in (("best peer", over_peer), ("torch", over_torch)):
        if values:
            shown.append(
                f"geometric mean over {name}: {geometric_mean(values):.3f} ({len(values)} cases)"
            )
    shown.append(
        "rows: " + ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    )
    return "\n".join(shown)


def size_class(row: dict) -> str:
    """How much a cell moves: what decides whether launches, bytes or waiting weigh most.

    >>> size_class({"bytes": 2**20}), size_class({"bytes": 2**28})
    ('below 4 MiB', 'from 64 MiB')
    """
    mebibytes = row["bytes"] / 2**20
    if mebibytes < 4:
        return "below 4 MiB"
    return "4 to 64 MiB" if mebibytes < 64 else "from 64 MiB"


def warm(row: dict | None) -> float | None:
    """The median in microseconds with a warm cache, of a row whose answer is right."""
    return row["us_warm"]["p50"] if row and row["status"] == "ok" and "us_warm" in row else None


def class_table(rows: list[dict], worst: int = 25) -> str:
    """The suite `random` for the terminal: each class of cells, and the worst cells.

    Each class by geometric mean and worst of our speed over the copy's and over the best other's.
    """
    from softmax_bench.random_shapes import layout_of

    classes: dict[tuple, list[tuple]] = {}
    cells = []
    for case, group in by_case(rows).items():
        ours, peer = group.get(CHOOSER), best_peer(group)
        if ours is None:
            continue
        to_copy, to_peer = ratio(group, COPY), ratio(group, peer) if peer else None
        cells.append((case, to_copy, to_peer, peer, timed(ours), ours))
        where = layout_of(ours), ours["op"], ours["direction"], ours["dtype"]
        size = size_class(ours)
        warm_times = [warm(group.get(name)) for name in LIBRARIES]
        best = min((us for us in warm_times if us), default=None)
        own = warm(ours)
        of_warm = best / own if best and own else None
        for key in (
            ("all",),
            (where[0],),
            (size,),
            where[:1] + where[1:3],
            where[:1] + where[2:],
            where[:1] + where[2:] + (size,),
        ):
            classes.setdefault(key, []).append((to_copy, to_peer, of_warm))
    lines = [
        f"{'class':<62} {'cells':>5}  {'of copy: mean':>13} {'worst':>6}  "
        f"{'of best: mean':>13} {'worst':>6} {'level':>6}  {'warm: mean':>10} {'worst':>6}"
    ]
    for key in sorted(classes, key=lambda key: (len(key), key)):
        found = classes[key]
        columns = [[value for value in column if value] for column in zip(*found, strict=True)]
        copy, peer, warmed = columns
        level = sum(value >= 1 - LEVEL for value in peer) / len(peer) if peer else 0.0
        lines.append(
            f"{', '.join(key):<62} {len(found):>5}  {_mean_and_worst(copy, 13)}  "
            f"{_mean_and_worst(peer, 13)} {level:>6.0%}  {_mean_and_worst(warmed, 10)}"
        )
    cells.sort(key=lambda cell: cell[2] if cell[2] else 0.0)
    lines.append(f"\nworst {worst} against the best other")
    for case, to_copy, to_peer, peer, us, row in cells[:worst]:
        lines.append(
            f"{f'{to_peer:.3f}' if to_peer else row['status']:>7} {peer or '':<13} "
            f"{f'{to_copy:.3f} of copy' if to_copy else '':<14} "
            f"{f'{us:8.1f} us' if us else '':>11}  {case}  {','.join(row['kernels'])}"
        )
    failed = [row for row in rows if row["provider"] == CHOOSER and row["status"] != "ok"]
    lines += [f"{row['status']}: {row['case']}: {row['reason']}" for row in failed]
    return "\n".join(lines)


def _mean_and_worst(values: list[float], width: int) -> str:
    mean = geometric_mean(values)
    return f"{mean:{width}.3f} {min(values):6.3f}" if mean else f"{'':>{width}} {'':>6}"


def seed_record(rows: list[dict]) -> dict:
    """What a seed of the suite `random` gave, in the few numbers that are kept of one on which
    constants were tuned."""
    cells = [group for group in by_case(rows).values() if CHOOSER in group and best_peer(group)]

    def mean(values: Sequence[float | None]) -> float:
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
