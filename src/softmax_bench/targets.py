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


def _cell(regime: str, case: str, asked: str, row: dict, margin: float | None, words: str) -> Cell:
    """A target and what came of it; without a number, the state of our row says why."""
    if margin is None:
        return Cell(regime, case, asked, row["status"], False, 0.0)
    return Cell(regime, case, asked, words, margin >= 1, margin)


def _share(regime: str, case: str, group: dict, least: float) -> Cell:
    share = ratio(group, COPY)
    asked, words = f"at least {least:.2f} of the copy", f"{share or 0:.3f} of the copy"
    return _cell(regime, case, asked, group[CHOOSER], share and share / least, words)


def _peer(regime: str, case: str, group: dict, least: float) -> list[Cell]:
    peer = best_peer(group)
    if peer is None:
        return []
    factor = ratio(group, peer)
    asked = f"at least {least:.2f} times as fast as the best other library"
    words = f"{factor or 0:.3f} ({label_of(peer)})"
    return [_cell(regime, case, asked, group[CHOOSER], factor and factor / least, words)]


def _few_rows(case: str, group: dict) -> list[Cell]:
    ours = group[CHOOSER]
    regime = f"few rows, {ours['direction']}"
    times = 2.5 if ours["direction"] == "backward" else 2.0
    asked = f"at most {times:g} times the copy's time, or {FEW_ROWS_MICROSECONDS:g} µs"
    us, copy = timed(ours), timed(group.get(COPY))
    margin, words = None, ""
    if us is not None and copy is not None:
        margin = max(times * copy, FEW_ROWS_MICROSECONDS) / us
        words = f"{us / copy:.2f} times, {us:.1f} µs"
    return [_cell(regime, case, asked, ours, margin, words), *_peer(regime, case, group, 1.0)]


TOKENS_MICROSECONDS = {"forward": 640.0, "forward_backward": 1940.0}
TEMPERATURE_MICROSECONDS = 42.0
OF_PLAIN = 0.98
LOSS_FORWARD = 0.95
OVER_LIMIT = 1.10


def _loss_head(case: str, group: dict) -> Cell:
    ours = group[CHOOSER]
    op, direction, inputs = ours["op"], ours["direction"], ours["inputs"]
    regime = f"loss head, {op}, {direction}"
    if op in ("cross_entropy", "linear_cross_entropy"):
        forward = op == "cross_entropy" and direction == "forward"
        return _share(regime, case, group, LOSS_FORWARD if forward else 1 / OVER_LIMIT)
    if inputs == "causal":
        return _share(regime, case, group, 1.0)
    if inputs == "mask":
        share = ratio(group, "packed_rows")
        asked = f"at least {OF_PLAIN:.2f} times as fast as plain softmax"
        return _cell(regime, case, asked, ours, share and share / OF_PLAIN, f"{share or 0:.3f}")
    tokens, us = op == "token_logprobs", timed(ours)
    most = TOKENS_MICROSECONDS[direction] if tokens else TEMPERATURE_MICROSECONDS
    words = f"{us or 0:.1f} µs"
    return _cell(regime, case, f"at most {most:g} µs", ours, us and most / us, words)


def _of_case(case: str, group: dict) -> list[Cell]:
    """The targets of a case; none if its suite has none."""
    ours = group[CHOOSER]
    suite = ours["suite"]
    if suite in ("forward", "backward"):
        if ours["shape"][ours["dim"]] > MANY_ROWS_LIMIT:
            return [_share(f"many rows, N above {MANY_ROWS_LIMIT:,}, {suite}", case, group, 0.90)]
        regime = f"many rows, N up to {MANY_ROWS_LIMIT:,}, {suite}"
        return [_share(regime, case, group, 0.95), *_peer(regime, case, group, PEER_AT_LEAST)]
    if suite == "few_rows":
        return _few_rows(case, group)
    if suite == "host_time":
        times = ratio(group, "torch")
        asked = f"at most {HOST_AT_MOST} times torch.softmax"
        words = f"{1 / times:.2f} times" if times else ""
        return [_cell("host time", case, asked, ours, times and times * HOST_AT_MOST, words)]
    if suite == "compiles":
        count = ours["count"]
        margin = None if count is None else COMPILES_AT_MOST / max(1, count)
        asked = f"at most {COMPILES_AT_MOST} kernels"
        return [_cell("compiles", case, asked, ours, margin, f"{count} kernels")]
    if suite == "loss_head":
        return [_loss_head(case, group)]
    if suite == "strided":
        return [_share(f"dim ≠ last, strided rows, {ours['direction']}", case, group, 0.90)]
    return []


def cells(rows: list[dict]) -> list[Cell]:
    """Every target for every case that was measured."""
    found: list[Cell] = []
    for case, group in by_case(rows).items():
        ours = group.get(CHOOSER)
        if ours is not None and ours["status"] not in ("not_run", "skipped"):
            found += _of_case(case, group)
    return found


def means(
    rows: list[dict], suites: tuple[str, ...] = ("forward", "backward", "few_rows")
) -> dict[str, tuple]:
    """Geometric mean over all cases of our speed relative to the best peer, and to torch: (mean,
    cases, least)."""
    groups = by_case([row for row in rows if row["suite"] in suites]).values()
    groups = [group for group in groups if CHOOSER in group and best_peer(group)]
    found = {}
    for name in ("best peer", "torch"):
        over = [
            ratio(group, name if name == "torch" else best_peer(group) or "") for group in groups
        ]
        known = [factor for factor in over if factor]
        found[name] = geometric_mean(known), len(known), min(known, default=None)
    return found


def reason_for(case: str, reasons: dict[str, str]) -> str:
    """The reason given for a case that misses: the first pattern that fits."""
    for pattern, reason in reasons.items():
        if fnmatch.fnmatchcase(case, pattern):
            return reason
    return ""
