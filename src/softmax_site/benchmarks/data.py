"""The newest data file, and how its rows are named on the pages."""

from __future__ import annotations

import json
from pathlib import Path

DATA = "docs/benchmarks/data"

REASONS = "docs/benchmarks/reasons.json"

DIRECTIONS = ("forward", "backward", "forward_grad", "forward_backward")
DTYPES = ("float32", "bfloat16", "float16", "float64")


def newest(root: Path) -> tuple[Path, dict] | None:
    """The data file with the latest measurement; None without data. A test validates the files."""
    files = sorted((root / DATA).glob("*.json"))
    loaded = [(path, json.loads(path.read_text(encoding="utf-8"))) for path in files]
    loaded = [(path, data) for path, data in loaded if data["rows"]]
    if not loaded:
        return None
    return max(loaded, key=lambda item: max(row["utc"] for row in item[1]["rows"]))


def read_reasons(root: Path) -> dict[str, str]:
    """Why a target is missed, by pattern of cases."""
    path = root / REASONS
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def of_suite(data: dict, suite: str, **fields) -> list[dict]:
    """The rows of a suite whose fields have these values."""
    return [
        row
        for row in data["rows"]
        if row["suite"] == suite and all(row[name] == value for name, value in fields.items())
    ]


def n_cols(row: dict) -> int:
    """The row length of a case."""
    return row["shape"][row["dim"]]


def shape_text(row: dict) -> str:
    """The shape as the pages write it."""
    text = " × ".join(f"{size:,}" for size in row["shape"])
    if row["dim"] != -1:
        text += f", dim {row['dim']}"
    return text + (", strided rows" if row["layout"] == "row_strided" else "")


def time_text(utc: str) -> str:
    """A time stamp as the pages write it.

    >>> time_text("2026-11-20T21:05:09Z")
    '2026-11-20 21:05'
    """
    return utc.replace("T", " ")[:16]


def runs_used(data: dict, rows: list[dict]) -> list[str]:
    """The runs that these rows come from."""
    used = {row["environment"] for row in rows}
    return [name for name in data["environments"] if name in used]


def size_key(row: dict) -> tuple:
    """Where a row stands among those of its suite."""
    where = (row["suite"], row["op"], DIRECTIONS.index(row["direction"]))
    return (*where, DTYPES.index(row["dtype"]), row["layout"], n_cols(row), row["shape"])
