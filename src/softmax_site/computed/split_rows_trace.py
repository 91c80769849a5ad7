"""What the programs of one row do, event by event: `split_rows_simple`, run by the small Triton,
its programs in turns.

How long an access takes is assumed (`READ_TICKS`, `WRITE_TICKS`, one tick for a word); what a
program does next is its own code and what it finds in memory.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from softmax_playground import small_triton
from softmax_playground.small_triton import Access, Tensor
from softmax_site.figures.moved import kernel

ROOT = Path(__file__).resolve().parents[3]
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


def timed(accesses: Iterable[Access]) -> list[Event]:
    """The accesses of programs, each of which begins when the last of its program has ended."""
    events: list[Event] = []
    clock: dict[int, int] = {}
    for access in accesses:
        program, place = access.program, access.places[0]
        if access.kind == "load":
            chunk = place // BLOCK
            what, ticks = READ if chunk == program else HELP, READ_TICKS[program]
        elif access.kind == "store":
            what, chunk, ticks = WRITE, program, WRITE_TICKS
        else:  # the first word that a program meets is its own
            published = any((each.program, each.what) == (program, PUBLISH) for each in events)
            what, chunk, ticks = POLL if published else PUBLISH, place, 1
        begin = clock.get(program, 0)
        clock[program] = begin + ticks
        events.append(Event(program, what, chunk, begin, begin + ticks))
    return events


def trace(absent: int | None, patience: int) -> list[Event]:
    """The events of one row in four chunks, checked against the definition.

    What a program does depends on the others by its words alone. So it is run with words in some
    order, then with words in the order of the times that follow, until that order stays.

    Args:
        absent: the program that never runs, if any.
        patience: how often a program polls again for a word before it computes it.
    """
    row = [3 * math.sin(at) for at in range(CHUNKS * BLOCK)]
    running = [program for program in range(CHUNKS) if program != absent]
    # Whoever is absent comes when all others have ended, and is not counted.
    rest = running * (CHUNKS * (patience + 1) + 1) if absent is not None else ()
    run = kernel(ROOT, "split_rows_simple", "split_rows_simple_kernel")
    turns, before = running, []
    while turns != before:
        x, y = Tensor(row), small_triton.empty((len(row),))
        words = Tensor([0] * CHUNKS, small_triton.int64)
        with small_triton.order(*turns, *rest):
            found = run[(CHUNKS,)](x, y, words, len(row), CHUNKS, patience, BLOCK=BLOCK)
        events = [each for each in timed(found.accesses) if each.program != absent]
        of_words = [each for each in events if each.what in (PUBLISH, POLL)]
        of_words.sort(key=lambda each: (each.end, each.program))
        before, turns = turns, [each.program for each in of_words]
    d = sum(math.exp(each - max(row)) for each in row)
    for at, got in enumerate(y.data):
        wanted = math.exp(row[at] - max(row)) / d
        assert at // BLOCK == absent or math.isclose(got, wanted, rel_tol=1e-6), (at, got, wanted)
    return events


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
