"""What the programs of one row do, event by event: `split_rows_simple`, run by Triton's interpreter
with its programs side by side.

The interpreter runs one program after another. Here each has a thread, of which one runs at a time:
at every access to memory it is held until its clock is the earliest. How long an access takes is
assumed (`READ_TICKS`, `WRITE_TICKS`, one tick for a word); what a program does next is its own code
and what it finds in memory.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import triton.language as tl  # noqa: F401  (looked for by the interpreter, among our globals)
from triton.runtime import interpreter

from softmax_tutorial.split_rows_simple import split_rows_simple_kernel

PATH = "src/softmax_site/figures/split_rows_trace.json"
CHUNKS, BLOCK = 4, 8
READ_TICKS = (8, 12, 10, 15)
"""How long each program takes to read a chunk: no two of them are equally fast."""
WRITE_TICKS = 8
PATIENCE = (2, 8, 24)
READ, PUBLISH, POLL, HELP, WRITE = "read", "publish", "poll", "help", "write"


class Event(NamedTuple):
    """What a program did, from a tick until another, and which chunk it was about."""

    program: int
    what: str
    chunk: int
    begin: int
    end: int


class Turns:
    """Programs in threads, of which the one with the earliest clock runs."""

    def __init__(self, programs: list[int]) -> None:
        self.clock = dict.fromkeys(programs, 0)
        self.go = {program: threading.Semaphore(0) for program in programs}
        self.program: dict[int, int] = {}
        self.events: list[Event] = []
        self.over = threading.Event()

    def next(self) -> None:
        """Let the program with the earliest clock run."""
        if self.clock:
            self.go[min(self.clock, key=lambda program: (self.clock[program], program))].release()
        else:
            self.over.set()

    def take(self, what: str, chunk: int, ticks: int) -> None:
        """Hold the program that calls until its access is done."""
        program = self.program[threading.get_ident()]
        begin = self.clock[program]
        self.clock[program] = end = begin + ticks
        self.events.append(Event(program, what, chunk, begin, end))
        self.next()
        self.go[program].acquire()
        interpreter.interpreter_builder.set_grid_idx(program, 0, 0)

    def run(self, kernel: Any, arguments: dict) -> None:
        """Run the programs until all are done."""

        def body(program: int) -> None:
            self.program[threading.get_ident()] = program
            self.go[program].acquire()
            interpreter.interpreter_builder.set_grid_idx(program, 0, 0)
            kernel(**arguments)
            del self.clock[program]
            self.next()

        for program in self.clock:
            threading.Thread(target=body, args=(program,), daemon=True).start()
        self.next()
        if not self.over.wait(60):
            raise TimeoutError("a program has not finished")


@contextlib.contextmanager
def side_by_side(turns: Turns, x: torch.Tensor, words: torch.Tensor) -> Iterator[None]:
    """Let launches in this block run the programs of `turns`, and note their accesses."""
    executor: Any = interpreter.GridExecutor
    builder: Any = interpreter.interpreter_builder
    launch = executor.__call__
    load, store = builder.create_masked_load, builder.create_masked_store
    update = builder.create_atomic_rmw

    def first(pointers, tensor) -> int:
        return int(pointers.data.flat[0] - tensor.data_ptr()) // tensor.element_size()

    def noted_load(pointers, *rest):
        program, chunk = turns.program[threading.get_ident()], first(pointers, x) // BLOCK
        turns.take(READ if chunk == program else HELP, chunk, READ_TICKS[program])
        return load(pointers, *rest)

    def noted_store(pointers, *rest):
        program = turns.program[threading.get_ident()]
        turns.take(WRITE, program, WRITE_TICKS)
        return store(pointers, *rest)

    def noted_update(operation, pointers, *rest):
        exchange = "XCHG" in str(operation)
        turns.take(PUBLISH if exchange else POLL, first(pointers, words), 1)
        return update(operation, pointers, *rest)

    def run(executor, *arguments, **kwargs):
        kernel = executor.fn

        def together(**every):
            builder.set_grid_dim(CHUNKS, 1, 1)
            turns.run(kernel, every)

        together.__signature__ = inspect.signature(kernel)  # pyright: ignore[reportFunctionMemberAccess]
        executor.fn = together
        return launch(executor, *arguments, **kwargs)

    executor.__call__ = run
    builder.create_masked_load, builder.create_masked_store = noted_load, noted_store
    builder.create_atomic_rmw = noted_update
    try:
        yield
    finally:
        del builder.create_masked_load, builder.create_masked_store, builder.create_atomic_rmw
        executor.__call__ = launch


def trace(absent: int | None, patience: int) -> list[Event]:
    """The events of one row in four chunks, checked against torch.

    Args:
        absent: the program that never runs, if any.
        patience: how often a program polls again for a word before it computes it.
    """
    n = CHUNKS * BLOCK
    x = torch.sin(torch.arange(n, dtype=torch.float32)) * 3
    y = torch.full_like(x, float("nan"))
    words = torch.zeros(CHUNKS, dtype=torch.int64)
    turns = Turns([program for program in range(CHUNKS) if program != absent])
    with side_by_side(turns, x, words):
        split_rows_simple_kernel[(1,)](x, y, words, n, CHUNKS, patience, BLOCK=BLOCK)
    expected = torch.softmax(x, 0).view(CHUNKS, BLOCK)
    for program in turns.program.values():
        torch.testing.assert_close(y.view(CHUNKS, BLOCK)[program], expected[program])
    return turns.events


def stretches(events: list[Event]) -> list[Event]:
    """Events in the order of their beginnings, polls of a program that follow each other as one."""
    out: list[Event] = []
    last: dict[int, int] = {}
    for event in sorted(events, key=lambda each: (each.begin, each.program)):
        before = last.get(event.program)
        if event.what == POLL and before is not None and out[before].what == POLL:
            out[before] = out[before]._replace(end=event.end, chunk=event.chunk)
            continue
        last[event.program] = len(out)
        out.append(event)
    return out


def generate() -> dict[str, str]:
    """Each trace by who is absent (-1: nobody) and by patience."""
    traces = {
        f"{absent} {patience}": [
            list(each) for each in stretches(trace(None if absent < 0 else absent, patience))
        ]
        for absent in range(-1, CHUNKS)
        for patience in PATIENCE
    }
    lines = [f'"{name}": {json.dumps(events)}' for name, events in traces.items()]
    return {PATH: "{\n" + ",\n".join(lines) + "\n}\n"}
