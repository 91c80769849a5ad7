"""The ranks of a group: what they agree on before their first message of a kind, and messages.

Nothing but public names of `torch.distributed` is used; `torch.compile` replaces the collectives by
functional ones itself.
"""

from __future__ import annotations

import struct
import weakref
import zlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor

BYTES = 512
"""What a rank says of itself when the ranks agree: numbers, then a sentence."""

_NUMBERS = struct.Struct("<qqqq")

ROWS = 1024
"""Fewer rows than these are never a message of their own, unless there are no more."""

BLOCK_BYTES = 32 << 20
"""What a block of rows should have at most: it is read a second time when the message is there, if
possible from the L2 cache."""

MOST_BLOCKS = 4
"""Where a block has more bytes than that: three of four messages are on their way while another
block is read, and each takes the processor about as long as a quarter of a millisecond."""


class Shard(NamedTuple):
    """This rank's part of all rows, as the ranks have agreed."""

    group: Any
    """A process group; None if this rank has everything."""
    start: int
    """The column of all that is the first one here."""
    total: int
    """How many columns there are on all ranks together."""
    header: Tensor | None = None
    """Two words that every message begins with, (2, 2): a number for this kind of call, and 0
    forward, 1 backward."""
    widest: int = 0
    """How many columns the largest part has, if the ranks were asked."""


_agreed: weakref.WeakKeyDictionary[Any, dict[tuple, Shard]] = weakref.WeakKeyDictionary()
"""For each group what its ranks have agreed on. All ranks remember the same: an agreement is made
by all of them, or by none."""

_MAX_AGREED = 4096


def check_group(group: object) -> None:
    """Refuse what is no process group, or one that this rank is not in.

    Raises:
        TypeError: it is another object.
    """
    if not dist.is_available():
        raise RuntimeError("this build of PyTorch has no torch.distributed")
    if not isinstance(group, dist.ProcessGroup):
        raise TypeError(
            f"group must be a torch.distributed.ProcessGroup that this rank is in, not "
            f"{type(group).__name__}"
        )


def agree(
    group: Any,
    call: str,
    n_cols: int,
    device: torch.device,
    start: int | None = None,
    total: int | None = None,
    where: bool = True,
) -> Shard:
    """Compare what the ranks call, and find out where this rank's part lies; once for each kind.

    The first message of a kind is of the same size whatever a rank calls, and no message of words
    can be taken for it: it is an all-reduce, to which each rank contributes its own line.

    Args:
        group: a process group.
        call: what has to be the same on all ranks, in words.
        n_cols: columns of this rank's part.
        device: of the messages.
        start, total: where the part lies, if the caller says so; else parts follow each other in
            the order of the ranks.
        where: whether it matters where the part lies. Then the ranks agree again when this one's
            part has another size, unless the caller says where it lies. That has to be so on all
            ranks at once: where the parts of some change and those of others do not, the caller has
            to say.

    Raises:
        ValueError: on every rank, if they call different things, or the parts do not fit together.
    """
    remembered = _agreed.setdefault(group, {})
    key = (call, device, n_cols if where and start is None else None)
    shard = remembered.get(key)
    if shard is None:
        lines = _exchanged(group, call, (n_cols, -1 if start is None else start), device)
        shard = _checked(group, call, lines, n_cols, total, device)
        if len(remembered) >= _MAX_AGREED:
            remembered.clear()
        remembered[key] = shard
    return shard if start is None else shard._replace(start=start)


def _exchanged(
    group: Any, call: str, numbers: tuple[int, int], device: torch.device
) -> list[tuple[int, int, str]]:
    """(columns, start, call) of every rank."""
    said = call.encode()
    line = _NUMBERS.pack(*numbers, len(said), zlib.crc32(said)) + said
    line = line[:BYTES].ljust(BYTES, b"\0")
    lines = torch.zeros(group.size(), BYTES, dtype=torch.uint8)
    lines[group.rank()] = torch.frombuffer(bytearray(line), dtype=torch.uint8)
    lines = lines.to(device)
    dist.all_reduce(lines, group=group)
    found = []
    for each in lines.cpu():
        line = bytes(each.tolist())
        n_cols, start, length, check = _NUMBERS.unpack(line[: _NUMBERS.size])
        text = line[_NUMBERS.size :][:length].decode(errors="ignore")
        found.append((n_cols, start, text if len(text.encode()) == length else f"{text}… {check}"))
    return found


def _checked(
    group: Any,
    call: str,
    lines: list[tuple[int, int, str]],
    n_cols: int,
    total: int | None,
    device: torch.device,
) -> Shard:
    calls = [line[2] for line in lines]
    if len(set(calls)) > 1:
        each = "; ".join(f"rank {rank}: {said}" for rank, said in enumerate(calls))
        raise ValueError(f"the ranks of the group do not call the same thing: {each}")
    sizes = [line[0] for line in lines]
    starts = [line[1] for line in lines]
    if min(starts) < 0:
        starts = [sum(sizes[:rank]) for rank in range(len(sizes))]
    end = 0
    for start, size in sorted(zip(starts, sizes)):
        if size and start != end:
            raise ValueError(
                f"the parts of the ranks do not follow each other: they start at {starts} and have "
                f"{sizes} columns"
            )
        end += size
    if total is not None and total != end:
        raise ValueError(f"the parts of the ranks have {sizes} columns, together not {total}")
    # Small enough to be exact in float32.
    kind = zlib.crc32(call.encode()) >> 8
    header = torch.tensor([[kind, 0], [kind, 1]], device=device)
    return Shard(group, starts[group.rank()], end, header, max(sizes))


# --8<-- [start:message]
def send(
    words: Iterable[Tensor], shard: Shard, *, backward: bool = False, wait: bool = True
) -> Callable[[], Tensor]:
    """Send numbers of rows to all ranks; returns a function that waits for theirs.

    Args:
        words: the numbers, each (n_rows,).
        shard: of this rank.
        backward: whether this is a message of the backward pass.
        wait: whether the message has arrived when this returns.

    Returns:
        A function without arguments, which returns (ranks, len(words), n_rows).

    Raises:
        RuntimeError: from that function, on every rank: another kind of call was sent; CPU only,
            since looking would wait for a GPU. From either, a rank did not send within the time-out
            of the group.
    """
    words = torch.stack(list(words))
    group = shard.group
    if group is None or group.size() == 1 or not words.shape[1]:
        alone = words.unsqueeze(0)
        return lambda: alone
    message = words.flatten()
    n_header = 0
    if shard.header is not None:
        header = shard.header[int(backward)]
        message = torch.cat([header.to(words.dtype), message])
        n_header = len(header)
    arrived = message.new_empty(group.size() * len(message))
    if torch.compiler.is_compiling():
        # Functional collectives take the place of this one, which have no handle to wait for.
        _all_gather(arrived, message, group=group)
        work = None
    else:
        work = _all_gather(arrived, message, group=group, async_op=True)
        if work is not None and wait:
            work.wait()

    def received() -> Tensor:
        if work is not None and not wait:
            work.wait()
        lines = arrived.view(group.size(), -1)
        if n_header and lines.device.type == "cpu" and not torch.compiler.is_compiling():
            if (lines[:, :n_header] != lines[0, :n_header]).any():
                raise RuntimeError("the ranks of the group have sent words of different calls")
        return lines[:, n_header:].unflatten(1, words.shape)

    return received


def gathered(message: Tensor, header: int, shard: Shard) -> Tensor:
    """The messages of all ranks, (ranks, words), of one that begins with a header of some words.

    Raises:
        RuntimeError: as `send`.
    """
    group = shard.group
    if group is None or group.size() == 1:
        return message.unsqueeze(0)
    lines = message.new_empty(group.size(), len(message))
    _all_gather(lines.view(-1), message, group=group)
    if header and lines.device.type == "cpu" and not torch.compiler.is_compiling():
        if (lines[:, :header] != lines[0, :header]).any():
            raise RuntimeError("the ranks of the group have sent words of different calls")
    return lines


def blocks_of(n_rows: int, row_bytes: int) -> list[slice]:
    """Blocks of rows that are a message each: at least `ROWS` rows, and more while they are few
    bytes. All ranks get the same, so the bytes are those of a part of equal size.

    >>> blocks_of(1000, 10**6), blocks_of(2500, 10**6)
    ([slice(0, 1000, None)], [slice(0, 1250, None), slice(1250, 2500, None)])
    >>> len(blocks_of(8192, 2**17)), len(blocks_of(8192, 2**14))
    (4, 4)
    """
    if torch.compiler.is_compiling():
        return [slice(0, n_rows)]
    rows = max(ROWS, BLOCK_BYTES // max(1, row_bytes))
    n = max(1, n_rows // rows)
    if rows * row_bytes > BLOCK_BYTES:
        n = min(n, MOST_BLOCKS)
    ends = [n_rows * i // n for i in range(n + 1)]
    return [slice(a, b) for a, b in zip(ends, ends[1:])]


def in_turn(
    blocks: list[slice],
    begin: Callable[[slice], Callable[[], Tensor]],
    end: Callable[[slice, Tensor], None],
) -> None:
    """Summarise each block and send its words; finish it while those of the next are on their way.

    Args:
        blocks: of rows.
        begin: sends the words of a block and returns what waits for those of all ranks.
        end: writes a block's results.
    """
    waiting = None
    for block in blocks:
        sent = block, begin(block)
        if waiting is not None:
            end(waiting[0], waiting[1]())
        waiting = sent
    if waiting is not None:
        end(waiting[0], waiting[1]())


# --8<-- [end:message]
