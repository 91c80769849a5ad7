"""The targets, cell by cell: which are met, and by how much the others are missed."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass

from softmax_bench.report import best_peer, by_case, geometric_mean, ratio, timed
from softmax_bench.roster import CHOOSER, COPY, label_of

COMPILES_AT_MOST = 20
HOST_AT_MOST = 1.5
PEER_AT_LEAST = 0.98
OVER_BEST_PEER = 1.15
OVER_TORCH = 1.6
FEW_ROWS_MICROSECONDS = 8.0
MANY_ROWS_LIMIT = 262144


@dataclass(frozen=True)
class Cell:
    """One target for one case."""

    regime: str
    case: str
    asked: str
    reached: str
    met: bool
    margin: float
    """How far above the target, as a factor; below one is a miss."""


def _share(regime: str, case: str, group: dict, least: float) -> Cell:
    share = ratio(group, COPY)
    if share is None:
        return Cell(
            regime, case, f"at least {least:.2f} of the copy", group[CHOOSER]["status"], False, 0.0
        )
    return Cell(
        regime,
        case,
        f"at least {least:.2f} of the copy",
        f"{share:.3f} of the copy",
        share >= least,
        share / least,
    )


def _peer(regime: str, case: str, group: dict, least: float) -> Cell | None:
    peer = best_peer(group)
    if peer is None:
        return None
    factor = ratio(group, peer)
    asked = f"at least {least:.2f} times as fast as the best other library"
    if factor is None:
        return Cell(regime, case, asked, group[CHOOSER]["status"], False, 0.0)
    return Cell(
        regime, case, asked, f"{factor:.3f} ({label_of(peer)})", factor >= least, factor / least
    )


def _few_rows(case: str, group: dict) -> list[Cell]:
    backward = group[CHOOSER]["direction"] == "backward"
    regime = f"few rows, {group[CHOOSER]['direction']}"
    times = 2.5 if backward else 2.0
    asked = f"at most {times:g} times the copy's time, or {FEW_ROWS_MICROSECONDS:g} µs"
    us, copy = timed(group[CHOOSER]), timed(group.get(COPY))
    if us is None or copy is None:
        cells = [Cell(regime, case, asked, group[CHOOSER]["status"], False, 0.0)]
    else:
        allowed = max(times * copy, FEW_ROWS_MICROSECONDS)
        cells = [
            Cell(
                regime,
                case,
                asked,
                f"{us / copy:.2f} times, {us:.1f} µs",
                us <= allowed,
                allowed / us,
            )
        ]
    peer = _peer(regime, case, group, 1.0)
    return cells + ([peer] if peer else [])


def _host(case: str, group: dict) -> Cell:
    row = group[CHOOSER]
    times = ratio(group, "torch")
    asked = f"at most {HOST_AT_MOST} times torch.softmax"
    if times is None:
        return Cell("host time", case, asked, row["status"], False, 0.0)
    return Cell(
        "host time",
        case,
        asked,
        f"{1 / times:.2f} times",
        1 / times <= HOST_AT_MOST,
        times * HOST_AT_MOST,
    )


def _compiles(case: str, row: dict) -> Cell:
    asked = f"at most {COMPILES_AT_MOST} kernels"
    if row["count"] is None:
        return Cell("compiles", case, asked, row["status"], False, 0.0)
    met = row["count"] <= COMPILES_AT_MOST
    return Cell(
        "compiles",
        case,
        asked,
        f"{row['count']} kernels",
        met,
        COMPILES_AT_MOST / max(1, row["count"]),
    )


TOKENS_MICROSECONDS = {"forward": 640.0, "forward_backward": 1940.0}
TEMPERATURE_MICROSECONDS = 42.0
OF_PLAIN = 0.98
LOSS_FORWARD = 0.95
OVER_LIMIT = 1.10


def _at_most(regime: str, case: str, row: dict, most: float) -> Cell:
    us = timed(row)
    asked = f"at most {most:g} µs"
    if us is None:
        return Cell(regime, case, asked, row["status"], False, 0.0)
    return Cell(regime, case, asked, f"{us:.1f} µs", us <= most, most / us)


def _loss_head(case: str, group: dict) -> list[Cell]:
    ours = group[CHOOSER]
    op, direction, inputs = ours["op"], ours["direction"], ours["inputs"]
    regime = f"loss head, {op}, {direction}"
    if op == "cross_entropy":
        return [
            _share(regime, case, group, LOSS_FORWARD if direction == "forward" else 1 / OVER_LIMIT)
        ]
    if op == "linear_cross_entropy":
        return [_share(regime, case, group, 1 / OVER_LIMIT)]
    if op == "token_logprobs":
        return [_at_most(regime, case, ours, TOKENS_MICROSECONDS[direction])]
    if inputs == "temperature":
        return [_at_most(regime, case, ours, TEMPERATURE_MICROSECONDS)]
    if inputs == "causal":
        return [_share(regime, case, group, 1.0)]
    share = ratio(group, "packed_rows")
    asked = f"at least {OF_PLAIN:.2f} times as fast as plain softmax"
    if share is None:
        return [Cell(regime, case, asked, ours["status"], False, 0.0)]
    return [Cell(regime, case, asked, f"{share:.3f}", share >= OF_PLAIN, share / OF_PLAIN)]


def cells(rows: list[dict]) -> list[Cell]:
    """Every target for every case that was measured."""
    found: list[Cell] = []
    for case, group in by_case(rows).items():
        ours = group.get(CHOOSER)
        if ours is None or ours["status"] in ("not_run", "skipped"):
            continue
        suite = ours["suite"]
        if suite in ("forward", "backward"):
            n_cols = ours["shape"][ours["dim"]]
            if n_cols <= MANY_ROWS_LIMIT:
                regime = f"many rows, N up to {MANY_ROWS_LIMIT:,}, {suite}"
                found.append(_share(regime, case, group, 0.95))
                peer = _peer(regime, case, group, PEER_AT_LEAST)
                found += [peer] if peer else []
            else:
                found.append(
                    _share(f"many rows, N above {MANY_ROWS_LIMIT:,}, {suite}", case, group, 0.90)
                )
        elif suite == "few_rows":
            found += _few_rows(case, group)
        elif suite == "host_time":
            found.append(_host(case, group))
        elif suite == "compiles":
            found.append(_compiles(case, ours))
        elif suite == "loss_head":
            found += _loss_head(case, group)
        elif suite == "strided":
            found.append(
                _share(f"dim ≠ last, strided rows, {ours['direction']}", case, group, 0.90)
            )
    return found


def means(
    rows: list[dict], suites: tuple[str, ...] = ("forward", "backward", "few_rows")
) -> dict[str, tuple]:
    """Geometric mean over all cases of our speed relative to the best peer, and to torch: (mean,
    cases, least)."""
    over_peer, over_torch = [], []
    for group in by_case([row for row in rows if row["suite"] in suites]).values():
        peer = best_peer(group)
        if CHOOSER not in group or peer is None:
            continue
        for values, name in ((over_peer, peer), (over_torch, "torch")):
            value = ratio(group, name)
            if value:
                values.append(value)
    return {
        "best peer": (geometric_mean(over_peer), len(over_peer), min(over_peer, default=None)),
        "torch": (geometric_mean(over_torch), len(over_torch), min(over_torch, default=None)),
    }


def reason_for(case: str, reasons: dict[str, str]) -> str:
    """The reason given for a case that misses: the first pattern that fits."""
    for pattern, reason in reasons.items():
        if fnmatch.fnmatchcase(case, pattern):
            return reason
    return ""
