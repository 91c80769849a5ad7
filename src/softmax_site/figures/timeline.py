"""Programs that share a row, over time: who reads, who waits, who writes.

A model of the protocol and not a measurement: a unit of time is what it takes to read an eighth of
a chunk or so. What happens in which order follows from the rules of the kernel alone.
"""

from __future__ import annotations

from typing import NamedTuple

from softmax_site.figures.drawing import Drawing, figure

READ, POLL, HELP, WRITE = "read", "poll", "help", "write"
LABELS = {READ: "read", POLL: "poll", HELP: "read for it", WRITE: "write"}
KINDS = {READ: "reads", POLL: "waits", HELP: "helps", WRITE: "writes"}


class Stretch(NamedTuple):
    """What a program does from a tick until another."""

    program: int
    what: str
    begin: int
    end: int


def simulate(
    reads: list[int], write: int, max_polls: int = 10**6, absent: tuple[int, ...] = ()
) -> tuple[list[Stretch], dict[int, int]]:
    """The stretches of the programs of one row, and when the word of each chunk is there.

    Args:
        reads: how long each program reads; program i has chunk i.
        write: how long a program writes.
        max_polls: ticks after which a program goes on without its partners.
        absent: programs that never run.

    >>> stretches, words = simulate([2, 3], write=1)
    >>> [(each.program, each.what, each.begin, each.end) for each in stretches if each.begin]
    [(0, 'poll', 2, 3), (0, 'write', 3, 4), (1, 'write', 3, 4)]
    >>> words
    {0: 2, 1: 3}
    >>> simulate([2, 2], write=1, max_polls=3, absent=(1,))[1]  # program 0 computes word 1 itself
    {0: 2, 1: 7}
    """
    running = [program for program in range(len(reads)) if program not in absent]
    state = {program: (READ, reads[program], program) for program in running}
    words: dict[int, int] = {}
    ticks: dict[int, list[str]] = {program: [] for program in running}
    now = 0
    while state:
        now += 1
        published = []
        for program, (what, left, chunk) in list(state.items()):
            ticks[program].append(what)
            left -= 1
            if what in (READ, HELP) and left == 0:
                published.append(chunk)
                what, left = POLL, max_polls if what == READ else 0
            elif what == WRITE and left == 0:
                del state[program]
                continue
            state[program] = (what, left, chunk)
        for chunk in published:
            words.setdefault(chunk, now)
        missing = [chunk for chunk in range(len(reads)) if chunk not in words]
        for program, (what, left, chunk) in list(state.items()):
            if what == POLL and not missing:
                state[program] = (WRITE, write, program)
            elif what == POLL and left <= 0:
                state[program] = (HELP, reads[missing[0]], missing[0])
            elif what == POLL:
                state[program] = (POLL, left, chunk)
    stretches = []
    for program in running:
        begin = 0
        done = ticks[program]
        for at in range(1, len(done) + 1):
            if at == len(done) or done[at] != done[begin]:
                stretches.append(Stretch(program, done[begin], begin, at))
                begin = at
    return sorted(stretches, key=lambda each: (each.begin, each.end, each.program)), words


def timeline(
    reads: list[int], write: int, alt: str, max_polls: int = 10**6, absent: tuple[int, ...] = ()
) -> Drawing:
    """Programs down, time across, and below them when each word is there."""
    stretches, words = simulate(reads, write, max_polls, absent)
    left, bar, gap, width = 84, 26, 8, 520
    last = max(each.end for each in stretches)
    unit = (width - left - 4) / last
    bottom = len(reads) * (bar + gap)
    drawing = Drawing(width, bottom + 50, alt)
    for program in range(len(reads)):
        drawing.text(0, program * (bar + gap) + bar / 2, f"program {program}")
    drawing.text(0, bottom + 16, "words")
    for at in sorted(set(words.values())):
        x = left + at * unit
        drawing.line(x, 0, x, bottom + 4, "mark")
        there = [chunk for chunk in words if words[chunk] == at]
        names = ", ".join(f"w{'₀₁₂₃₄₅₆₇₈₉'[chunk]}" for chunk in sorted(there))
        drawing.text(x, bottom + 16, names, "ink", "middle")
    for program in absent:
        y = program * (bar + gap)
        drawing.box(left, y, width - left - 4, bar, "blank", "has no room and does not run")
    for each in stretches:
        y = each.program * (bar + gap)
        room = (each.end - each.begin) * unit
        label = LABELS[each.what] if room > 8 * len(LABELS[each.what]) + 4 else ""
        x = left + each.begin * unit
        drawing.box(x, y, room - 1, bar, KINDS[each.what], label)
    drawing.arrow(left, bottom + 38, width - 4, bottom + 38)
    drawing.text(0, bottom + 38, "time", "quiet")
    return drawing


def together() -> str:
    """Four programs that all run."""
    return figure(
        [
            timeline(
                [8, 12, 10, 15],
                8,
                "Four programs over time. Each reads its chunk, publishes a word when it has read, "
                "and polls until the last word is there; then all four write at the same time.",
            )
        ],
        "A row in four chunks. Each program publishes its word at the end of its read (dashed "
        "lines). When the last word is there, all programs know the maximum and the denominator, "
        "and write what they still hold. Drawn from a simulation of the protocol, not measured.",
    )


def without_a_partner() -> str:
    """Four programs of which one never runs."""
    return figure(
        [
            timeline(
                [6, 12, 9, 9],
                8,
                "Program 2 does not run. The others read, publish and poll; after a limited number "
                "of polls each reads chunk 2 itself, publishes its word, and writes.",
                max_polls=7,
                absent=(2,),
            )
        ],
        "The same row when program 2 has no room. The others poll for a limited time, then each "
        "computes the missing word itself. The first to finish publishes it, and the others find "
        "it or publish the same bits again. Simulated.",
    )


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
            label = LABELS[step.what] + f" {step.chunk}"
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
