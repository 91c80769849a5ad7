"""Let the ranks of a group agree on every call before they exchange its words.

A message says neither what it is nor how long it is. Ranks that make different calls, or that
expect parts of other sizes, would misread each other's words or wait for ever. So each call begins
with a line of fixed size, from which every rank reads what all ranks call and how many columns each
of them has. What is sent afterwards follows from these lines alone, and so is the same on all.

Lines travel from processor to processor: they never wait for a GPU that is busy with earlier calls.
One takes about as long as a launch, so a call launches meanwhile (`Agreement.run`).

Only public names of `torch.distributed` are used; `torch.compile` replaces its collectives by
functional ones.
"""

import datetime
import hashlib
import itertools
import math
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from .. import arguments
from ..arguments import PLAIN, Part
from ..config import splitting
from ..plan.launch import Memo

_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor

LINE = struct.Struct("5q472s")
"""What a rank says first: its kind of call as a number, columns, the first one, numbers, how many
classes have a weight, and the call in words."""

FAILED = 0  # in place of a kind of call: the arguments of this rank are wrong
UNSAID = -1  # in place of a number
TIMEOUT = datetime.timedelta(minutes=10)  # of lines between the processors of GPUs, as NCCL's

# Rows are summarised and sent in blocks. A block is read again when its message has come, if
# possible from the L2 cache, and takes the processor about a quarter of a millisecond.
ROWS = 1024  # of a block, at least
BLOCK_BYTES = 32 << 20  # of a block, at most, unless this would make too many
MOST_BLOCKS = 4


class Shard(NamedTuple):
    """This rank's part of all rows, as the ranks have agreed."""

    group: Any  # a process group; None if this rank has everything
    start: int  # the first column here
    total: int  # columns on all ranks together
    widest: int = 0  # columns of the largest part; of all, where the ranks were not asked
    # (first column, columns) of each rank; empty where the parts are equal, in the order of ranks.
    parts: tuple[tuple[int, int], ...] = ()
    blocks: tuple[tuple[int, int], ...] = ()  # (first, end) of the rows of each
    call: int = 0  # the kind of call, as a number
    part: Part | None = None  # what kernels have to know; None where they take whole rows


class Proposal(NamedTuple):
    """A call that this rank proposes to the others. All ranks must have the same function, options
    and numbers, and x of one shape but for `dim`, in which parts may have any size in each call."""

    name: str
    x: Tensor  # this rank's part
    dim: int  # along which x is cut, counted from the front
    run: Callable[[Shard], Any]  # computes the result, once the ranks have agreed
    check: Callable[[], object] = lambda: None  # raises errors; asked if a kind of call is new
    read: tuple[Any, ...] = ()  # what `check` reads, of this rank alone, besides x and the options
    options: tuple[Any, ...] = ()
    numbers: tuple[float | None, ...] = ()  # which may change from call to call
    invariant: bool = False
    of_classes: bool = False  # the result depends on where this part lies
    start: int | None = None  # the first column; None if parts lie in the order of the ranks
    total: int | None = None  # columns of all ranks, if the caller says so
    weights: int = UNSAID  # how many classes have a weight here: all, or those of this rank


class WrongGuess(Exception):
    """The lines of all ranks say something else, its argument, than the guess by which a call has
    run."""


@dataclass(slots=True)
class Call:
    """A kind of call, as a number and in words that are the same on all ranks; and the lines of all
    ranks at the last one, with what followed from them."""

    number: int
    text: bytes
    read: Callable[[bytes], Shard]  # what follows from the lines of all ranks
    lines: bytes = b""
    shard: Shard | None = None


class Agreement:
    """What this rank keeps of a group: its kinds of calls, and memory in which the lines of all
    ranks are gathered, call after call."""

    def __init__(self, group: Any):
        self.group, self.calls = group, Memo()
        self.channel: Any = group
        self.call: Any = None  # whose line has been sent last
        self.work: Any = None  # on which it waits
        self.guess: Shard | None = None  # by which it runs, until the lines are read
        device = torch.device("cpu")
        if "cpu:" not in dist.get_backend_config(group):
            if dist.is_gloo_available():
                store = dist.PrefixStore("lines of triton_softmax", group.get_group_store())
                self.channel = dist.ProcessGroupGloo(store, group.rank(), group.size(), TIMEOUT)
            else:
                device = torch.device("cuda", torch.cuda.current_device())
        self.line = bytearray(LINE.size)
        self.lines = bytearray(LINE.size * group.size()) if group.size() > 1 else self.line
        here = [torch.frombuffer(each, dtype=torch.uint8) for each in (self.line, self.lines)]
        there = [each.to(device) for each in here]  # the same tensors, unless lines need a GPU
        self.tensors = [*zip(here, there, strict=True)]
        self.outs, self.ins = [[*there[1].view(-1, LINE.size).unbind()]], [there[0]]

    def run(
        self, call: Call, compute: Callable[[Shard], Any], words: tuple[int, ...] = (UNSAID,) * 4
    ) -> Any:
        """Send a line to all ranks, and return what is computed for the part that follows from the
        lines of all.

        If the ranks have made a call like this one, it runs by the guess that it comes to the same,
        while the lines travel. Its first message waits for them (`send`). If they say otherwise, it
        has sent nothing, and runs again.
        """
        if self.work is not None:  # of a call that has raised an error since
            self.work.wait()
        LINE.pack_into(self.line, 0, call.number, *words, call.text)
        if self.lines is not self.line:
            mine, sent = self.tensors[0]
            sent.copy_(mine)
            self.work = self.channel.allgather(self.outs, self.ins)
        guess, self.call, self.guess = call.shard, call, call.shard
        if guess is None:
            return compute(self.settle())
        try:
            result = compute(guess)
            if self.guess is not None:  # it has sent nothing
                self.settle()
            return result
        except WrongGuess as wrong:
            shard = wrong.args[0]
        except Exception:  # which may be due to the guess
            if self.guess is None:
                raise
            self.guess = None
            shard = self.settle()
            if shard == guess:
                raise
        finally:
            self.guess = None
        return compute(shard)

    def settle(self) -> Shard:
        """Wait for the lines of all ranks, and return what follows from them.

        Raises:
            WrongGuess: it is not what the call that runs has been computed for.
            ValueError: they call different things, or one has failed; not on a rank that has.
            RuntimeError: a line did not come in time.
        """
        call, work, guess, self.work, self.guess = self.call, self.work, self.guess, None, None
        if work is not None:
            work.wait()
            mine, received = self.tensors[1]
            mine.copy_(received)
        lines = bytes(self.lines)
        if call.shard is None or call.lines != lines:
            kinds, *_, texts = zip(*LINE.iter_unpack(lines), strict=True)
            if len(set(kinds)) > 1 and call.number != FAILED:
                said = [text.rstrip(b"\0").decode(errors="ignore") for text in texts]
                each = "; ".join([f"rank {rank}: {text}" for rank, text in enumerate(said)])
                raise ValueError(f"the ranks of the group do not call the same thing: {each}")
            call.shard, call.lines = call.read(lines), lines
        if guess is not None and call.shard != guess:
            raise WrongGuess(call.shard)
        return call.shard


agreements: dict[Any, Agreement] = {}
"""Those of the groups that have called something."""


def agreement_of(group: Any) -> Agreement:
    """Return what this rank keeps of a group; at the first call, which all ranks make, a new one.

    Raises:
        TypeError: `group` is not a process group that this rank is in.
    """
    found = agreements.get(group) if isinstance(group, dist.ProcessGroup) else None
    if found is None:
        arguments.check_group(group)
        found = agreements.setdefault(group, Agreement(group))
    return found


def tell(group: Any, error: Exception) -> None:
    """Tell the other ranks, which may be waiting for this one's line, that its arguments are wrong.
    They raise a ValueError with the words of the error."""
    if isinstance(group, dist.ProcessGroup) and not torch.compiler.is_compiling():
        text = f"{type(error).__name__}: {error}".encode()
        agreement_of(group).run(Call(FAILED, text, lambda _: Shard(None, 0, 0)), lambda _: None)


def dtensors() -> Any:
    """Return the module of `DTensor`s, which is imported at the first of them:
    `torch.distributed.tensor` takes half a second, and most programs do not need it."""
    from . import dtensor  # a statement, which `torch.compile` follows

    return dtensor


def agreed(group: Any, prepare: Callable[..., Proposal], x: Any, *given: Any) -> Any:
    """Return the result of a call on this rank's part x of the rows, after comparing it with what
    the other ranks call.

    `prepare` says of x and the other arguments what the call is, and raises an error if they are
    wrong; what it leaves to `Proposal.check` is checked once for each kind of call. Whatever can be
    wrong on one rank alone is found out here, and told to the others.

    A `DTensor` comes without a group, and goes to the function of the same name that takes it
    apart. Of any other x without a group, this rank has all columns. A traced call does not ask the
    other ranks, and takes them to have as many columns.

    Raises:
        TypeError: `group` is not a process group that this rank is in.
        ValueError: on every rank, if they call different things or the parts do not fit together;
            if a traced call lacks what it needs.
    """
    if group is None and type(x).__name__ == "DTensor":
        return getattr(dtensors(), prepare.__name__)(x, *given)
    alone = group is None or torch.compiler.is_compiling()
    agreement, call, key = None, None, ()
    try:
        if type(x) not in PLAIN:
            arguments.check_shard(x)
        asked = prepare(x, *given)
        x, start, weights = asked.x, asked.start, asked.weights
        if start is not None and asked.total is None:
            raise ValueError("vocab_start takes vocab_size as well")
        if not alone:
            agreement = agreements.get(group) if isinstance(group, dist.ProcessGroup) else None
            gradient = x.requires_grad and torch.is_grad_enabled()
            key = (asked.name, x.dtype, x.shape, asked.dim, gradient, asked.options, asked.read)
            key += (asked.invariant, start, asked.total, weights, x.device, x.layout)
            call = agreement.calls.get(key) if agreement else None
        if call is None:
            asked.check()
    except Exception as error:
        tell(group, error)
        raise
    if alone:
        return asked.run(_taken_for(group, asked))
    agreement = agreement or agreement_of(group)
    call = call or agreement.calls.keep(key, _call(group, asked))
    crc = zlib.crc32(repr(asked.numbers).encode()) if asked.numbers else UNSAID
    words = x.shape[asked.dim], UNSAID if start is None else start, crc, weights
    return agreement.run(call, asked.run, words)


def agreed_backward(shard: Shard, compute: Callable[[Shard], Any] = lambda _: None) -> Any:
    """Return what is computed in a backward pass that sends a message, after comparing what the
    ranks differentiate.

    Raises:
        ValueError: on every rank: they differentiate calls of different kinds, or one makes a call
            instead.
    """
    if not shard.call or torch.compiler.is_compiling():
        return compute(shard)
    words, same = b"the gradient of an earlier call", lambda _: shard
    return agreements[shard.group].run(Call(~shard.call, words, same, shard=shard), compute)


def _taken_for(group: Any, asked: Proposal) -> Shard:
    """Return the part that a call is taken to have without asking the other ranks: all columns, or
    those of a traced call."""
    n_cols, start = asked.x.shape[asked.dim], asked.start
    if group is None:
        return Shard(None, 0, n_cols)
    arguments.check_group(group)
    total = asked.total or n_cols * group.size()
    if asked.invariant:
        if n_cols * group.size() != total:
            raise ValueError(
                "under torch.compile a batch-invariant call takes equal parts: cut the "
                f"{asked.total} columns into {group.size()} of the same size"
            )
        start = n_cols * group.rank()
    if asked.of_classes and start is None:
        raise ValueError(
            "under torch.compile the ranks cannot ask each other where their classes lie: give "
            "vocab_start and vocab_size"
        )
    shard = Shard(group, start or 0, total, widest=total)
    return shard._replace(part=part_of(shard, asked.x, asked.dim, asked.invariant))


def _call(group: Any, asked: Proposal) -> Call:
    """Return a kind of call, of which nothing is known yet."""
    x, dim = asked.x, asked.dim
    gradient = x.requires_grad and torch.is_grad_enabled()
    sizes = ", ".join(["*" if i == dim else str(size) for i, size in enumerate(x.shape)])
    text = f"{asked.name} of {str(x.dtype)[6:]} ({sizes}) along {dim} on {x.device.type}; "
    text += f"{'with' if gradient else 'without'} a gradient"
    # Numbers that are equal are one key of a memory, and so have to be the same words.
    said = [str(float(o) if isinstance(o, (int, float)) else o) for o in asked.options]
    said += ["batch-invariant"] * asked.invariant
    said += [] if asked.total is None else [f"of {asked.total}"]
    text = "; ".join([text, *said]).encode()
    number = 1 + int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") // 4
    like = x.detach().new_empty(()).expand(x.shape)  # a kind of call keeps no memory of its first
    return Call(number, text, partial(_shard, group, like, dim, asked.total, asked.invariant))


def _shard(
    group: Any, like: Tensor, dim: int, total: int | None, invariant: bool, lines: bytes
) -> Shard:
    """Return this rank's part of the rows, as it follows from the lines of all ranks that call the
    same.

    Raises:
        ValueError: the parts do not fit together, or numbers or class weights differ.
    """
    calls, sizes, starts, numbers, weights, _ = zip(*LINE.iter_unpack(lines), strict=True)
    if min(starts) < 0:
        starts = (0, *itertools.accumulate(sizes[:-1]))
    parts, end = tuple(zip(starts, sizes, strict=True)), 0
    for start, size in sorted(parts):
        if size and start != end:
            raise ValueError(
                f"the parts of the ranks do not follow each other: they start at {[*starts]} and "
                f"have {[*sizes]} columns"
            )
        end += size
    if total is not None and total != end:
        raise ValueError(f"the parts of the ranks have {[*sizes]} columns, together not {total}")
    if len(set(numbers)) > 1:
        raise ValueError("the ranks of the group call the same thing with different numbers")
    if max(weights) >= 0 and weights != sizes and set(weights) != {end}:
        raise ValueError(
            f"the ranks have weights of {[*weights]} classes: give each rank those of all {end}, "
            f"or those of its own {[*sizes]}"
        )
    start, size = parts[group.rank()]
    if parts == tuple([(i * size, size) for i in range(len(parts))]):
        parts = ()
    n_rows = math.prod(like.shape[:dim] + like.shape[dim + 1 :])
    blocks = blocks_of(n_rows, end * like.element_size() // len(sizes))
    shard = Shard(group, start, end, max(sizes), parts, blocks, calls[0])
    return shard._replace(part=part_of(shard, like, dim, invariant))


def part_of(shard: Shard, x: Tensor, dim: int, invariant: bool) -> Part | None:
    """Return what is here of the rows of x; None where whole rows are: on one rank, or after every
    rank has gathered them.

    That is what ranks do if no kernels compute, if there are no elements, or if a row must have the
    bits that it has on one GPU, and that cuts it into chunks where no rank's part ends. It depends
    on nothing but what ranks have agreed on.
    """
    n_ranks, total = shard.group.size(), shard.total
    if n_ranks == 1 or not (arguments.INTERPRETED or x.device.type != "cpu"):
        return None
    if torch.compiler.is_compiling():
        return None if invariant else Part(shard.start, total, 0, n_ranks, shard.group, send)
    if not total or 0 in x.shape[:dim] + x.shape[dim + 1 :]:
        return None
    if invariant:
        long = total > splitting.MAX_SPLIT_COLS or x.dtype == torch.float64
        n_parts = 1 if long else splitting.parts_of(total)
        as_columns = x.shape[dim + 1 :].numel() > 1  # which one GPU cuts in another way
        if n_parts == 1 or n_parts % n_ranks or shard.parts or as_columns:
            return None
    return Part(shard.start, total, shard.widest, n_ranks, shard.group, send)


def blocks_of(n_rows: int, row_bytes: int) -> tuple[tuple[int, int], ...]:
    """Return the (first, end) of rows that are a message each: at least `ROWS` rows, and more while
    they are few bytes. All ranks get the same, so the bytes are those of a part of equal size.

    >>> blocks_of(1000, 10**6), blocks_of(2500, 10**6)
    (((0, 1000),), ((0, 1250), (1250, 2500)))
    >>> len(blocks_of(8192, 2**17)), len(blocks_of(8192, 2**14))
    (4, 4)
    """
    rows = max(ROWS, BLOCK_BYTES // max(1, row_bytes))
    n = max(1, n_rows // rows)
    if rows * row_bytes > BLOCK_BYTES:
        n = min(n, MOST_BLOCKS)
    ends = [n_rows * i // n for i in range(n + 1)]
    return tuple(zip(ends, ends[1:]))


def send(message: Tensor, group: Any) -> tuple[Tensor, Any]:
    """Send a message, a vector, to all ranks of a group, once they have agreed. Return the messages
    of all ranks, a line for each, and what to wait for before they are read; None if they are
    there."""
    if group is None or group.size() == 1:
        return message.unsqueeze(0), None
    lines = message.new_empty(group.size(), len(message))
    if torch.compiler.is_compiling():
        # Functional collectives take the place of this one, which have no handle to wait for.
        _all_gather(lines.view(-1), message, group=group)
        return lines, None
    agreement = agreements.get(group)
    if agreement is not None and agreement.guess is not None:
        agreement.settle()
    return lines, _all_gather(lines.view(-1), message, group=group, async_op=True)


def received(lines: Tensor, work: Any) -> Tensor:
    """Return the messages when they are there; a RuntimeError if a rank did not send within the
    time-out of the group."""
    if work is not None:
        work.wait()
    return lines
