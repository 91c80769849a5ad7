"""The targets, cell by cell: which are met, and by how much the others are missed."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from dataclasses import dataclass

from softmax_bench.report import best_peer, by_case, ratio, timed
from softmax_bench.roster import CHOOSER, COPY, label_of

COMPILES_AT_MOST = 20
HOST_AT_MOST = 1.5
PEER_AT_LEAST = 0.98
OVER_BEST_PEER = 1.15
OVER_TORCH = 1.6
FEW_ROWS_MICROSECONDS = 8.0
MANY_ROWS_LIMIT = 262144
OF_PLAIN = 0.98
OF_COPY = {
    ("cross_entropy", "forward"): 0.95,
    ("cross_entropy", "forward_backward"): 1 / 1.10,
    ("linear_cross_entropy", "forward_backward"): 1 / 1.10,
    ("token_logprobs", "forward"): 0.92,
    ("token_logprobs", "forward_backward"): 0.91,
    ("modified_softmax", "forward"): 1.0,
}
"""Of the loss head; of log-probabilities, as near to the copy as was asked for in µs on an H200."""


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


Judged = tuple[str, str, float | None, str]
"""What is asked of which kind of cell, the margin, and what was reached in words."""


def _at_least(
    regime: str, group: dict, over: str, least: float, whose: str, of: str = ""
) -> Judged:
    """A speed relative to somebody's."""
    reached = ratio(group, over)
    asked = f"at least {least:.2f} {whose}"
    return regime, asked, reached and reached / least, f"{reached or 0:.3f}{of}"


def _of_copy(regime: str, group: dict, least: float) -> Judged:
    return _at_least(regime, group, COPY, least, "of the copy", " of the copy")


def _of_peer(regime: str, group: dict, least: float) -> Iterator[Judged]:
    if peer := best_peer(group):
        whose = "times as fast as the best other library"
        yield _at_least(regime, group, peer, least, whose, f" ({label_of(peer)})")


def _few_rows(group: dict) -> Iterator[Judged]:
    direction, us, copy = group[CHOOSER]["direction"], timed(group[CHOOSER]), timed(group.get(COPY))
    times = 2.5 if direction == "backward" else 2.0
    asked = f"at most {times:g} times the copy's time, or {FEW_ROWS_MICROSECONDS:g} µs"
    margin, words = None, ""
    if us is not None and copy is not None:
        margin = max(times * copy, FEW_ROWS_MICROSECONDS) / us
        words = f"{us / copy:.2f} times, {us:.1f} µs"
    yield f"few rows, {direction}", asked, margin, words
    yield from _of_peer(f"few rows, {direction}", group, 1.0)


def _loss_head(group: dict) -> Judged:
    op, direction, inputs = (group[CHOOSER][name] for name in ("op", "direction", "inputs"))
    regime = f"loss head, {op}, {direction}"
    if inputs == "mask":
        return _at_least(regime, group, "packed_rows", OF_PLAIN, "times as fast as plain softmax")
    return _of_copy(regime, group, OF_COPY[op, direction])


def _of_case(group: dict) -> Iterator[Judged]:
    """The targets of a case; none if its suite has none."""
    ours = group[CHOOSER]
    suite = ours["suite"]
    if suite in ("forward", "backward") and ours["shape"][ours["dim"]] > MANY_ROWS_LIMIT:
        yield _of_copy(f"many rows, N above {MANY_ROWS_LIMIT:,}, {suite}", group, 0.90)
    elif suite in ("forward", "backward"):
        regime = f"many rows, N up to {MANY_ROWS_LIMIT:,}, {suite}"
        yield _of_copy(regime, group, 0.95)
        yield from _of_peer(regime, group, PEER_AT_LEAST)
    elif suite == "few_rows":
        yield from _few_rows(group)
    elif suite == "host_time":
        times = ratio(group, "torch")
        words = f"{1 / times:.2f} times" if times else ""
        asked = f"at most {HOST_AT_MOST} times torch.softmax"
        yield "host time", asked, times and times * HOST_AT_MOST, words
    elif suite == "compiles":
        count = ours["count"]
        margin = None if count is None else COMPILES_AT_MOST / max(1, count)
        yield "compiles", f"at most {COMPILES_AT_MOST} kernels", margin, f"{count} kernels"
    elif suite == "loss_head":
        yield _loss_head(group)
    elif suite == "strided":
        yield _of_copy(f"dim ≠ last, strided rows, {ours['direction']}", group, 0.90)


def cells(rows: list[dict]) -> list[Cell]:
    """Every target for every case that was measured. Without a number, the state of our row says
    why."""
    found = []
    for case, group in by_case(rows).items():
        state = group[CHOOSER]["status"] if CHOOSER in group else "skipped"
        if state not in ("not_run", "skipped"):
            for regime, asked, margin, words in _of_case(group):
                reached = state if margin is None else words
                margin = margin or 0.0
                found.append(Cell(regime, case, asked, reached, margin >= 1, margin))
    return found


def reason_for(case: str, reasons: dict[str, str]) -> str:
    """The reason given for a case that misses: the first pattern that fits."""
    fitting = (why for pattern, why in reasons.items() if fnmatch.fnmatchcase(case, pattern))
    return next(fitting, "")
