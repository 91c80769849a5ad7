"""Two runs beside each other or together: a guard against a kernel that became slower, one file of
several that were measured at the same time, and rows that were measured again.

A case, its copy and all libraries are measured on one GPU, one after the other, so what is compared
was measured alike. But the processes share the machine: now and then one waits for the processor,
and the GPU for it. Such a row says nothing about the library, whichever it is, and is not kept.
"""

from __future__ import annotations

from collections.abc import Iterable

from softmax_bench.report import geometric_mean, timed
from softmax_bench.roster import CHOOSER, COPY, RUNGS
from softmax_bench.schema import SAME, DataError

DISTURBED = 2.0
"""How many times its 20th percentile the median of an undisturbed row is at most."""

REASON = "disturbed: the median is more than twice the 20th percentile"


def keyed(data: dict) -> dict[tuple[str, str], dict]:
    """The rows of a file by case and provider."""
    return {(row["case"], row["provider"]): row for row in data["rows"]}


def slowdowns(
    before: dict, after: dict, providers: tuple[str, ...] | None, *, per_copy: bool
) -> list[tuple]:
    """(case, provider, before, after, ratio) for each row both runs hold; a ratio above one is a
    slowdown.

    An answer that was right and no longer is counts as infinitely slow. With `per_copy` each time
    is divided by the time of the copy of its own run, so that two machines of different speed can
    be compared.
    """
    old, new = keyed(before), keyed(after)
    found = []
    for (case, provider), row in old.items():
        later = new.get((case, provider))
        first, second = timed(row), timed(later)
        if later is None or first is None or (providers and provider not in providers):
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


def compare(
    before: dict,
    after: dict,
    max_slowdown: float,
    *,
    per_copy: bool = False,
    everyone: bool = False,
):
    """The table as text, and whether every row keeps to the limit."""
    rows = slowdowns(before, after, None if everyone else (CHOOSER, *RUNGS), per_copy=per_copy)
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


# --- several files as one


class Different(DataError):
    """The files come from different machines or software, or hold a row twice."""


def merged(files: Iterable[dict]) -> dict:
    """The rows of all files, with one environment: that which was started first.

    Raises:
        Different: see there.
    """
    files = list(files)
    environments = [each for data in files for each in data["environments"].values()]
    first = min(environments, key=lambda each: each["started"])
    for each in environments:
        _same(first, each, first.keys() - {"started"})
    rows = {}
    for data in files:
        for key, row in keyed(data).items():
            if key in rows:
                raise Different(f"{key[1]} of {key[0]} was measured twice")
            rows[key] = undisturbed({**row, "environment": "run1"})
    return {
        "format": files[0]["format"],
        "environments": {"run1": first},
        "rows": list(rows.values()),
    }


def renewed(known: dict, newer: dict) -> dict:
    """The rows of a file, and in their place those that were measured again later, on the same kind
    of GPU and with the same software. Who was not installed then keeps his row.

    Raises:
        Different: the GPU or the software is another.
    """
    environments, rows = dict(known["environments"]), keyed(known)
    for name, each in newer["environments"].items():
        for other in environments.values():
            _same(other, each, SAME)
        own = f"run{len(environments) + 1}"
        environments[own] = each
        for key, row in keyed(newer).items():
            if row["environment"] == name and not (row["status"] == "skipped" and key in rows):
                rows[key] = undisturbed({**row, "environment": own})
    return {"format": known["format"], "environments": environments, "rows": list(rows.values())}


def _same(one: dict, other: dict, keys: Iterable[str]) -> None:
    if found := [key for key in keys if one[key] != other.get(key)]:
        raise Different(f"the runs differ in {', '.join(sorted(found))}")


def undisturbed(row: dict) -> dict:
    """The row without a time that the machine has disturbed.

    >>> times = {"p20": 5.4, "p50": 100.4, "p80": 200.5}
    >>> undisturbed({"status": "ok", "us": times})["status"]
    'not_run'
    """
    if _disturbed(row.get("us_warm")):
        row = {key: value for key, value in row.items() if key != "us_warm"}
    if row["status"] == "ok" and _disturbed(row["us"]):
        row = {**row, "status": "not_run", "reason": REASON, "us": None, "samples": 0}
    return row


def _disturbed(times: dict | None) -> bool:
    return times is not None and times["p50"] > DISTURBED * times["p20"]
