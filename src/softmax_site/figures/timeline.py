"""Pipelines of different depths over time: who reads, who waits, who writes.

A model of the protocol and not a measurement: a unit of time is what it takes to read an eighth of
a chunk or so. What happens in which order follows from the rules of the kernel alone.
"""

from __future__ import annotations

from typing import NamedTuple

from softmax_site.figures.drawing import Drawing, figure

READ, POLL, WRITE = "read", "poll", "write"
KINDS = {READ: "reads", POLL: "waits", WRITE: "writes"}


class Step(NamedTuple):
    """What happens to a chunk on one of the two lines of a pipeline."""

    line: int
    what: str
    chunk: int
    begin: int
    end: int


def pipeline(depth: int, until: int, read: int = 6, late: int = 5, write: int = 4) -> list[Step]:
    """The steps of two programs of depth 0, or of one program of depth 1 or 2, whose loads are on
    the first line and whose waits and stores on the second.

    Args:
        depth: of the pipeline.
        until: when to stop.
        read, write: how long a chunk is read and written.
        late: how long after its own word the last word of a row is there.

    >>> [(step.what, step.chunk, step.begin, step.end) for step in pipeline(2, 19)]
    [('read', 0, 0, 6), ('read', 1, 6, 12), ('read', 2, 12, 18), ('write', 0, 12, 16)]
    """
    steps = []
    if depth == 0:
        for line, start in ((0, 0), (1, read + 1)):
            begin, chunk = start, line
            while begin < until:
                ready = begin + read + late
                steps += [
                    Step(line, READ, chunk, begin, begin + read),
                    Step(line, POLL, chunk, begin + read, ready),
                    Step(line, WRITE, chunk, ready, ready + write),
                ]
                begin, chunk = ready + write, chunk + 2
    else:
        loaded, now, chunk = read, 0, 0
        complete: dict[int, int] = {}
        steps.append(Step(0, READ, 0, 0, read))
        while now < until:
            now = max(now, loaded)  # the chunk is in registers: publish it
            complete[chunk] = now + late
            steps.append(Step(0, READ, chunk + 1, now, now + read))
            loaded = now + read
            ready = chunk - (depth - 1)
            if ready >= 0:
                if complete[ready] > now:
                    steps.append(Step(1, POLL, ready, now, complete[ready]))
                    now = complete[ready]
                steps.append(Step(1, WRITE, ready, now, now + write))
                now += write
            chunk += 1
    return [step for step in steps if step.end <= until]


def depths() -> str:
    """The three pipelines, one below the other."""
    until, left, bar, width = 45, 84, 22, 520
    unit = (width - left - 2) / until
    drawing = Drawing(
        width,
        3 * 84,
        "Three pipelines over time. With depth 0 each program reads, polls and writes one chunk. "
        "With depth 1 a program reads its next chunk while it polls. With depth 2 it has published "
        "the next chunk as well, and does not have to poll.",
    )
    for depth in range(3):
        top = depth * 84
        drawing.text(0, top + 8, f"depth {depth}")
        names = ("program p", "program q") if depth == 0 else ("loads", "the rest")
        for line, name in enumerate(names):
            drawing.text(0, top + 30 + line * (bar + 4), name, "quiet")
        for step in pipeline(depth, until):
            x, room = left + step.begin * unit, (step.end - step.begin) * unit
            y = top + 20 + step.line * (bar + 4)
            label = f"{step.what} {step.chunk}"
            drawing.box(
                x, y, room - 1, bar, KINDS[step.what], label if room > 7 * len(label) else ""
            )
    return figure(
        [drawing],
        "Reading (solid), polling (dotted) and writing (dashed) over time; the numbers count "
        "chunks. With depth 0 another program of the same multiprocessor fills the wait, with "
        "depth 1 the program’s own next read does, and with depth 2 there is no wait left, as long "
        "as the last word is not later than the next read. Simulated from the order of the kernel.",
    )
