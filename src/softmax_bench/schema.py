"""The files of measurements: their published form, and how they are read, validated and written."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from softmax_bench.case import Case

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = "docs/benchmarks/schema.json"
"""The published form of the data, a JSON Schema; the other files are among its `$defs`."""

FORMAT = "triton-softmax-benchmark/2"


class DataError(ValueError):
    """Data that breaks the schema; the message names file and field."""


NEAR = 0.002
"""How far, as all are rounded, the median of all samples may lie outside the medians of turns."""


def disordered(value: Any, where: str) -> Iterator[str]:
    """Where percentiles are not in their order, or the median is not that of its turns."""
    if isinstance(value, dict):
        for names in (("p20", "p50", "p80"), ("us_p20", "us", "us_p80")):
            found = [value[each] for each in names if isinstance(value.get(each), int | float)]
            if len(found) == 3 and found != sorted(found):
                yield f"{where}: {' ≤ '.join(names)} does not hold of {found}"
        if isinstance(value.get("us_turns"), list) and value["us"]:
            turns, median = value["us_turns"], value["us"]["p50"]
            if not min(turns) * (1 - NEAR) <= median <= max(turns) * (1 + NEAR):
                yield f"{where}: p50 is {median}, and its turns {value['us_turns']}"
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from disordered(each, f"{where}.{key}")


def check(data: Any, name: str, part: str | None = None) -> dict:
    """Return the data if it keeps to the schema, or to one of its `$defs`.

    Raises:
        DataError: it does not; the message names file and field.
    """
    import jsonschema

    form = read_json(ROOT / SCHEMA)
    if part is not None:
        form = {"$ref": f"#/$defs/{part}", "$defs": form["$defs"]}
    faults = list(jsonschema.Draft202012Validator(form).iter_errors(data))
    if faults:
        lines = [f"{name}: {each.json_path}: {each.message[:300]}" for each in faults[:5]]
        if len(faults) > 5:
            lines.append(f"{name}: and {len(faults) - 5} more")
        raise DataError("\n".join(lines))
    for fault in disordered(data, name):
        raise DataError(fault)
    return data


def validate(data: Any, name: str) -> dict:
    """Return the data if it keeps to the published schema and to itself; raise `DataError` if
    not."""
    seen = set()
    for index, row in enumerate(check(data, name)["rows"]):
        where = f"{name}: rows[{index}]"
        if row["status"] == "ok" and row["us"] is None and row["max_rel_error"] is None:
            raise DataError(f"{where}.us: a row that is ok holds a time, an error, or both")
        key = (row["case"], row["provider"])
        if key in seen:
            raise DataError(f"{where}.provider: a second row for {key[1]} in {key[0]}")
        seen.add(key)
        for field, made in Case.of(row).fields.items():
            if row[field] != made and (field, row[field]) != ("bytes", 0):  # 0: not timed
                raise DataError(f"{where}.{field}: {row[field]}, where the case makes it {made}")
    return data


def read_json(path: Path) -> Any:
    """What a JSON file holds.

    Raises:
        DataError: there is none that can be read, or it was not written to its end.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise DataError(f"{path}: not JSON: {error}") from error


def begun(path: Path) -> dict:
    """The file of a run that may go on; only its form is looked at."""
    data = read_json(path)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise DataError(f"{path}: not a file of measurements, {FORMAT}")
    return data


def load(path: Path, part: str | None = None) -> dict:
    """Read and validate a file of measurements, or one whose form is among the `$defs`."""
    data = read_json(path)
    return validate(data, path.name) if part is None else check(data, path.name, part)


def dump(data: Any, depth: int = 2) -> str:
    """The data as JSON with what lies so deep, as rows do, on a line of its own: a change of one is
    a change of one line."""

    def text(value: Any, depth: int) -> str:
        if not depth or not value or not isinstance(value, (dict, list)):
            return json.dumps(value, allow_nan=False)
        if isinstance(value, list):
            return "[\n" + ",\n".join(text(each, depth - 1) for each in value) + "]"
        parts = (f"{json.dumps(name)}: {text(each, depth - 1)}" for name, each in value.items())
        return "{\n" + ",\n".join(parts) + "}"

    return text(data, depth) + "\n"


def write(path: Path, data: Any, depth: int = 2) -> None:
    """Write a file, as `dump` has it, under another name first: a stop in between loses nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    beside.write_text(dump(data, depth), encoding="utf-8")
    beside.replace(path)


def add_run(path: Path, run: dict, key: str, form: int | str) -> None:
    """Add a run to a file of runs, in place of one that has the same `key`."""
    runs = read_json(path)["runs"] if path.is_file() else []
    kept = [each for each in runs if each[key] != run[key]]
    write(path, {"format": form, "runs": [*kept, run]}, depth=4)


def check_writable(path: Path) -> None:
    """Raise OSError if a file cannot be written, before somebody measures for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        empty = not file.tell()
    if empty:
        path.unlink(missing_ok=True)  # others may be starting, too
