"""Every sequence of calls that ranks may make: the right answer on all, or the same error on all.

The ranks run the library's own code, in one process and one after another. A collective needs what
all of them send, so a rank that comes to one stops there, and starts its call again when all have
come to it: it then gets the answer at once. That is every order in which ranks can meet, since
nothing but collectives passes between them. If ranks come to different collectives, or one has
ended its call where others wait, real ones would wait for ever or die, and the test fails.

Only a rank's memory outlives its calls. A call reads two things of it, which a call of the same
kind has written or which are not there: what it says in words, and what the last one came to, with
the lines of all ranks from which that followed (the last test looks whether that is so). It guesses
that it will come to the same, and launches for it; if its own lines are others, the guess is wrong.
So a call of any sequence, however long, finds a rank's memory in one of four states. Each call on
two and three ranks is made in all of them, of one rank at a time; on four ranks, where it is new
and where it is remembered. Every call of `agreed` launches for its guess, and sends what it
has launched.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

import triton_softmax
from calling import of_whole
from on_ranks import drawn
from triton_softmax import arguments
from triton_softmax.distributed import process_group

SIZES = (0, 1, 2, 3)
FUNCTIONS = ("softmax", "cross_entropy")
CALLS = [*itertools.product(FUNCTIONS, SIZES)]
REFUSED = ("refused", 1)
"""A softmax along a dimension that the input lacks."""

ROWS = 2


class Waits(BaseException):
    """A rank waits for a collective to which not all have come."""


class Group(dist.ProcessGroup):
    """What a rank sees of a group whose other ranks run in this process."""

    def __init__(self, rank: int, size: int):
        super().__init__(rank, size)
        self.answers: list[torch.Tensor] = []
        self.passed = 0
        self.sends: torch.Tensor | None = None

    def begin(self, outs: list[torch.Tensor], words: torch.Tensor) -> Work:
        assert self.sends is None, "a rank begins a collective while it is in another"
        self.sends = words.detach().clone()
        return Work(self, outs)

    def allgather(self, outs, ins) -> Work:
        """Gather lines, as `ProcessGroup.allgather`."""
        assert ins[0].nbytes == 512
        return self.begin(outs[0], ins[0])


class Work:
    """A collective that has begun."""

    def __init__(self, group: Group, outs: list[torch.Tensor]):
        self.group, self.outs = group, outs

    def wait(self) -> None:
        """Return when all ranks have come; a `Waits` while they have not."""
        group = self.group
        if group.passed == len(group.answers):
            raise Waits
        answer = group.answers[group.passed]
        for out, words in zip(self.outs, answer, strict=True):
            assert words.shape == out.shape and words.dtype == out.dtype
            out.copy_(words)
        group.passed, group.sends = group.passed + 1, None


@pytest.fixture(autouse=True)
def in_one_process(monkeypatch):
    """Let collectives of these groups meet in this process, and operators compute."""

    def gather(out, words, group, async_op=False):
        work = group.begin([*out.view(group.size(), -1).unbind()], words)
        return work if async_op else work.wait()

    monkeypatch.setattr(process_group, "_all_gather", gather)
    monkeypatch.setattr(process_group.dist, "get_backend_config", lambda group: "cpu:fake")
    monkeypatch.setattr(arguments, "INTERPRETED", False)


def together(groups: list[Group], of_rank: Callable[[Group], Any]) -> list[Any]:
    """What a call becomes on every rank: its result, or an error.

    Raises:
        AssertionError: real ranks would have waited for ever, or died.
    """
    for group in groups:
        group.answers = []
    while True:
        found: list[Any] = []
        for group in groups:
            group.passed, group.sends = 0, None
            try:
                found.append(of_rank(group))
            except Waits:
                found.append(Waits)
            except Exception as error:
                found.append(error)
        waiting = [group for group, each in zip(groups, found, strict=True) if each is Waits]
        if not waiting:
            return found
        assert len(waiting) == len(groups), "a rank waits for others that have ended their call"
        sent = [group.sends for group in groups if group.sends is not None]
        kinds = {(each.dtype, each.shape) for each in sent}
        assert len(kinds) == 1, "ranks send each other messages of different sizes"
        answer = torch.stack(sent)
        for group in groups:
            group.answers.append(answer)


def call_of(name: str, size: int, start: int) -> Callable[[Group], tuple[torch.Tensor, ...]]:
    """A result and its gradient."""
    x = drawn((ROWS, 12))[:, start : start + size].clone().requires_grad_()
    target, softmax = torch.tensor([0, 0]), triton_softmax.softmax

    def call(group: Group) -> tuple[torch.Tensor, ...]:
        if name == "refused":
            return (softmax(x, 2, group=group),)
        loss = name == "cross_entropy"
        y = (
            triton_softmax.cross_entropy(x, target, group=group)
            if loss
            else softmax(x, group=group)
        )
        return y.detach(), *torch.autograd.grad(y.square().sum(), x)

    return call


def check(groups: list[Group], calls: tuple[tuple[str, int], ...]) -> None:
    """Make a call of every rank, and look at what becomes of it."""
    names, sizes = zip(*calls, strict=True)
    starts = [sum(sizes[:rank]) for rank in range(len(calls))]
    of_ranks = [call_of(*call, start) for call, start in zip(calls, starts, strict=True)]
    found = together(groups, lambda group: of_ranks[group.rank()](group))
    if len(set(names)) > 1 or "refused" in names or (names[0] != "softmax" and not sum(sizes)):
        assert all(isinstance(each, Exception) for each in found), found
        others = [each for each, name in zip(found, names, strict=True) if name != "refused"]
        assert len({(type(each), str(each)) for each in others}) <= 1, found
        return
    whole = drawn((ROWS, 12))[:, : sum(sizes)].requires_grad_()
    expected = of_whole(names[0], whole, torch.tensor([0, 0]))
    (gradient,) = torch.autograd.grad(expected.square().sum(), whole)
    for size, start, (y, dx) in zip(sizes, starts, found, strict=True):
        here = slice(start, start + size)
        torch.testing.assert_close(y, expected.detach()[:, here] if y.dim() else expected.detach())
        torch.testing.assert_close(dx, gradient[:, here])


def groups_of(world: int) -> list[Group]:
    return [Group(rank, world) for rank in range(world)]


@pytest.mark.parametrize("world", [1, 2, 3])
def test_every_call_on_some_ranks(world):
    """Whole calls, with a gradient, that follow each other."""
    groups = groups_of(world)
    for calls in itertools.product([*CALLS, REFUSED] if world < 3 else CALLS, repeat=world):
        check(groups, calls)


# --- agreement, from which follows what is sent


def agree(group: Group, name: str, x: torch.Tensor, call: Callable[..., Any]) -> Any:
    """What a rank computes for the part that follows from the lines of all."""
    return process_group.agreed(group, lambda x: process_group.Proposal(name, x, 1, call), x)


def agreed(groups: list[Group], calls: tuple[tuple[str, int], ...]) -> list[Any]:
    """What ranks agree on: the first column, how many there are on all, and at most on one; the
    parts; and the kind of call. A message follows, of a size that was launched for the guess."""
    rows = [torch.empty(ROWS, size) for _, size in calls]

    def of_rank(group: Group) -> Any:
        name, _ = calls[group.rank()]

        def call(shard: process_group.Shard) -> tuple[Any, ...]:
            words = torch.full((shard.widest,), shard.total)
            received = process_group.received(*process_group.send(words, group))
            assert (received == shard.total).all()
            return shard.start, shard.total, shard.widest, shard.parts, shard.call

        return agree(group, name, rows[group.rank()], call)

    return together(groups, of_rank)


def is_right(calls: tuple[tuple[str, int], ...], found: list[Any]) -> bool:
    """Whether all have the same error, or every rank knows where its part lies, and all of the rest
    the same."""
    names, sizes = zip(*calls, strict=True)
    if len(set(names)) > 1:
        return all(isinstance(each, ValueError) for each in found) and len({*map(str, found)}) == 1
    starts = [sum(sizes[:rank]) for rank in range(len(sizes))]
    equal = len(set(sizes)) == 1
    parts = () if equal else tuple(zip(starts, sizes, strict=True))
    call = found[0][-1]
    return found == [(start, sum(sizes), max(sizes), parts, call) for start in starts]


def remembered(group: Group, call: tuple[str, int]) -> process_group.Call:
    """What a rank remembers of a kind of call."""
    calls = process_group.agreements[group].calls
    (found,) = [calls[key] for key in calls if (key[0], key[2][1]) == call]
    return found


@pytest.mark.parametrize("world", [2, 3, 4])
def test_every_agreement_with_every_memory(world):
    groups, others = groups_of(world), {}
    for calls in itertools.product(CALLS, repeat=world):
        assert is_right(calls, agreed(groups, calls)), calls  # what each calls is remembered, later
        assert is_right(calls, agreed(groups, calls)), calls  # and what it came to
        for rank, call in enumerate(calls if world < 4 else ()):
            memory = remembered(groups[rank], call)
            wrong = others.setdefault((rank, call), {})
            for last in [*wrong.values()][-10:]:  # one rank remembers that it came to another
                memory.lines, memory.shard = last
                assert is_right(calls, agreed(groups, calls)), calls
            if memory.shard is not None:
                wrong[memory.lines] = memory.lines, memory.shard
            memory.shard = None  # one rank has forgotten what it came to, or all
            assert is_right(calls, agreed(groups, calls)), calls
            process_group.agreements.pop(groups[rank])
            assert is_right(calls, agreed(groups, calls)), calls


def test_every_two_calls_on_two_ranks():
    """In fact, up to the names of the functions."""
    for calls in itertools.product([*itertools.product(CALLS, repeat=2)], repeat=2):
        if calls[0][0][0] == FUNCTIONS[0]:
            groups = groups_of(2)
            for each in calls:
                assert is_right(each, agreed(groups, each)), calls


def test_what_is_remembered_is_of_one_call():
    """A call that comes to what it remembers remembers the lines of all ranks that it has read, and
    so has found out itself, with nothing remembered, what it would find out now."""
    groups = groups_of(3)
    readers: dict[Any, set[Any]] = {}
    for calls in itertools.product(CALLS, repeat=3):
        agreed(groups, calls)
        for rank, call in enumerate(calls):
            lines = bytes(process_group.agreements[groups[rank]].lines)
            if remembered(groups[rank], call).lines == lines:
                readers.setdefault((rank, call, lines), set()).add(calls)
    assert readers and all(len(calls) == 1 for calls in readers.values())


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("sends", [False, True])
def test_a_call_runs_again_if_its_guess_was_wrong(sends, fails):
    """It has sent nothing by then; an error that a wrong guess has led to is none."""
    groups, began = groups_of(2), {}

    def of_rank(group: Group, sizes: tuple[int, int]) -> int:
        def call(shard: process_group.Shard) -> int:
            began[group.rank()][shard.total] = True
            if fails and shard.total != sum(sizes):
                raise IndexError
            if sends:
                words = torch.full((shard.widest,), shard.total)
                received = process_group.received(*process_group.send(words, group))
                assert (received == shard.total).all()
            return shard.total

        return agree(group, "softmax", torch.empty(ROWS, sizes[group.rank()]), call)

    for sizes, expected in (
        ((2, 3), ([5], [5])),
        ((2, 3), ([5], [5])),
        ((2, 1), ([5, 3], [3])),
        ((2, 3), ([3, 5], [5])),
    ):
        began.update({0: {}, 1: {}})  # a call that meets others begins again
        found = together(groups, lambda group, sizes=sizes: of_rank(group, sizes))
        assert found == [sum(sizes)] * 2 and (*map(list, began.values()),) == expected


def test_a_call_that_is_given_up_leaves_no_line_behind():
    """If memory runs out while a line travels, the next call reads the lines of the next call."""
    groups, x = groups_of(2), torch.empty(ROWS, 2)

    def fails(shard: process_group.Shard) -> None:
        raise MemoryError

    def of_rank(group: Group) -> int:
        agree(group, "softmax", x, lambda shard: None)
        with pytest.raises(MemoryError):
            agree(group, "softmax", x, fails)
        return agree(group, "log_softmax", x, lambda shard: shard.total)

    assert together(groups, of_rank) == [4, 4]
