"""Two runs beside each other: a guard against a kernel that became slower."""

from __future__ import annotations

from softmax_bench.report import geometric_mean, timed
from softmax_bench.roster import CHOOSER, COPY, RUNGS


def keyed(data: dict) -> dict[tuple[str, str], dict]:
    """The rows of a file by case and provider."""
    return {(row["case"], row["provider"]): row for row in data["rows"]}


def slowdowns(before: dict, after: dict, *, per_copy: bool) -> list[tuple]:
    """(case, provider, before, after, ratio) for each row of ours that both runs hold; a ratio
    above one is a slowdown.

    An answer that was right and no longer is counts as infinitely slow. With `per_copy` each time
    is divided by the time of the copy of its own run, so that two machines of different speed can
    be compared.
    """
    old, new = keyed(before), keyed(after)
    found = []
    for (case, provider), row in old.items():
        later = new.get((case, provider))
        first, second = timed(row), timed(later)
        if later is None or first is None or provider not in (CHOOSER, *RUNGS):
            continue
        if second is None:
            if later["status"] in ("wrong", "failed", "refused"):
                found.append((case, provider, first, None, float("inf")))
            continue
        ratio = second / first
        if per_copy:
            copy_before, copy_after = timed(old.get((case, COPY))), timed(new.get((case, COPY)))
            if not copy_before or not copy_after:
                continue
            ratio *= copy_before / copy_after
        found.append((case, provider, first, second, ratio))
    return sorted(found, key=lambda item: -item[4])


def compare(before: dict, after: dict, max_slowdown: float, *, per_copy: bool = False):
    """The table as text, and whether every row keeps to the limit."""
    rows = slowdowns(before, after, per_copy=per_copy)
    lines = [f"{'case':<58} {'provider':<15} {'before µs':>10} {'after µs':>10} {'ratio':>7}"]
    for case, provider, first, second, ratio in rows:
        mark = "  SLOWER" if ratio > max_slowdown else ""
        after_us = f"{second:10.1f}" if second is not None else f"{'no answer':>10}"
        lines.append(f"{case:<58} {provider:<15} {first:10.1f} {after_us} {ratio:7.3f}{mark}")
    if not rows:
        lines.append("the two files have no row in common")
        return "\n".join(lines), False
    finite = [ratio for *_, ratio in rows if ratio != float("inf")]
    if finite:
        lines.append(f"geometric mean {geometric_mean(finite):.3f} over {len(finite)} rows")
    worse = sum(ratio > max_slowdown for *_, ratio in rows)
    lines.append(f"{worse} rows slower than {max_slowdown:g} times before")
    return "\n".join(lines), worse == 0
