"""Let the ranks of a group agree on every call before they send each other words of it.

A message says neither what it is nor how long it is: ranks that call different things, or have
remembered different sizes, would take each other's words for what they are not, or wait for ever.
So each call begins with a line of fixed size, from which every rank reads what all call and how
many columns each has. What is decided follows from these lines alone, and is the same on all ranks.

Lines go from processor to processor. They do not wait for a GPU, which may still be computing what
earlier calls have queued up.

Only public names of `torch.distributed` are used; `torch.compile` replaces the collectives by
functional ones itself.
"""

import datetime
import hashlib
import math
import weakref
import zlib
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from ..arguments import Part, check_group
from ..plan.launch import Memo

_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor

LINE = 5  # int64 words of a line: the kind of call, columns, the first, numbers, class weights
SENTENCE = 512  # bytes in which a rank says what it calls, if they differ
FAILED = 0  # in place of a kind of call: the arguments of a rank are wrong
UNSAID = -1  # in place of a number
TIMEOUT = datetime.timedelta(minutes=10)  # of lines between processors of GPUs, as NCCL's
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
    widest: int = 0  # columns of the largest part; of all, where the ranks were not asked
    # (first, end) of rows that are a message each. Not slices: `torch.compile` of PyTorch 2.11 does
    # not know one that comes from the default of a field.
    blocks: tuple[tuple[int, int | None], ...] = ((0, None),)
    over_rows: tuple[Any, ...] = ()  # of the shard of a `DTensor`, groups that have other rows
    # (first column, columns) of each rank; empty where the parts are equal, in the order of ranks.
    parts: tuple[tuple[int, int], ...] = ()
    call: int = 0  # the kind of call, as a number

    @property
    def part(self) -> Part:
        """What is here of the rows, for a plan."""
        return Part(self.start, self.total, agreements[self.group].words)


class Agreement:
    """What this rank keeps of a group: where its lines travel, and what follows from them.

    Both memories hold results of pure functions: of this rank's call alone, and of the lines of all
    ranks, which every rank has read. So it never matters whether something is remembered.
    """

    def __init__(self, group: Any):
        self.messages: Any = group
        self.lines: Any = group
        self.rank, self.size = group.rank(), group.size()
        self.device = torch.device("cpu")
        self.calls, self.shards = Memo(), Memo()
        if "cpu:" not in dist.get_backend_config(group):
            if dist.is_gloo_available():
                store = dist.PrefixStore("lines of triton_softmax", group.get_group_store())
                self.lines = dist.ProcessGroupGloo(store, self.rank, self.size, TIMEOUT)
            else:
                self.device = torch.device("cuda", torch.cuda.current_device())

    def exchange(self, *words: int) -> tuple[tuple[int, ...], ...]:
        """Send a line to all ranks and return the lines of all. If their first words differ, the
        ranks call different things, or a rank has failed; see `disagree`."""
        mine = torch.tensor(words, dtype=torch.int64, device=self.device)
        return tuple(map(tuple, gathered(self.lines, mine, self.size).tolist()))

    def words(self, mine: Tensor) -> Tensor:
        """Send a message to all ranks and return the words of all, a line for each."""
        lines = mine.new_empty(self.size, len(mine))
        _all_gather(lines.view(-1), mine, group=self.messages)
        return lines

    def disagree(self, lines: Any, sentence: str) -> bool:
        """Return whether ranks call different things, or one has failed.

        Raises:
            ValueError: they do, and this rank has not failed: what each of them calls.
        """
        said = {line[0] for line in lines}
        if len(said) == 1 and FAILED not in said:
            return False
        text = sentence.encode()[:SENTENCE].ljust(SENTENCE, b"\0")
        mine = torch.frombuffer(bytearray(text), dtype=torch.uint8).to(self.device)
        texts = gathered(self.lines, mine, self.size).tolist()
        if lines[self.rank][0] != FAILED:
            calls = [bytes(text).rstrip(b"\0").decode(errors="ignore") for text in texts]
            each = "; ".join(f"rank {rank}: {call}" for rank, call in enumerate(calls))
            raise ValueError(f"the ranks of the group do not call the same thing: {each}")
        return True


def gathered(group: Any, mine: Tensor, size: int) -> Tensor:
    """Return the lines of all ranks, of which this one has `mine`."""
    lines = mine.new_empty(size, len(mine))
    group.allgather([[*lines.unbind()]], [mine]).wait()
    return lines


agreements: weakref.WeakKeyDictionary[Any, Agreement] = weakref.WeakKeyDictionary()
"""Those of the groups that have called something."""


def agreement_of(group: Any) -> Agreement:
    """Return what this rank keeps of a group; at the first call, which all ranks make, a new one.

    Raises:
        TypeError: `group` is not a process group that this rank is in.
    """
    check_group(group)
    found = agreements.get(group)
    if found is None:
        found = agreements.setdefault(group, Agreement(group))
    return found


def tell(group: Any, error: Exception) -> None:
    """Tell the other ranks, which may be waiting for this one's line, that its arguments are wrong.
    They raise a ValueError with the words of the error."""
    if isinstance(group, dist.ProcessGroup) and not torch.compiler.is_compiling():
        if group.size() > 1:
            agreement = agreement_of(group)
            lines = agreement.exchange(FAILED, *[UNSAID] * (LINE - 1))
            agreement.disagree(lines, f"{type(error).__name__}: {error}")


def agree(
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
) -> Shard:
    """Compare what the ranks call, and find out where this rank's part lies.

    This rank's part is x, cut along `dim`, which counts from the front; without a group it has all
    columns. Parts may have any size in each call. The caller says where the part lies, by `start`
    and `total`, or parts follow each other in the order of the ranks.

    `options` and `numbers` have to be the same on all ranks; numbers may differ from call to call.
    `weights` is how many classes have a weight here: all, or those of this rank. Whatever can be
    wrong on one rank alone has been checked before, and been told the others if it is (`tell`).

    While a call is traced the other ranks are not asked, and are taken to have as many columns.
    Then a call that has to know where its part lies (`where`) says so, and one that takes `whole`
    rows takes equal parts.

    Raises:
        TypeError: `group` is not a process group that this rank is in.
        ValueError: on every rank, if they call different things, or the parts do not fit together;
            or a call is traced that has to know where its part lies, or that takes equal parts.
    """
    n_cols = x.shape[dim]
    if group is None:
        return Shard(None, 0, n_cols)
    if torch.compiler.is_compiling():
        check_group(group)
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
    known = agreements.get(group) if isinstance(group, dist.ProcessGroup) else None
    agreement = known or agreement_of(group)
    others = x.shape[:dim] + x.shape[dim + 1 :]
    gradient = x.requires_grad and torch.is_grad_enabled()
    key = (name, x.dtype, others, dim, gradient, options, total, x.device.type)
    call = agreement.calls.get(key) or agreement.calls.keep(key, _call(*key))
    first = UNSAID if start is None else start
    given = zlib.crc32(repr(numbers).encode()) if numbers else UNSAID
    words = (call[0], n_cols, first, given, weights)
    lines = (words,) if group.size() == 1 else agreement.exchange(*words)
    shard = agreement.shards.get((key, lines))
    if shard is None:
        agreement.disagree(lines, call[1])
        shard = _shard(lines, group, total)
        row_bytes = shard.total * x.element_size() // group.size()
        shard = shard._replace(blocks=tuple(blocks_of(math.prod(others), row_bytes)))
        agreement.shards.keep((key, lines), shard)
    return shard


def agree_backward(shard: Shard) -> None:
    """Compare what the ranks differentiate, before a message of the backward pass.

    Raises:
        ValueError: on every rank, if they differentiate calls of different kinds, or one makes a
            call instead.
    """
    if shard.call and shard.group.size() > 1 and not torch.compiler.is_compiling():
        agreement = agreement_of(shard.group)
        words = (~shard.call, *[UNSAID] * (LINE - 1))
        agreement.disagree(agreement.exchange(*words), "the gradient of an earlier call")


def _call(
    name: str, dtype: torch.dtype, others: tuple[int, ...], dim: int, gradient: bool,
    options: tuple[Any, ...], total: int | None, device: str,
) -> tuple[int, str]:  # fmt: skip
    """Return a kind of call as a number that is the same on all ranks, and in words."""
    sizes = [*map(str, others)]
    sizes.insert(dim, "*")
    call = f"{name} of {str(dtype)[6:]} ({', '.join(sizes)}) along {dim} on {device}; "
    call += f"{'with' if gradient else 'without'} a gradient"
    # Numbers that are equal are one key of a memory, and so have to be the same words.
    said = [str(float(o) if isinstance(o, (int, float)) else o) for o in options]
    call = "; ".join([call, *said, *([] if total is None else [f"of {total}"])])
    digest = hashlib.blake2b(call.encode(), digest_size=8).digest()
    return 1 + int.from_bytes(digest, "little") // 4, call


def _shard(lines: tuple[tuple[int, ...], ...], group: Any, total: int | None) -> Shard:
    """Return this rank's part of the rows, of which the lines of all ranks say the same.

    Raises:
        ValueError: the parts do not fit together, or numbers or class weights differ.
    """
    calls, sizes, starts, numbers, weights = zip(*lines, strict=True)
    if min(starts) < 0:
        starts = tuple([sum(sizes[:rank]) for rank in range(len(sizes))])
    end = 0
    for start, size in sorted(zip(starts, sizes, strict=True)):
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
    parts, rank = tuple(zip(starts, sizes, strict=True)), group.rank()
    if parts == tuple([(i * sizes[rank], sizes[rank]) for i in range(len(sizes))]):
        parts = ()
    return Shard(group, starts[rank], end, max(sizes), parts=parts, call=calls[0])


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


def send(words: tuple[Tensor, ...], shard: Shard) -> tuple[Tensor, Any]:
    """Send a message to all ranks: the words, vectors that follow each other. Return the messages
    of all ranks, (ranks, words), and what to wait for before they are read; None if they are
    there."""
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


def received(lines: Tensor, work: Any) -> Tensor:
    """Return the messages when they are there; a RuntimeError if a rank did not send within the
    time-out of the group."""
    if work is not None:
        work.wait()
    return lines
