"""The ranks of a group: what they agree on before their first message of a kind, and messages.

Only public names of `torch.distributed` are used; `torch.compile` replaces the collectives by
functional ones itself.
"""

import math
import weakref
import zlib
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from ..arguments import check_dtype, check_group
from ..launch import Memo

_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor

BYTES = 512  # of what a rank says of itself when the ranks agree: two numbers, and a sentence
HEADER = 2  # words that a message begins with
ROWS = 1024  # the fewest that are a message of their own, unless there are no more

# The size that a block of rows should have at most: it is read a second time when the message is
# there, if possible from the L2 cache.
BLOCK_BYTES = 32 << 20

# The number of blocks at most where each has more bytes than that: three of four messages travel
# while another block is read, and each takes the processor about a quarter of a millisecond.
MOST_BLOCKS = 4


class Shard(NamedTuple):
    """This rank's part of all rows, as the ranks have agreed."""

    group: Any  # a process group; None if this rank has everything
    start: int  # the column of the whole that is the first one here
    total: int  # the number of columns on all ranks together
    # The words that messages begin with, (2, HEADER), float32: a number for this kind of call, and
    # 0 forward, 1 backward. None where nothing is sent, or while a call is traced.
    headers: Tensor | None = None
    widest: int = 0  # columns of the largest part; of all, where the ranks were not asked
    # (first, end) of rows that are a message each. Not slices: `torch.compile` of PyTorch 2.11 does
    # not know one that comes from the default of a field.
    blocks: tuple[tuple[int, int | None], ...] = ((0, None),)
    over_rows: tuple[Any, ...] = ()  # of the shard of a `DTensor`, groups that have other rows
    # (first column, columns) of each rank; empty where the parts are equal, in the order of ranks.
    parts: tuple[tuple[int, int], ...] = ()


_agreed: weakref.WeakKeyDictionary[Any, Memo] = weakref.WeakKeyDictionary()
"""What the ranks of each group have agreed on. All ranks remember the same: an agreement is made by
all of them, or by none."""


def agree(
    group: Any,
    name: str,
    x: Tensor,
    dim: int,
    options: tuple[Any, ...] = (),
    start: int | None = None,
    total: int | None = None,
    where: bool = True,
    whole: bool = False,
) -> Shard:
    """Compare what the ranks call, and find out where this rank's part lies; once for each kind.

    The first message of a kind has the same size whatever a rank calls, and cannot be mistaken for
    a message of results: it is an all-reduce, to which each rank contributes its own line. While a
    call is traced the other ranks are not asked, and are taken to have as many columns.

    This rank's part is x, cut along `dim`, which counts from the front; without a group it has all
    columns. `options` have to be the same on all ranks. The caller says where the part lies, by
    `start` and `total`, or parts follow each other in the order of the ranks. If it matters
    (`where`), the ranks agree again when this one's part has another size; all have to change size
    at once. With `whole` the parts of all ranks have to be known, and that holds in either case.

    Raises:
        TypeError: `group` is not a process group that this rank is in, or x has another dtype.
        ValueError: on every rank, if they call different things, or the parts do not fit together;
            start goes without total; or a call is traced that has to know where its part lies, or
            that takes equal parts alone.
    """
    shape, n_cols = x.shape, x.shape[dim]
    if (start is None) != (total is None):
        raise ValueError("vocab_start and vocab_size belong together")
    if group is None:
        return Shard(None, 0, n_cols)
    if torch.compiler.is_compiling():
        check_group(group)
        check_dtype(x.dtype, "the input")
        if whole:
            if n_cols * group.size() != (total or n_cols * group.size()):
                raise ValueError(
                    "under torch.compile a batch-invariant call takes equal parts: cut the "
                    f"{total} columns into {group.size()} of the same size"
                )
            start = group.rank() * n_cols
        if where and start is None:
            raise ValueError(
                "under torch.compile the ranks cannot ask each other where their classes lie: give "
                "vocab_start and vocab_size"
            )
        of_all = total or n_cols * group.size()
        return Shard(group, start or 0, of_all, widest=of_all)
    others = shape[:dim] + shape[dim + 1 :]
    gradient = x.requires_grad and torch.is_grad_enabled()
    asked = (n_cols, start) if whole else n_cols if where and start is None else None
    key = (name, x.dtype, others, dim, gradient, options, total, x.device, asked)
    remembered = _agreed.get(group) if isinstance(group, dist.ProcessGroup) else None
    shard = None if remembered is None else remembered.get(key)
    if shard is None:
        check_group(group)
        check_dtype(x.dtype, "the input")
        sizes = [*map(str, others)]
        sizes.insert(dim, "*")
        call = f"{name} of {str(x.dtype)[6:]} ({', '.join(sizes)}) along {dim}; "
        call += f"{'with' if gradient else 'without'} a gradient"
        call = "; ".join([call, *map(str, options), *([] if total is None else [f"of {total}"])])
        shard = _compared(group, call, n_cols, start, total, x.device)
        row_bytes = shard.total * x.element_size() // group.size()
        shard = shard._replace(blocks=tuple(blocks_of(math.prod(others), row_bytes)))
        _agreed.setdefault(group, Memo()).keep(key, shard)
    return shard if start is None else shard._replace(start=start)


def _compared(
    group: Any, call: str, n_cols: int, start: int | None, total: int | None, device: torch.device
) -> Shard:
    """Tell all ranks what this one calls and which columns it has, and compare what they say."""
    line = f"{n_cols} {-1 if start is None else start} {call}".encode()
    if len(line) > BYTES:
        line = line[: BYTES - 16] + f"… {zlib.crc32(call.encode())}".encode()
    lines = torch.zeros(group.size(), BYTES, dtype=torch.uint8)
    lines[group.rank(), : len(line)] = torch.frombuffer(bytearray(line), dtype=torch.uint8)
    lines = lines.to(device)
    dist.all_reduce(lines, group=group)
    said = [bytes(each.tolist()).rstrip(b"\0").decode(errors="ignore") for each in lines.cpu()]
    all_sizes, all_starts, calls = zip(*[each.split(" ", 2) for each in said])
    if len(set(calls)) > 1:
        each = "; ".join(f"rank {rank}: {said}" for rank, said in enumerate(calls))
        raise ValueError(f"the ranks of the group do not call the same thing: {each}")
    sizes, starts = [*map(int, all_sizes)], [*map(int, all_starts)]
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
    parts = tuple(zip(starts, sizes))
    if parts == tuple([(rank * n_cols, n_cols) for rank in range(len(sizes))]):
        parts = ()
    return Shard(group, starts[group.rank()], end, headers, max(sizes), parts=parts)


def blocks_of(n_rows: int, row_bytes: int) -> list[tuple[int, int]]:
    """Return the (first, end) of rows that are a message each: at least `ROWS` rows, and more while
    they are few bytes. All ranks get the same, so the bytes are those of a part of equal size.

    >>> blocks_of(1000, 10**6), blocks_of(2500, 10**6)
    ([(0, 1000)], [(0, 1250), (1250, 2500)])
    >>> len(blocks_of(8192, 2**17)), len(blocks_of(8192, 2**14))
    (4, 4)
    """
    rows = max(ROWS, BLOCK_BYTES // max(1, row_bytes))
    n = max(1, n_rows // rows)
    if rows * row_bytes > BLOCK_BYTES:
        n = min(n, MOST_BLOCKS)
    ends = [n_rows * i // n for i in range(n + 1)]
    return [*zip(ends, ends[1:])]


def send(words: tuple[Tensor, ...], shard: Shard, header: int | None = None) -> tuple[Tensor, Any]:
    """Send a message to all ranks: one of the shard's headers, if it has any, unless the words
    begin with it, and then the words, vectors that follow each other. Return the messages of all
    ranks, (ranks, words), and what to wait for before they are read; None if they are there."""
    if header is not None and shard.headers is not None:
        words = (shard.headers[header], *words)
    first, *more = words
    message, group = torch.cat(words) if more else first, shard.group
    if group is None or group.size() == 1:
        return message.unsqueeze(0), None
    lines = message.new_empty(group.size(), len(message))
    if torch.compiler.is_compiling():
        # Functional collectives take the place of this one, which have no handle to wait for.
        _all_gather(lines.view(-1), message, group=group)
        return lines, None
    return lines, _all_gather(lines.view(-1), message, group=group, async_op=True)


def received(lines: Tensor, work: Any, shard: Shard) -> Tensor:
    """Return the messages when they are there.

    Raises:
        RuntimeError: they belong to different calls, which is looked at on CPUs only, since it
            would wait for a GPU; or a rank did not send within the time-out of the group.
    """
    if work is not None:
        work.wait()
        if shard.headers is not None and lines.device.type == "cpu":
            if (lines[:, :HEADER] != lines[0, :HEADER]).any():
                raise RuntimeError("the ranks of the group have sent words of different calls")
    return lines
