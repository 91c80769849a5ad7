"""One data file of several that were measured at the same time, on GPUs of one machine.

A case, its copy and all libraries are measured on one GPU, one after the other, so what is compared
was measured alike. But the processes share the machine: now and then one waits for the processor,
and the GPU for it. Such a row says nothing about the library, whichever it is, and is not kept.
"""

from __future__ import annotations

from collections.abc import Iterable

from softmax_bench.schema import DataError

DISTURBED = 2.0
"""How many times its 20th percentile the median of an undisturbed row is at most."""

REASON = "disturbed: the median is more than twice the 20th percentile"


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
        if {**each, "started": ""} != {**first, "started": ""}:
            keys = [key for key in first if key != "started" and each.get(key) != first[key]]
            raise Different(f"the files differ in {', '.join(keys)}")
    rows, seen = [], set()
    for data in files:
        for row in data["rows"]:
            key = row["case"], row["provider"]
            if key in seen:
                raise Different(f"{key[1]} of {key[0]} was measured twice")
            seen.add(key)
            rows.append(undisturbed({**row, "environment": "run1"}))
    return {"format": files[0]["format"], "environments": {"run1": first}, "rows": rows}


SAME = ("gpu", "driver", "cuda", "torch", "triton")
"""What has to be the same of two runs whose times are compared."""


def renewed(known: dict, newer: dict) -> dict:
    """The rows of a file, and in their place those that were measured again later, on the same kind
    of GPU and with the same software. Who was not installed then keeps his row.

    Raises:
        Different: the GPU or the software is another.
    """
    environments = dict(known["environments"])
    rows = {(row["case"], row["provider"]): row for row in known["rows"]}
    for name, each in newer["environments"].items():
        for other in environments.values():
            if keys := [key for key in SAME if other[key] != each[key]]:
                raise Different(f"the runs differ in {', '.join(keys)}")
        number = len(environments) + 1
        environments[f"run{number}"] = each
        for row in newer["rows"]:
            key = row["case"], row["provider"]
            if row["environment"] == name and not (row["status"] == "skipped" and key in rows):
                rows[key] = undisturbed({**row, "environment": f"run{number}"})
    return {"format": known["format"], "environments": environments, "rows": list(rows.values())}


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
