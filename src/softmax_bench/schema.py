"""The published form of the data, as a JSON Schema, and its validation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from softmax_bench.case import PASSES

FORMAT = "triton-softmax-benchmark/1"

_NUMBER_OR_NULL = {"type": ["number", "null"], "minimum": 0}
_ERROR = {"anyOf": [{"type": "number", "minimum": 0}, {"enum": ["inf", None]}]}
_UTC = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"}
_SHA256 = {"type": "string", "pattern": "^[0-9a-f]{64}$"}


def _closed(properties: dict, optional: dict | None = None, **more) -> dict:
    return {
        "type": "object",
        "properties": properties | (optional or {}),
        "required": list(properties),
        "additionalProperties": False,
        **more,
    }


_TIMES = _closed({name: {"type": "number", "minimum": 0} for name in ("p20", "p50", "p80")})

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Measurements of triton_softmax and its peers",
    **_closed(
        {
            "format": {"const": FORMAT},
            "environments": {
                "description": (
                    "Machine and software, once per run; a row names the run it comes from."
                ),
                "type": "object",
                "minProperties": 1,
                "additionalProperties": _closed(
                    {
                        "gpu": {"type": "string", "minLength": 1},
                        "gpu_memory_bytes": {"type": "integer", "minimum": 0},
                        "multiprocessors": {"type": "integer", "minimum": 0},
                        "l2_bytes": {"type": "integer", "minimum": 0},
                        "driver": {"type": "string", "minLength": 1},
                        "cuda": {"type": "string", "minLength": 1},
                        "torch": {"type": "string", "minLength": 1},
                        "triton": {"type": "string", "minLength": 1},
                        "python": {"type": "string", "minLength": 1},
                        "system": {"type": "string"},
                        "peers": {
                            "description": (
                                "Version of each other library; null where it is not installed."
                            ),
                            "type": "object",
                            "additionalProperties": {"type": ["string", "null"]},
                        },
                        "commit": {"type": "string", "minLength": 7},
                        "started": _UTC,
                        "timer": {"enum": ["cuda-events", "wall-clock", "made-up"]},
                        "flush_bytes": {
                            "description": "Bytes written between two calls to empty the L2 cache.",
                            "type": "integer",
                            "minimum": 0,
                        },
                        "sources": {
                            "description": "Hash of each implementation's source at this commit.",
                            "type": "object",
                            "additionalProperties": _SHA256,
                        },
                    }
                ),
            },
            "rows": {
                "type": "array",
                "items": _closed(
                    {
                        "case": {"type": "string", "minLength": 1},
                        "suite": {"type": "string", "minLength": 1},
                        "op": {"enum": ["softmax", "log_softmax", "logsumexp", *PASSES]},
                        "direction": {
                            "enum": ["forward", "backward", "forward_grad", "forward_backward"]
                        },
                        "dtype": {"enum": ["float16", "bfloat16", "float32", "float64"]},
                        "shape": {
                            "type": "array",
                            "items": {"type": "integer", "minimum": 1},
                            "minItems": 1,
                        },
                        "dim": {"type": "integer"},
                        "layout": {"enum": ["contiguous", "row_strided", "padded", "transposed"]},
                        "inputs": {"type": "string"},
                        "provider": {"type": "string", "minLength": 1},
                        "status": {
                            "description": "ok; wrong: an answer too far from float64; "
                            "refused: the provider says no; "
                            "failed: it breaks; skipped: not installed; not_run: the time was up.",
                            "enum": ["ok", "wrong", "refused", "failed", "skipped", "not_run"],
                        },
                        "reason": {"type": ["string", "null"]},
                        "bytes": {
                            "description": (
                                "Useful traffic: each input read once, each output written once."
                            ),
                            "type": "integer",
                            "minimum": 0,
                        },
                        "us": {
                            "description": "Time of one call in microseconds.",
                            "anyOf": [{"type": "null"}, _TIMES],
                        },
                        "samples": {"type": "integer", "minimum": 0},
                        "max_abs_error": _ERROR,
                        "max_rel_error": {
                            "description": (
                                "Largest error of a row relative to the row's largest value."
                            ),
                            **_ERROR,
                        },
                        "kernels": {"type": "array", "items": {"type": "string"}},
                        "count": {
                            "description": "Kernels compiled, in the suite that counts them.",
                            "type": ["integer", "null"],
                            "minimum": 0,
                        },
                        "source": {
                            "description": (
                                "Hash of the implementation's source; null for what is not ours."
                            ),
                            "anyOf": [{"type": "null"}, _SHA256],
                        },
                        "environment": {"type": "string", "minLength": 1},
                        "utc": _UTC,
                    },
                    optional={
                        "peak_bytes": {
                            "description": "Memory allocated at most beside the arguments.",
                            "type": "integer",
                            "minimum": 0,
                        },
                        "us_warm": {
                            "description": (
                                "The same with what the call before left in the L2 cache."
                            ),
                            **_TIMES,
                        },
                        "seed": {
                            "description": "What drew the case, where nobody chose it.",
                            "type": "integer",
                            "minimum": 0,
                        },
                    },
                    allOf=[
                        {
                            "if": {"properties": {"status": {"enum": ["ok"]}}},
                            "else": {"properties": {"reason": {"type": "string", "minLength": 1}}},
                        }
                    ],
                ),
            },
        }
    ),
}


class DataError(ValueError):
    """Data that breaks the schema; the message names file and field."""


def check(data: Any, form: dict, name: str) -> dict:
    """Return the data if it keeps to a JSON Schema; raise `DataError` naming file and field if
    not."""
    import jsonschema

    validator = jsonschema.Draft202012Validator(form)
    faults = sorted(
        validator.iter_errors(data), key=lambda fault: list(map(str, fault.absolute_path))
    )
    if faults:
        lines = [f"{name}: {_field(fault)}: {fault.message[:300]}" for fault in faults[:5]]
        if len(faults) > 5:
            lines.append(f"{name}: and {len(faults) - 5} more")
        raise DataError("\n".join(lines))
    return data


def validate(data: Any, name: str) -> dict:
    """Return the data if it keeps to the published schema and to itself; raise `DataError` if
    not."""
    check(data, SCHEMA, name)
    known = data["environments"]
    seen = set()
    for index, row in enumerate(data["rows"]):
        where = f"{name}: rows[{index}]"
        if row["environment"] not in known:
            raise DataError(f"{where}.environment: no environment named {row['environment']!r}")
        if row["status"] == "ok" and row["us"] is None and row["max_rel_error"] is None:
            raise DataError(f"{where}.us: a row that is ok holds a time, an error, or both")
        key = (row["case"], row["provider"])
        if key in seen:
            raise DataError(f"{where}.provider: a second row for {key[1]} in {key[0]}")
        seen.add(key)
    return data


def _field(fault) -> str:
    field = ""
    for part in fault.absolute_path:
        field += f"[{part}]" if isinstance(part, int) else f".{part}" if field else str(part)
    return field or "the whole file"


def load(path: Path) -> dict:
    """Read and validate a file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise DataError(f"{path.name}: not JSON: {error}") from error
    return validate(data, path.name)


def dump(data: dict) -> str:
    """The data as JSON with one row per line, so that a change of one row is a change of one
    line."""
    head = json.dumps(
        {"format": data["format"], "environments": data["environments"]}, indent=1, allow_nan=False
    )
    rows = ",\n".join(json.dumps(row, allow_nan=False) for row in data["rows"])
    return head.removesuffix("\n}") + ',\n "rows": [\n' + rows + "\n]}\n"


def schema_text() -> str:
    """The schema as it is published."""
    return json.dumps(SCHEMA, indent=2) + "\n"
