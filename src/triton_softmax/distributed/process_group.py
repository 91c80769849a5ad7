"""Let the ranks of a group agree on every call before they exchange its words.

A message says neither what it is nor how long it is. Ranks that make different calls, or that
expect parts of other sizes, would misread each other's words or wait for ever. So each call begins
with a line of fixed size, from which every rank reads what all ranks call and how many columns each
of them has. What is sent afterwards follows from these lines alone, and so is the same on all.

Lines travel from processor to processor: they never wait for a GPU that is busy with earlier calls.
One takes about as long as a launch, so a call launches meanwhile (`Proposal.run`).

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
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from ..arguments import check_group
from ..plan.launch import Memo

_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
T = TypeVar("T")

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
    blocks: tuple[tuple[int, int], ...] = ()  # (first, end) of the rows of each; empty if one
    over_rows: tuple[Any, ...] = ()  # of the shard of a `DTensor`, groups that have other rows
    # (first column, columns) of each rank; empty where the parts are equal, in the order of ranks.
    parts: tuple[tuple[int, int], ...] = ()
    call: int = 0  # the kind of call, as a number


class Proposal(NamedTuple):
    """A call whose line is on its way to the other ranks."""

    guess: Shard | None  # what the last call like this one came to; None if there was none
    settle: Callable[[], Shard]  # waits for all lines and returns what they say, or raises

    def run(self, call: Callable[[Shard], T]) -> T:
        """Return what a call returns for what the ranks agree on.

        It runs by the guess while the lines travel. Its first message waits for them (`send`); if
        they say otherwise, it has sent nothing, and runs again.
        """
        guess = self.guess
        if torch.compiler.is_compiling() or guess is None or guess.group is None:
            return call(self.settle())
        agreement = agreements[guess.group]
        agreement.unsettled = self
        try:
            result = call(guess)
            if agreement.unsettled is None:
                return result
            shard = self.settle()  # it has sent nothing
        except WrongGuess as wrong:
            shard, guess = wrong.shard, None
        except Exception:  # which may be due to the guess
            if agreement.unsettled is None or (shard := self.settle()) == guess:
                raise
        finally:
            agreement.unsettled = None
        return result if shard == guess else call(shard)  # pyright: ignore


class WrongGuess(Exception):
    """The lines of all ranks say something else than the guess by which a call has run."""

    def __init__(self, shard: Shard):
        super().__init__()
        self.shard = shard


@dataclass(slots=True)
class Call:
    """A kind of call, as a number and in words that are the same on all ranks; and the lines of all
    ranks at the last one, with what followed from them."""

    number: int
    text: bytes
    lines: bytes = b""
    shard: Shard | None = None


class Agreement:
    """What this rank keeps of a group: its kinds of calls, and memory in which the lines of all
    ranks are gathered, call after call."""

    def __init__(self, group: Any):
        self.group, self.calls = group, Memo()
        self.channel: Any = group
        self.work: Any = None
        self.unsettled: Proposal | None = None  # of a call that runs by a guess
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

    def propose(
        self, call: Call, read: Callable[[bytes], Shard], numbers: tuple[int, ...] = (UNSAID,) * 4
    ) -> Proposal:
        """Begin to send a line to all ranks; `read` says what follows from the lines of all."""
        if self.work is not None:  # of a call that has raised an error since
            self.work.wait()
        LINE.pack_into(self.line, 0, call.number, *numbers, call.text)
        if self.lines is not self.line:
            mine, sent = self.tensors[0]
            sent.copy_(mine)
            self.work = self.channel.allgather(self.outs, self.ins)
        return Proposal(call.shard, partial(self.settle, call, read))

    def settle(self, call: Call, read: Callable[[bytes], Shard]) -> Shard:
        """Wait for the lines of all ranks, and return what follows from them.

        Raises:
            ValueError: they call different things, or one has failed; not on a rank that has.
            RuntimeError: a line did not come in time.
        """
        work, self.work = self.work, None
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
            call.shard, call.lines = read(lines), lines
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
        check_group(group)
        found = agreements.setdefault(group, Agreement(group))
    return found


def tell(group: Any, error: Exception) -> None:
    """Tell the other ranks, which may be waiting for this one's line, that its arguments are wrong.
    They raise a ValueError with the words of the error."""
    if isinstance(group, dist.ProcessGroup) and not torch.compiler.is_compiling():
        failed = Call(FAILED, f"{type(error).__name__}: {error}".encode())
        agreement_of(group).propose(failed, lambda _: Shard(None, 0, 0)).settle()


def propose(
    group: Any,
    name: str,
    x: Tensor,
    dim: int,
    options: tuple[Any, ...] = (),
    start: int | None = None,
    total: int | None = None,
    numbers: tuple[float | None, ...] = (),
    weights: int = UNSAID,
    where: bool = True,
    whole: bool = False,
) -> Proposal:
    """Begin to compare what the ranks call, and to find out where this rank's part lies.

    What needs no other rank can run while the lines travel: `propose(…).run(call)` runs `call` for
    the shard of the last call like this one, and its first message waits for the lines. A wrong
    guess costs what has run by then, and nothing else, since what is sent follows from the lines.

    This rank's part is x, cut along `dim`, which counts from the front; without a group it has all
    columns. Parts may have any size in each call. The caller says where the part lies, by `start`
    and `total`, or parts follow each other in the order of the ranks. `options` and `numbers` must
    be the same on all ranks; numbers may change from call to call. `weights` is how many classes
    have a weight here: all, or those of this rank. Whatever can be wrong on one rank alone has been
    checked before, and the others have been told (`tell`).

    A traced call does not ask the other ranks, and takes them to have as many columns. One that
    needs to know where its part lies (`where`) must say so; one that takes `whole` rows must have
    equal parts.

    Raises:
        TypeError: `group` is not a process group that this rank is in.
        ValueError: at once, if a traced call lacks what it needs; when it is settled, on every
            rank, if they call different things or the parts do not fit together.
    """
    n_cols = x.shape[dim]
    if group is None or torch.compiler.is_compiling():
        alone = Shard(None, 0, n_cols)
        shard = _taken_for(group, n_cols, start, total, where, whole) if group else alone
        return Proposal(shard, lambda: shard)
    agreement = agreements.get(group) if isinstance(group, dist.ProcessGroup) else None
    agreement = agreement or agreement_of(group)
    gradient = x.requires_grad and torch.is_grad_enabled()
    key = (name, x.dtype, x.shape, dim, gradient, options, start, total, weights, x.device.type)
    call = agreement.calls.get(key)
    if call is None:
        call = agreement.calls.keep(key, _call(name, x, dim, gradient, options, total))
    crc = zlib.crc32(repr(numbers).encode()) if numbers else UNSAID
    words = n_cols, UNSAID if start is None else start, crc, weights
    return agreement.propose(call, partial(_shard, group, total, x, dim), words)


def propose_backward(shard: Shard) -> Proposal:
    """Begin to compare what the ranks differentiate, before a message of the backward pass. The
    guess is never wrong.

    Raises:
        ValueError: when it is settled, on every rank: they differentiate calls of different kinds,
            or one makes a call instead.
    """
    if not shard.call or torch.compiler.is_compiling():
        return Proposal(shard, lambda: shard)
    call = Call(~shard.call, b"the gradient of an earlier call", shard=shard)
    return agreements[shard.group].propose(call, lambda _: shard)


def agree_backward(shard: Shard) -> None:
    """Compare what the ranks differentiate; see `propose_backward`."""
    propose_backward(shard).settle()


def _taken_for(
    group: Any, n_cols: int, start: int | None, total: int | None, where: bool, whole: bool
) -> Shard:
    """Return the part that a traced call is taken to have, without asking the other ranks."""
    check_group(group)
    of_all = total or n_cols * group.size()
    if whole and n_cols * group.size() != of_all:
        raise ValueError(
            "under torch.compile a batch-invariant call takes equal parts: cut the "
            f"{total} columns into {group.size()} of the same size"
        )
    start = n_cols * group.rank() if whole else start
    if where and start is None:
        raise ValueError(
            "under torch.compile the ranks cannot ask each other where their classes lie: give "
            "vocab_start and vocab_size"
        )
    return Shard(group, start or 0, of_all, widest=of_all)


def _call(
    name: str, x: Tensor, dim: int, gradient: bool, options: tuple[Any, ...], total: int | None
) -> Call:
    """Return a kind of call, of which nothing is known yet."""
    sizes = ", ".join(["*" if i == dim else str(size) for i, size in enumerate(x.shape)])
    text = f"{name} of {str(x.dtype)[6:]} ({sizes}) along {dim} on {x.device.type}; "
    text += f"{'with' if gradient else 'without'} a gradient"
    # Numbers that are equal are one key of a memory, and so have to be the same words.
    said = [str(float(o) if isinstance(o, (int, float)) else o) for o in options]
    text = "; ".join([text, *said, *([] if total is None else [f"of {total}"])]).encode()
    digest = hashlib.blake2b(text, digest_size=8).digest()
    return Call(1 + int.from_bytes(digest, "little") // 4, text)


def _shard(group: Any, total: int | None, x: Tensor, dim: int, lines: bytes) -> Shard:
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
    n_rows = math.prod(x.shape[:dim] + x.shape[dim + 1 :])
    blocks = blocks_of(n_rows, end * x.element_size() // len(sizes))
    return Shard(group, start, end, max(sizes), blocks, parts=parts, call=calls[0])


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
    if not torch.compiler.is_compiling() and group in agreements:
        agreement = agreements[group]
        proposal, agreement.unsettled = agreement.unsettled, None
        if proposal is not None:
            shard = proposal.settle()
            if shard != proposal.guess:
                raise WrongGuess(shard)
    lines = message.new_empty(group.size(), len(message))
    if torch.compiler.is_compiling():
        # Functional collectives take the place of this one, which have no handle to wait for.
        _all_gather(lines.view(-1), message, group=group)
        return lines, None
    return lines, _all_gather(lines.view(-1), message, group=group, async_op=True)


def received(lines: Tensor, work: Any) -> Tensor:
    """Return the messages when they are there; a RuntimeError if a rank did not send within the
    time-out of the group."""
    if work is not None:
        work.wait()
    return lines
