"""The ranks of a group: what they agree on before their first message of a kind, and messages.

Only public names of `torch.distributed` are used; `torch.compile` replaces the collectives by
functional ones itself.
"""

from __future__ import annotations

import math
import struct
import weakref
import zlib
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor

BYTES = 512
"""The size of what a rank says of itself when the ranks agree: numbers, then a sentence."""

_NUMBERS = struct.Struct("<qqqq")

ROWS = 1024
"""The fewest rows that are a message of their own, unless there are no more."""

BLOCK_BYTES = 32 << 20
"""The size that a block of rows should have at most: it is read a second time when the message is
there, if possible from the L2 cache."""

MOST_BLOCKS = 4
"""The number of blocks at most where each has more bytes than that: three of four messages travel
while another block is read, and each takes the processor about a quarter of a millisecond."""

HEADER = 2
"""Words that a message begins with."""


class Call(NamedTuple):
    """What has to be the same on all ranks of a group."""

    name: str
    dtype: torch.dtype
    sizes: tuple[int, ...]
    """Of all dimensions but the one that is sharded."""
    dim: int
    gradient: bool
    options: tuple[Any, ...]

    def __str__(self) -> str:
        sizes = [str(size) for size in self.sizes]
        shape = ", ".join([*sizes[: self.dim], "*", *sizes[self.dim :]])
        gradient = "with" if self.gradient else "without"
        call = f"{self.name} of {str(self.dtype)[6:]} ({shape}) along {self.dim}"
        options = [str(each) for each in self.options]
        return "; ".join([f"{call}, {gradient} a gradient", *options])


class Shard(NamedTuple):
    """This rank's part of all rows, as the ranks have agreed."""

    group: Any
    """A process group; None if this rank has everything."""
    start: int
    """The column of the whole that is the first one here."""
    total: int
    """The number of columns on all ranks together."""
    headers: Tensor | None = None
    """The words that messages begin with, (2, HEADER), float32: a number for this kind of call, and
    0 forward, 1 backward. None where nothing is sent, or while a call is traced."""
    widest: int = 0
    """The number of columns of the largest part, if the ranks were asked."""
    blocks: tuple[slice, ...] = (slice(None),)
    """Blocks of rows that are a message each."""


_agreed: weakref.WeakKeyDictionary[Any, dict[tuple, Shard]] = weakref.WeakKeyDictionary()
"""What the ranks of each group have agreed on. All ranks remember the same: an agreement is made by
all of them, or by none."""

_MAX_AGREED = 4096


def check_group(group: object) -> None:
    """Raise a TypeError for what is not a process group that this rank is in."""
    if not dist.is_available():
        raise RuntimeError("this build of PyTorch has no torch.distributed")
    if not isinstance(group, dist.ProcessGroup):
        raise TypeError(
            f"group must be a torch.distributed.ProcessGroup that this rank is in, not "
            f"{type(group).__name__}"
        )


def agree(
    group: Any,
    name: str,
    x: Tensor,
    dim: int,
    options: tuple[Any, ...] = (),
    start: int | None = None,
    total: int | None = None,
    where: bool = True,
) -> Shard:
    """Compare what the ranks call, and find out where this rank's part lies; once for each kind.

    The first message of a kind has the same size whatever a rank calls, and cannot be mistaken for
    a message of results: it is an all-reduce, to which each rank contributes its own line. While a
    call is traced the other ranks are not asked, and are taken to have as many columns.

    Args:
        group: a process group.
        name: of the function.
        x: this rank's part.
        dim: the dimension that is sharded, counted from the front.
        options: what else has to be the same on all ranks.
        start, total: where the part lies, if the caller says so; else parts follow each other in
            the order of the ranks.
        where: whether it matters where the part lies. Then the ranks agree again when this one's
            part has another size, unless the caller says where it lies. That has to be so on all
            ranks at once: where the parts of some change and those of others do not, the caller has
            to say.

    Raises:
        ValueError: on every rank, if they call different things, or the parts do not fit together.
    """
    shape, n_cols = x.shape, x.shape[dim]
    if torch.compiler.is_compiling():
        return Shard(group, start or 0, total or n_cols * group.size())
    gradient = x.requires_grad and torch.is_grad_enabled()
    call = Call(name, x.dtype, shape[:dim] + shape[dim + 1 :], dim, gradient, options)
    key = (call, x.device, n_cols if where and start is None else None)
    remembered = _agreed.get(group)
    shard = None if remembered is None else remembered.get(key)
    if shard is None:
        lines = _exchanged(group, str(call), (n_cols, -1 if start is None else start), x.device)
        shard = _checked(group, str(call), lines, n_cols, total, x.device)
        row_bytes = shard.total * x.element_size() // group.size()
        blocks = blocks_of(math.prod(call.sizes), row_bytes)
        shard = shard._replace(blocks=tuple(blocks))
        remembered = _agreed.setdefault(group, {})
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
    headers = torch.tensor([[kind, 0], [kind, 1]], dtype=torch.float32, device=device)
    return Shard(group, starts[group.rank()], end, headers, max(sizes))


def blocks_of(n_rows: int, row_bytes: int) -> list[slice]:
    """Return blocks of rows that are a message each: at least `ROWS` rows, and more while they are
    few bytes. All ranks get the same, so the bytes are those of a part of equal size.

    >>> blocks_of(1000, 10**6), blocks_of(2500, 10**6)
    ([slice(0, 1000, None)], [slice(0, 1250, None), slice(1250, 2500, None)])
    >>> len(blocks_of(8192, 2**17)), len(blocks_of(8192, 2**14))
    (4, 4)
    """
    rows = max(ROWS, BLOCK_BYTES // max(1, row_bytes))
    n = max(1, n_rows // rows)
    if rows * row_bytes > BLOCK_BYTES:
        n = min(n, MOST_BLOCKS)
    ends = [n_rows * i // n for i in range(n + 1)]
    return [slice(a, b) for a, b in zip(ends, ends[1:])]


# --8<-- [start:message]
def send(message: Tensor, shard: Shard, wait: bool = True) -> tuple[Tensor, Any]:
    """Send a message to all ranks, and receive theirs.

    Args:
        message: words, of which the first are a header if the shard has headers.
        shard: of this rank.
        wait: whether the messages have arrived when this returns.

    Returns:
        The messages, (ranks, words); and if they are on their way what to wait for, or None.

    Raises:
        RuntimeError: as `check_headers`; or a rank did not send within the time-out of the group.
    """
    group = shard.group
    if group is None or group.size() == 1:
        return message.unsqueeze(0), None
    lines = message.new_empty(group.size(), len(message))
    if torch.compiler.is_compiling():
        # Functional collectives take the place of this one, which have no handle to wait for.
        _all_gather(lines.view(-1), message, group=group)
        return lines, None
    work = _all_gather(lines.view(-1), message, group=group, async_op=True)
    if not wait:
        return lines, work
    if work is not None:
        work.wait()
    if shard.headers is not None and message.device.type == "cpu":
        check_headers(lines)
    return lines, None


def check_headers(lines: Tensor) -> None:
    """Raise a RuntimeError, on every rank, if messages belong to different calls. This is done on
    CPUs only: looking would wait for a GPU."""
    if (lines[:, :HEADER] != lines[0, :HEADER]).any():
        raise RuntimeError("the ranks of the group have sent words of different calls")


# --8<-- [end:message]
