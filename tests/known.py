"""What the compiler is known to answer, so that a run compiles what has changed and a tenth of the
rest.

A compilation follows from the code of a kernel and of what it imports, from the request and from
the version of Triton. Over these its key is a hash (comments do not count), and beside the key
stands in `PATH` what the tests read off the result. What has no entry is compiled; of what has one,
each day another tenth, and everything where `RECOMPILE=1` is set, which also writes the entries
anew. An answer that differs from its entry fails a test.
"""

from __future__ import annotations

import collections
import concurrent.futures
import datetime
import functools
import hashlib
import inspect
import json
import os
import platform
import re
from pathlib import Path

import triton

from softmax_bench import compilation, sources
from softmax_bench.compilation import Compilation, Request, compile_many

PATH = Path(__file__).parent / "library/kernels/known.json"
EVERYTHING = os.environ.get("RECOMPILE") == "1"
DAYS = 10
READ = r"ex2\.approx[\w.]*|0d3FF71547\w{8}|\bbra\b"
"""What tests look for in the assembly beside loads and stores: float32 exponentials, log2(e) and
branches."""

HOW = "".join(
    inspect.getsource(each)
    for each in (
        compilation._compile,
        compilation._compile_nvidia,
        compilation._constant,
        compilation._typed,
    )
)


@functools.cache
def code_of(*modules: str) -> str:
    """The code of modules and of everything in the library that they import."""
    names = [f"{name.partition('.')[2].replace('.', '/')}.py" for name in modules]
    paths = sorted(sources.closure(tuple(names)))
    return "\0".join(sources.read(path, sources.PACKAGE)[0] for path in paths)


def key(request: Request) -> str:
    """Changes with whatever the answer may change with."""
    modules = [request.kernel]
    if isinstance(operation := request.constants.get("OP"), str):
        modules += [operation, compilation.OPERATION]
    code = code_of(*(name.partition(":")[0] for name in modules))
    parts = (triton.__version__, platform.machine(), HOW, code, repr(request))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def entry(result: Compilation) -> dict[str, object]:
    """What is kept of an answer."""
    found = collections.Counter(re.findall(READ, result.assembly))
    return {
        "kernel": result.kernel,
        "target": result.target,
        "registers": result.registers,
        "spill_bytes": result.spill_bytes,
        "shared_bytes": result.shared_bytes,
        "num_warps": result.num_warps,
        "instructions": result.global_loads | result.global_stores | dict(sorted(found.items())),
    }


def answer(entry: dict) -> Compilation:
    """An answer whose assembly is its instructions of interest alone."""
    values = dict(entry)
    instructions = values.pop("instructions")
    lines = [name for name, count in instructions.items() for _ in range(count)]
    return Compilation(assembly="\n".join(lines), **values)


def read() -> dict[str, dict]:
    """The entries by key."""
    return {each.pop("key"): each for each in json.loads(PATH.read_text("utf8"))}


def write(entries: dict[str, dict]) -> None:
    lines = [json.dumps({"key": key, **each}) for key, each in entries.items()]
    PATH.write_text("[\n" + ",\n".join(lines) + "\n]\n", "utf8")


def is_due(key: str, day: int | None = None) -> bool:
    """Whether an entry is looked at again today."""
    day = datetime.date.today().toordinal() if day is None else day
    return EVERYTHING or (int(key, 16) - day) % DAYS == 0


def answers(requests: dict[str, Request]) -> tuple[dict[str, Compilation | Exception], list[str]]:
    """The answers to requests by their keys; and where the compiler now answers something else than
    it is known to."""
    known = read()
    todo = {key: request for key, request in requests.items() if key not in known or is_due(key)}
    # Each process first imports Triton, for some seconds.
    n = 2 if len(todo) > 40 else 1
    parts = [dict(list(todo.items())[i::n]) for i in range(n)]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        done = pool.map(lambda part: compile_many(list(part.values()), keep_errors=True), parts)
        fresh = {key: each for part, made in zip(parts, done) for key, each in zip(part, made)}
    entries = {key: entry(each) for key, each in fresh.items() if isinstance(each, Compilation)}
    wrong = [
        f"{requests[key]}: {entries.get(key)}, not {known[key]}"
        for key in fresh.keys() & known.keys()
        if entries.get(key) != known[key]
    ]
    if EVERYTHING:
        write({key: entries[key] for key in requests if key in entries})
    return {key: fresh[key] if key in fresh else answer(known[key]) for key in requests}, wrong


def compile_known(requests: list[Request]) -> list[Compilation]:
    """As `compile_many`, for what is among the tests of all kernels, which look again."""
    known = read()
    if not all(key(request) in known for request in requests):
        return compile_many(requests)
    return [answer(known[key(request)]) for request in requests]
