"""The ladder as a table for the terminal: what each rung takes, beside our figures for the same
shape. Needs neither PyTorch nor Triton."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

SHAPE, DTYPE = (8192, 16384), "float32"
"""What is timed: a quarter of a gigabyte times two, in rows that one program can hold."""

LADDER = {
    "copy": "copy",
    "naive": "naive",
    "three_loops": "three loops",
    "two_loops": "two loops",
    "single_block": "single block",
    "split_rows": "split rows",
    "triton_softmax": "the library",
}
"""Who is timed, as the data name them and as a reader does."""

BAR = 24
"""Characters of the copy's bar."""


def figures(rows: Iterable[dict], dtype: str = DTYPE) -> dict[str, dict]:
    """Of rows of measurements, those of the ladder in this shape, by name."""
    asked = {"suite": "ladder", "shape": [*SHAPE], "dtype": dtype, "direction": "forward"}
    return {
        row["provider"]: row
        for row in rows
        if row["us"] and all(row[key] == value for key, value in asked.items())
    }


def committed(root: Path, dtype: str = DTYPE) -> dict[str, dict]:
    """Our figures, with the `environment` of their run; none where the repository's are not."""
    found = {}
    for path in sorted((root / "docs/benchmarks/data").glob("*.json")):
        data = json.loads(path.read_text("utf8"))
        of_run = figures(data["rows"], dtype)
        found |= {name: row | {"environment": data["environment"]} for name, row in of_run.items()}
    return found


def basis(root: Path) -> dict | None:
    """What a prediction starts from, for `softmax_playground.checker.timed`; None without data.

    `again` is the price of reading a number again where the L2 cache has it, in those of reading it
    from memory: what the second and third read of three loops take in bfloat16, whose rows fit.
    """
    found, half = committed(root), committed(root, "bfloat16")
    if not {*LADDER} <= found.keys() or not {"copy", "three_loops"} <= half.keys():
        return None
    environment = found["copy"]["environment"]
    return {
        "gpu": environment["gpu"],
        "matrix": f"{SHAPE[0]:,} × {SHAPE[1]:,} numbers",
        "rungs": [[label, found[name]["us"]["p50"]] for name, label in LADDER.items()],
        "again": half["three_loops"]["us"]["p50"] / half["copy"]["us"]["p50"] - 1,
        "row_bytes": 4 * SHAPE[1],
        "l2_bytes": environment["l2_bytes"],
        "multiprocessors": environment["multiprocessors"],
    }


def machine(environment: Mapping[str, str]) -> str:
    """The GPU and the versions of a run."""
    torch, triton = (environment[name].partition("+")[0] for name in ("torch", "triton"))
    return f"{environment['gpu']}, torch {torch}, Triton {triton}"


def table(microseconds: Mapping[str, float], moved: int, beside: Mapping[str, dict]) -> str:
    """The table of a run.

    Args:
        microseconds: what each takes, by the names of `LADDER`, or others.
        moved: bytes of a copy, read and written.
        beside: our figures, as `committed` gives them; may be empty.
    """
    head = f"{'':13}{'µs':>9}{'GB/s':>8}{'of a copy':>11}  {'':{BAR}}"
    lines = [f"{head}{'  ours' if beside else ''}".rstrip()]
    for name, us in microseconds.items():
        share = microseconds["copy"] / us
        bar = "█" * max(1, round(BAR * min(share, 1.0)))
        label = LADDER.get(name, name)
        line = f"{label:13}{us:9,.1f}{moved / us / 1e3:8,.0f}{share:11.2f}  {bar:{BAR}}"
        if name in beside and "copy" in beside:
            line += f"{beside['copy']['us']['p50'] / beside[name]['us']['p50']:6.2f}"
        lines.append(line.rstrip())
    if beside:
        lines.append(f"ours: share of a copy on one {machine(beside['copy']['environment'])}")
    return "\n".join(lines)


def report(
    microseconds: Mapping[str, float],
    environment: Mapping[str, str],
    shape: tuple[int, int] = SHAPE,
    **more,
) -> str:
    """What `python -m softmax_tutorial` prints where there is a GPU."""
    first = f"{machine(environment)}\nSoftmax of {shape[0]:,} × {shape[1]:,}, {DTYPE}, forward. "
    return f"{first}All answers agree with float64.\n\n{table(microseconds, **more)}"
