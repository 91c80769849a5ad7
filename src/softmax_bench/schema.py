"""The published form of the data, as a JSON Schema, and its validation."""

import json
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    TypedDict,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from softmax_bench.case import ITEM_SIZE, PASSES

FORMAT = "triton-softmax-benchmark/1"

FINAL = {"ok", "wrong", "refused", "failed"}
"""The states of a row that a resumed run leaves alone."""

SAME = ("gpu", "driver", "cuda", "torch", "triton")
"""What has to be the same of two runs whose times are compared."""


def said(text: str) -> tuple[str, str]:
    """A field's description."""
    return "description", text


Text = Annotated[str, ("minLength", 1)]
Count = Annotated[int, ("minimum", 0)]
Number = Annotated[float, ("minimum", 0)]
Time = Annotated[str, ("pattern", r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")]
Error = Number | Literal["inf"] | None
"""The largest error; infinite ones are the word, since JSON has no such number."""


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
    ]
    commit: Annotated[str, ("minLength", 7)]
    started: Time
    timer: Literal["cuda-events", "wall-clock", "made-up"]
    flush_bytes: Annotated[Count, said("Bytes written between two calls to empty the L2 cache.")]


class Row(TypedDict):
    """What was measured of one provider in one case."""

    case: Text
    suite: Text
    op: Annotated[str, ("enum", ["softmax", "log_softmax", "logsumexp", *PASSES])]
    direction: Literal["forward", "backward", "forward_grad", "forward_backward"]
    dtype: Annotated[str, ("enum", [*ITEM_SIZE])]
    shape: Annotated[list[Annotated[int, ("minimum", 1)]], ("minItems", 1)]
    dim: int
    layout: Literal["contiguous", "row_strided", "padded", "transposed"]
    inputs: str
    provider: Text
    status: Annotated[
        Literal["ok", "wrong", "refused", "failed", "skipped", "not_run"],
        said(
            "ok; wrong: an answer too far from float64; refused: the provider says "
            "no; failed: it breaks; skipped: not installed; not_run: the time was up."
        ),
    ]
    reason: str | None
    bytes: Annotated[Count, said("Useful traffic: each input read once, each output written once.")]
    us: Annotated[Times | None, said("Time of one call in microseconds.")]
    samples: Count
    max_abs_error: Error
    max_rel_error: Annotated[
        Error, said("Largest error of a row relative to the row's largest value.")
    ]
    kernels: list[str]
    count: Annotated[Count | None, said("Kernels compiled, in the suite that counts them.")]
    environment: Text
    utc: Time
    peak_bytes: NotRequired[
        Annotated[Count, said("Memory allocated at most beside the arguments.")]
    ]
    us_warm: NotRequired[Annotated[Times, said("With what the call before left in the L2 cache.")]]
    seed: NotRequired[Annotated[Count, said("What drew the case, where nobody chose it.")]]


class File(TypedDict):
    """Measurements of triton_softmax and its peers."""

    format: Annotated[str, ("const", FORMAT)]
    environments: Annotated[dict[str, Environment], ("minProperties", 1)]
    rows: list[
        Annotated[
            Row,  # whose status is not ok without a reason
            ("if", {"properties": {"status": {"enum": ["ok"]}}}),
            ("else", {"properties": {"reason": {"type": "string", "minLength": 1}}}),
        ]
    ]


NAMES = {str: "string", int: "integer", float: "number", type(None): "null"}


def form_of(kind: Any) -> dict:
    """The JSON Schema of a type."""
    of, parts = get_origin(kind), get_args(kind)
    if is_typeddict(kind):
        fields = get_type_hints(kind, include_extras=True)
        return {
            "description": kind.__doc__,
            "type": "object",
            "properties": {name: form_of(each) for name, each in fields.items()},
            "required": [name for name in fields if name in kind.__required_keys__],
            "additionalProperties": False,
        }
    if of is Annotated:
        return form_of(parts[0]) | dict(parts[1:])
    if of is NotRequired:
        return form_of(parts[0])
    if of is Literal:
        return {"enum": list(parts)}
    if of is list:
        return {"type": "array", "items": form_of(parts[0])}
    if of is dict:
        return {"type": "object", "additionalProperties": form_of(parts[1])}
    if parts:
        return {"anyOf": [form_of(each) for each in parts]}
    return {"type": NAMES[kind]}


SCHEMA = {"$schema": "https://json-schema.org/draft/2020-12/schema", **form_of(File)}


class DataError(ValueError):
    """Data that breaks the schema; the message names file and field."""


def check(data: Any, form: dict, name: str) -> dict:
    """Return the data if it keeps to a JSON Schema; raise `DataError` naming file and field if
    not."""
    import jsonschema

    faults = list(jsonschema.Draft202012Validator(form).iter_errors(data))
    if faults:
        lines = [f"{name}: {each.json_path}: {each.message[:300]}" for each in faults[:5]]
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


def rows_of(path: Path) -> list[dict]:
    """The rows of a file that may be of a run that goes on; only its form is looked at."""
    data = read_json(path)
    if not isinstance(data, dict) or data.get("format") != FORMAT or "rows" not in data:
        raise DataError(f"{path}: not a file of measurements, {FORMAT}")
    return data["rows"]


def load(path: Path) -> dict:
    """Read and validate a file."""
    return validate(read_json(path), path.name)


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


def write_whole(path: Path, text: str) -> None:
    """Write a file under another name first, so that a stop in between loses nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def check_writable(path: Path) -> None:
    """Raise OSError if a file cannot be written, before somebody measures for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        empty = not file.tell()
    if empty:
        path.unlink(missing_ok=True)  # others may be starting, too


def schema_text() -> str:
    """The schema as it is published."""
    return json.dumps(SCHEMA, indent=2) + "\n"
