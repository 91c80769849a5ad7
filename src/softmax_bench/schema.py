"""The published form of the data, as a JSON Schema, and its validation."""

import json
from pathlib import Path
from typing import Annotated, Any, TypedDict, get_args, get_origin, get_type_hints, is_typeddict

from softmax_bench.case import PASSES

FORMAT = "triton-softmax-benchmark/1"

FINAL = {"ok", "wrong", "refused", "failed"}
"""The states of a row that a resumed run leaves alone."""

SAME = ("gpu", "driver", "cuda", "torch", "triton")
"""What has to be the same of two runs whose times are compared."""

NAMES = {str: "string", int: "integer", float: "number"}
Text = Annotated[str, {"type": "string", "minLength": 1}]
Count = Annotated[int, {"type": "integer", "minimum": 0}]
Number = Annotated[float, {"type": "number", "minimum": 0}]
Time = Annotated[str, {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"}]
Error = Annotated[
    float | str | None, {"anyOf": [{"type": "number", "minimum": 0}, {"enum": ["inf", None]}]}
]
"""The largest error; infinite ones are the word, since JSON has no such number."""


def said(text: str) -> dict:
    """A field's description."""
    return {"description": text}


def one_of(*values: str) -> dict:
    """The strings that a field may be."""
    return {"enum": list(values)}


class Times(TypedDict):
    """Percentiles, in microseconds."""

    p20: Number
    p50: Number
    p80: Number


class Environment(TypedDict):
    """Machine and software, once per run; a row names the run it comes from."""

    gpu: Text
    gpu_memory_bytes: Count
    multiprocessors: Count
    l2_bytes: Count
    driver: Text
    cuda: Text
    torch: Text
    triton: Text
    python: Text
    system: str
    peers: Annotated[
        dict[str, str | None],
        said("Version of each other library; null where it is not installed."),
        {"type": "object", "additionalProperties": {"type": ["string", "null"]}},
    ]
    commit: Annotated[str, {"type": "string", "minLength": 7}]
    started: Time
    timer: Annotated[str, one_of("cuda-events", "wall-clock", "made-up")]
    flush_bytes: Annotated[Count, said("Bytes written between two calls to empty the L2 cache.")]


class _Sometimes(TypedDict, total=False):
    """What not every row has."""

    peak_bytes: Annotated[Count, said("Memory allocated at most beside the arguments.")]
    us_warm: Annotated[Times, said("The same with what the call before left in the L2 cache.")]
    seed: Annotated[Count, said("What drew the case, where nobody chose it.")]


class Row(_Sometimes):
    """What was measured of one provider in one case."""

    case: Text
    suite: Text
    op: Annotated[str, one_of("softmax", "log_softmax", "logsumexp", *PASSES)]
    direction: Annotated[str, one_of("forward", "backward", "forward_grad", "forward_backward")]
    dtype: Annotated[str, one_of("float16", "bfloat16", "float32", "float64")]
    shape: Annotated[
        list[int], {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 1}
    ]
    dim: int
    layout: Annotated[str, one_of("contiguous", "row_strided", "padded", "transposed")]
    inputs: str
    provider: Text
    status: Annotated[
        str,
        one_of("ok", "wrong", "refused", "failed", "skipped", "not_run"),
        said(
            "ok; wrong: an answer too far from float64; refused: the provider says no; "
            "failed: it breaks; skipped: not installed; not_run: the time was up."
        ),
    ]
    reason: Annotated[str | None, {"type": ["string", "null"]}]
    bytes: Annotated[Count, said("Useful traffic: each input read once, each output written once.")]
    us: Annotated[Times | None, said("Time of one call in microseconds.")]
    samples: Count
    max_abs_error: Error
    max_rel_error: Annotated[
        Error, said("Largest error of a row relative to the row's largest value.")
    ]
    kernels: list[str]
    count: Annotated[
        int | None,
        said("Kernels compiled, in the suite that counts them."),
        {"type": ["integer", "null"], "minimum": 0},
    ]
    environment: Text
    utc: Time


def form_of(kind: Any) -> dict:
    """The JSON Schema of a type."""
    if isinstance(kind, type) and kind in NAMES:
        return {"type": NAMES[kind]}
    if is_typeddict(kind):
        return {
            "type": "object",
            "properties": {
                name: form_of(each)
                for name, each in get_type_hints(kind, include_extras=True).items()
            },
            "required": [name for name in kind.__annotations__ if name in kind.__required_keys__],
            "additionalProperties": False,
        }
    if get_origin(kind) is Annotated:
        of, *known = get_args(kind)
        form = {} if any({"type", "anyOf", "enum"} & each.keys() for each in known) else form_of(of)
        return form | {name: value for each in known for name, value in each.items()}
    if get_origin(kind) is list:
        return {"type": "array", "items": form_of(*get_args(kind))}
    if get_origin(kind) is dict:
        return {"type": "object", "additionalProperties": form_of(get_args(kind)[1])}
    of, nothing = get_args(kind)  # something or None
    assert nothing is type(None)
    return {"anyOf": [{"type": "null"}, form_of(of)]}


SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Measurements of triton_softmax and its peers",
    "type": "object",
    "properties": {
        "format": {"const": FORMAT},
        "environments": {
            "description": Environment.__doc__,
            "type": "object",
            "minProperties": 1,
            "additionalProperties": form_of(Environment),
        },
        "rows": {
            "type": "array",
            "items": {
                **form_of(Row),
                "allOf": [
                    {
                        "if": {"properties": {"status": {"enum": ["ok"]}}},
                        "else": {"properties": {"reason": {"type": "string", "minLength": 1}}},
                    }
                ],
            },
        },
    },
    "required": ["format", "environments", "rows"],
    "additionalProperties": False,
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


def write_whole(path: Path, text: str) -> None:
    """Write a file under another name first, so that a stop in between loses nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def schema_text() -> str:
    """The schema as it is published."""
    return json.dumps(SCHEMA, indent=2) + "\n"
