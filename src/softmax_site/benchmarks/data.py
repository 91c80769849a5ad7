"""The measurements, and how their rows are named on the pages."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from softmax_bench import launches
from softmax_bench.report import by_case, says_no
from softmax_bench.roster import CHOOSER
from softmax_site import source

REASONS = "docs/benchmarks/reasons.json"
"""Why a target is missed, by pattern of cases."""

DIRECTIONS = ("forward", "backward", "forward_grad", "forward_backward")
DTYPES = ("float32", "bfloat16", "float16", "float64")


def gpu_of(rows: Iterable[dict]) -> str:
    """What the pages call the GPUs on which rows were measured.

    >>> gpu_of([{"environment": {"gpu": "NVIDIA H100 80GB HBM3"}}])
    'H100'
    """
    found = {row["environment"]["gpu"].removeprefix("NVIDIA ").split()[0] for row in rows}
    return " and ".join(sorted(found))


def read(root: Path, name: str, missing: Any = None) -> Any:
    """What a JSON file of the repository holds."""
    path = root / name
    return json.loads(path.read_text("utf8")) if path.is_file() else missing


@source.kept
def measurements(root: Path) -> dict:
    """The data, to be read alone, with a mark on calls that launch something else today, and every
    refusal called one. A row has the `environment` of its run; a test validates the files."""
    data = {
        "rows": launches.read_rows(root / launches.DATA) if (root / launches.DATA).is_dir() else []
    }
    changed = launches.read(root).changed
    for row in data["rows"]:
        if launches.cell_of(row) in changed:
            row["changed"] = True
        if row["status"] == "failed" and says_no(row["reason"]):
            row["status"] = "refused"
    return data


def of_suite(data: dict, suite: str, **fields) -> list[dict]:
    """The rows of a suite whose fields have these values."""
    return [
        row
        for row in data["rows"]
        if row["suite"] == suite and all(row[name] == value for name, value in fields.items())
    ]


def given(data: dict, kernel: str, every: bool = False) -> list[dict[str, dict]]:
    """The cases of softmax that the library gave to a kernel, where rows lie without gaps; with
    `every` the shapes drawn at random and the longest, too."""
    suites = ("forward", "backward", "few_rows", "strided") + ("random", "longest") * every
    rows = (of_suite(data, suite, op="softmax", layout="contiguous") for suite in suites)
    groups = (group for part in rows for group in by_case(part).values())
    name = f"{kernel}_kernel"
    return [group for group in groups if name in (group.get(CHOOSER) or {}).get("kernels", ())]


def n_cols(row: dict) -> int:
    """The row length of a case."""
    return row["shape"][row["dim"]]


def is_odd(row: dict) -> bool:
    """Whether rows of this length begin at odd places in memory: no multiple of 16 bytes."""
    return n_cols(row) % 2 == 1


SHORT = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "float64": "fp64"}


def shape_words(row: dict) -> str:
    """The shape as people write it, and the dimension where that is not the last.

    >>> shape_words({"shape": [4067203, 33], "dim": -1, "layout": "contiguous"})
    '4,067,203 × 33'
    >>> shape_words({"shape": [64, 1024, 2048], "dim": 1, "layout": "contiguous"})
    '64 × 1,024 × 2,048, dim 1'
    """
    text = " × ".join(f"{size:,}" for size in row["shape"])
    if row["dim"] != -1:
        text += f", dim {row['dim']}"
    return text + (", rows with gaps" if row["layout"] in ("row_strided", "padded") else "")


def case_words(row: dict) -> str:
    """What is computed, of what type and shape, without the name of the suite.

    >>> case_words({"op": "softmax", "direction": "forward", "dtype": "bfloat16",
    ...             "shape": [4067203, 33], "dim": -1, "layout": "contiguous"})
    'forward, bf16, 4,067,203 × 33'
    """
    op = "" if row["op"] == "softmax" else f"{row['op']} "
    way = row["direction"].replace("forward_backward", "forward and backward")
    return f"{op}{way}, {SHORT[row['dtype']]}, {shape_words(row)}"


def anchor(row: dict) -> str:
    """Where a page has the row of a case in full.

    >>> anchor({"case": "forward/softmax/forward/float32/2x33"})
    'forward-softmax-forward-float32-2x33'
    """
    return row["case"].replace("/", "-")


def time_text(utc: str) -> str:
    """A time stamp as the pages write it.

    >>> time_text("2026-11-20T21:05:09Z")
    '2026-11-20 21:05'
    """
    return utc.replace("T", " ")[:16]


def size_key(row: dict) -> tuple:
    """Where a row stands among those of its suite."""
    where = (row["suite"], row["op"], DIRECTIONS.index(row["direction"]))
    return (*where, DTYPES.index(row["dtype"]), row["layout"], n_cols(row), row["shape"])
