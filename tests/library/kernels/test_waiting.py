"""The waiting of split rows: a model of the kernel's accesses to memory, explored in every order
that the memory model allows.

`program` is `split_rows_kernel` without arithmetic: it yields each access and is sent what it
reads. `explore` starts programs late or never, lets them take turns in every order, and read every
value that coherence allows: a read may miss any write of another program, but never goes back
behind what its program has read or written there. An acquire that reads a release brings along what
the releasing program had seen. Accesses that depend on each other stay in order.
"""

import re
from functools import cache
from itertools import groupby
from typing import NamedTuple

import pytest

from softmax_bench.compilation import compiled

RIGHT, OVERWRITTEN = "right", "overwritten"
NOT_STARTED, ENDED = "not started", "ended"


class Protocol(NamedTuple):
    """The size of a launch; and what the kernel does (the defaults), or fails to do."""

    programs: int = 2
    rows: int = 1
    chunks: int = 2
    words: int = 1  # of a chunk
    depth: int = 0
    launches: int = 2
    in_place: bool = False
    zeroed: bool = True  # before the second launch
    recomputes: bool = True
    compares: bool = True  # publishes for others only where nothing is published by now
    checks: bool = True  # that further words are there, and not the first alone
    publishes: str = "relaxed"
    polls: str = "relaxed"


class Access(NamedTuple):
    kind: str  # load and store: elements of a chunk; exch, add, cas and poll: a word
    at: int  # words come first, then chunks; −1 if masked
    value: object = None
    order: str = "weak"
    patient: bool = False  # a poll that is repeated until the word is there


# --- the kernel


def program(p, launch, how):
    n_tasks = how.rows * how.chunks
    task, end, last, missing = p, n_tasks, None, False
    if how.depth == 2:
        end += how.programs
    body = yield of_chunk("load", task, how)
    while task < end and not missing:
        kept = body
        if task < n_tasks:
            yield from publish("exch", task, launch, kept, how)
        if how.depth >= 1:
            body = yield of_chunk("load", task + how.programs, how)
        ready = task
        if how.depth == 2:
            ready, kept, last = task - how.programs, last, kept
        if ready >= 0:
            parts, missing = yield from merge_row(ready, False, how)
            if not missing:
                yield of_chunk("store", ready, how, (kept, parts))
        task += how.programs
    if missing:
        task -= how.programs * (2 if how.depth == 2 else 1)
        while task < n_tasks:
            for step in range(how.chunks if how.recomputes else 0):
                other = task // how.chunks * how.chunks + (task + step) % how.chunks
                if (yield Access("add", other * how.words, 0, "relaxed")) == 0:
                    body = yield of_chunk("load", other, how)
                    kind = "cas" if how.compares else "exch"
                    yield from publish(kind, other, launch, body, how)
            parts, missing = yield from merge_row(task, False, how)
            while missing:
                parts, missing = yield from merge_row(task, True, how)
            kept = yield of_chunk("load", task, how)
            yield of_chunk("store", task, how, (kept, parts))
            task += how.programs


def of_chunk(kind, task, how, value=None):
    n_tasks = how.rows * how.chunks
    return Access(kind, n_tasks * how.words + task if task < n_tasks else -1, value)


def publish(kind, task, launch, body, how):
    """Nothing orders relaxed writes of two words, so either may come first."""
    swapped = how.words == 2 and how.publishes == "relaxed" and (yield Access("choice", -1))
    for k in range(how.words) if swapped else reversed(range(how.words)):
        yield Access(kind, task * how.words + k, (launch, task, k, body), how.publishes)


def merge_row(task, patient, how):
    """Polling again is polling later, so one round will do; and its other words are dropped once
    one is missing."""
    first = task // how.chunks * how.chunks * how.words
    parts = ()
    for at in range(first, first + how.chunks * how.words):
        needed = how.checks or at % how.words == 0
        parts += ((yield Access("poll", at, None, how.polls, patient and needed)),)
        if needed and parts[-1] == 0:
            return None, True
    return parts, False


# --- memory, and every order


@cache
def resumed(p, launch, how, history):
    """A program after the reads of its history: its next access (None at its end), the lines of the
    model where it is, and all that its future depends on."""
    run = program(p, launch, how)
    try:
        access = [run.send(each) for each in (None, *history)][-1]
    except StopIteration:
        return None, (), ENDED
    frames = [each.gi_frame for each in (run, run.gi_yieldfrom) if each]
    lines = tuple(frame.f_lineno for frame in frames)
    return access, lines, (*lines, *(repr(frame.f_locals) for frame in frames))


def replaced(values, index, value):
    return (*values[:index], value, *values[index + 1 :])


def outcomes(access, memory, view):
    """What an access may read, each with memory and what its program has seen afterwards. Of each
    place memory has all writes: (value, what its writer had seen, if that is released)."""
    kind, at, value, order, patient = access
    if at < 0:
        yield from ((read, memory, view) for read in (False, True)[: 1 + (kind == "choice")])
        return
    writes = memory[at]
    if kind in ("load", "poll", "add"):  # the compiler makes a load of an addition of 0
        for index in range(view[at], len(writes)):
            read, released = writes[index]
            seen = replaced(view, at, index)
            if released and order == "acquire":
                seen = tuple(map(max, seen, released))
            if not (patient and read == 0):
                yield read, memory, seen
        return
    # An atomic read-modify-write reads the last write, and a store follows it.
    read, seen = writes[-1][0], replaced(view, at, len(writes))
    if kind == "cas" and read != 0:
        yield read, memory, replaced(view, at, len(writes) - 1)
    else:
        writes = (*writes, (value, seen if order == "release" else None))
        yield read, replaced(memory, at, writes), seen


def check(access, launch, how):
    """A program writes its chunk from the summaries of the whole row, of this launch."""
    task = access.at - how.rows * how.chunks * how.words
    first = task // how.chunks * how.chunks
    chunks = range(first, first + how.chunks)
    right = tuple((launch, each, k, RIGHT) for each in chunks for k in range(how.words))
    assert access.value == (RIGHT, right), "wrong"


def moves(state, how, futures):
    """The states that may come next. Raises AssertionError if a result is wrong, or if no program
    that has started can go on."""
    launch, memory, programs = state
    found, going_on = [], []
    for p, (history, view) in enumerate(programs):
        # It begins with a load of its own chunk, which no other program changes.
        steps = [(RIGHT, memory, view)] if history == NOT_STARTED else []
        before = () if history == NOT_STARTED else history
        if history not in (NOT_STARTED, ENDED):
            access = resumed(p, launch, how, history)[0]
            if access.kind == "store" and access.at >= 0:
                check(access, launch, how)
                access = Access("store", access.at if how.in_place else -1, OVERWRITTEN)
            steps = list(outcomes(access, memory, view))
            going_on.append(bool(steps))
        for read, after, seen in steps:
            reads = (*before, read)
            future = resumed(p, launch, how, reads)[2]
            reads = ENDED if future == ENDED else futures.setdefault((launch, future), reads)
            now = (reads, (0,) * len(view) if reads == ENDED else seen)
            found.append((launch, after, replaced(programs, p, now)))
    assert any(going_on) or not going_on, "waits for ever"
    if launch + 1 < how.launches and all(history == ENDED for history, _ in programs):
        left = None if how.zeroed else [each[-1][0] for each in memory]
        found.append(beginning(launch + 1, how, left))
    return found


def beginning(launch, how, left=None):
    n_tasks = how.rows * how.chunks
    words = tuple(((left[at] if left else 0, None),) for at in range(n_tasks * how.words))
    memory = words + (((RIGHT, None),),) * n_tasks
    return launch, memory, ((NOT_STARTED, (0,) * len(memory)),) * how.programs


def explore(how):
    """All states that launches pass through."""
    todo, futures = [beginning(0, how)], {}
    seen = set(todo)
    while todo:
        found = [each for each in moves(todo.pop(), how, futures) if each not in seen]
        seen.update(found)
        todo += found
    return seen


HOLDS = {
    "two programs": Protocol(),
    "a program waits for its own next chunk": Protocol(chunks=3),
    "two words, in place": Protocol(words=2, in_place=True),
    "depth 1, in place": Protocol(rows=2, depth=1, in_place=True),
    "depth 2, two words, in place": Protocol(rows=2, depth=2, words=2, launches=1, in_place=True),
    "three programs, in place": Protocol(programs=3, chunks=3, launches=1, in_place=True),
    "a flag that is released and acquired": Protocol(
        words=2, checks=False, publishes="release", polls="acquire"
    ),
}
FAILS = {
    "lost update": (Protocol(in_place=True, compares=False), "wrong"),
    "missing zeroing": (Protocol(zeroed=False), "wrong"),
    "missing recompute": (Protocol(recomputes=False), "waits for ever"),
    "the first word taken for a flag": (Protocol(words=2, checks=False), "wrong"),
}


@pytest.mark.parametrize("name", HOLDS)
def test_every_order_ends_with_the_right_results(name):
    assert len(explore(HOLDS[name])) > 800


@pytest.mark.parametrize("mistake", FAILS)
def test_a_planted_mistake_is_found(mistake):
    how, what = FAILS[mistake]
    with pytest.raises(AssertionError, match=what):
        explore(how)


# --- the kernel's accesses are those of the model

SOFTMAX = "softmax(torch.empty({}, dtype=torch.bfloat16), 1)"
LOSS = """
x = torch.empty(4185, 128256, dtype=torch.bfloat16).requires_grad_()
cross_entropy(x, torch.zeros(4185, dtype=torch.int64), label_smoothing=0.1)
"""
CALLS = {
    SOFTMAX.format("4000, 2**17"): Protocol(),
    SOFTMAX.format("8, 2**20"): Protocol(rows=2, depth=1),
    SOFTMAX.format("512, 2**22"): Protocol(rows=2, depth=2),
    LOSS: Protocol(words=2),
}
IN_TTIR = re.compile(
    r"tt\.(load|store) .*: tensor<"  # elements, not the numbers of a row
    r"|tt\.atomic_rmw (exch|add), (\w+), gpu|tt\.atomic_(cas) (\w+), gpu"
    r"|tt\.elementwise_inline_asm .* (ld)\.(\w+)\.gpu\.global"
)


def without_repeats(found):
    """Kinds and orders, each word's poll called a load."""
    named = [("ld" if kind == "poll" else kind, order or "weak") for kind, order in found]
    return [each for each, _ in groupby(named)]


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
def test_the_kernel_makes_the_accesses_of_the_model_in_their_order(call):
    how = CALLS[call]
    (result,) = (each for each in compiled(call) if each.kernel == "split_rows_kernel")
    assert result.constants["HOW"].depth == how.depth
    histories = {history for *_, programs in explore(how) for history, _ in programs}
    histories = {()} | histories - {NOT_STARTED, ENDED}
    reached = [resumed(p, 0, how, each) for p in range(how.programs) for each in histories]
    by_line = {lines: access for access, lines, _ in reached if access and access.kind != "choice"}
    in_model = [(by_line[lines].kind, by_line[lines].order) for lines in sorted(by_line)]
    in_kernel = [([*filter(None, each)] + [""])[:2] for each in IN_TTIR.findall(result.ttir)]
    assert without_repeats(in_kernel) == without_repeats(in_model)
    # Each becomes one instruction, beside which there is no fence.
    ordered = re.findall(
        r"\b(?:atom|red|fence|membar|ld\S*relaxed|ld\S*acquire)\S*", result.assembly
    )
    kinds = {" ".join(sorted({*each.split(".")} - {"global", "b64"})) for each in ordered}
    assert kinds == {"atom exch gpu relaxed", "atom cas gpu relaxed", "gpu ld relaxed"}
