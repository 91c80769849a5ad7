"""Softmax of rows that lie on several GPUs in one launch, by words in symmetric memory.

A collective stands between two launches: partial results are made in one, and elements written in
the next, which reads the input again. Where GPUs see each other's memory, a row that is cut over
ranks is a row in chunks some of which belong to programs on another GPU (`kernels.split_rows`). A
program publishes the word of its chunk on every rank, polls the words of its row in its own memory,
and writes from registers: one read, one write, one launch.

On one GPU a program can recompute a missing partial. Here it cannot, since the elements of another
rank are out of reach. So no more programs are launched than run at once, and each does its tasks in
the order of the rows: then the first unfinished row can always be finished. A program that waits
longer than the time-out leaves NaN in its rows and the missing rank's number in the status words,
and then no program waits any more.

Words must be zero before they are written. There are three buffers, in turn; a call zeroes the one
whose turn is next but one. No rank can push into it earlier than that: it would have finished the
call in between, for which it needs words that this rank has pushed after the zeros.
"""

import importlib
import weakref
from typing import Any

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from torch import Tensor

from .. import arguments
from ..arguments import check_group
from ..config import rows_of, splitting
from ..kernels.device.exchange import poll, unpack_summaries, word_of
from ..kernels.device.names import with_operation
from ..kernels.split_rows import Rows, load_chunk, summarise, write_chunk
from ..operations.operation import Operation
from ..plan import device_of, key_of, traits_of
from ..plan.launch import Launch, Memo, cuda_index, current_device, plans
from .process_group import Shard, agree

LEAST_COLS = 2048  # of the largest part: shorter ones would leave most of a program idle
MOST_CHUNKS = 128  # of a part: fewer than run at once on any GPU with so many multiprocessors
MOST_WORDS = 1024  # of a row, on all ranks together: a program polls them all
LEAST_WORDS = 1 << 16  # of a buffer, so that few calls need another
POLLS = tl.constexpr(1024)  # of a warp, before its program looks at the clock
NUM_WARPS = 4  # of a program

REGISTERS = {(2, 1): (96, 112), (4, 1): (128, 128), (2, 2): (128, 128), (4, 2): (168, 192)}
"""Registers of a thread, by bytes of an element and number of inputs: the fewest without spills,
and where edges or exponentials take some more. 16-bit rows have the next chunk in registers as
well while a program waits: without it a softmax takes 7 % longer."""


@triton.jit
def ticks(lane, TIMED: tl.constexpr):
    """Nanoseconds, the same for all threads of a program; 0 where there is no clock."""
    if TIMED:
        now = tl.inline_asm_elementwise(
            "mov.u64 $0, %globaltimer; // $1", "=l,r", [lane], dtype=tl.int64, is_pure=False, pack=1
        )
        return tl.max(now, axis=0)
    else:
        return tl.max(lane, axis=0).to(tl.int64) * 0


@triton.jit
def words_of_row(
    mine, status_ptrs, task, n_tasks, n_chunks, limit,
    WORLD: tl.constexpr, CHUNKS: tl.constexpr, LANES: tl.constexpr, TIMED: tl.constexpr,
):  # fmt: skip
    """(words, live, missing): the words of a task's row, rank after rank and in each chunk after
    chunk; which of them count; and how many are missing for good.

    Args:
        mine: this rank's buffer.
        status_ptrs: on the device and on the host: 0, or 1 + the number of a missing rank.
        limit: how long to wait, in nanoseconds, or in polls where there is no clock.
        CHUNKS: a power of two, at least n_chunks.
        LANES: a power of two, no less than all words of a row, nor than the number of threads: no
            two poll the same word, so that all see the same.
    """
    lane = tl.arange(0, LANES)
    source, chunk = lane // CHUNKS, lane % CHUNKS
    live = (source < WORLD) & (chunk < n_chunks)
    pointers = mine + source.to(tl.int64) * n_tasks + task // n_chunks * n_chunks + chunk
    found = poll(pointers, live, POLLS, TIMED, 0, 1, True)
    missing = tl.sum((found == 0).to(tl.int32), axis=0)
    if missing > 0:
        since = ticks(lane, TIMED)
        rounds, gone = 0, 0
        while (missing > 0) & (gone == 0):
            found = poll(pointers, live, POLLS, TIMED, 0, 1, True)
            missing = tl.sum((found == 0).to(tl.int32), axis=0)
            rounds += 1
            late = rounds + ticks(lane, TIMED) - since > limit
            # If another program has given up, one lane sees it, and all programs learn of it.
            status = tl.load(status_ptrs[0] + lane, mask=lane == 0, other=0, volatile=True)
            gone = tl.sum((status != 0).to(tl.int32), axis=0)
            if (missing > 0) & (gone == 0) & late:
                number = 1 + tl.min(tl.where(found == 0, source, WORLD), axis=0)
                tl.store(status_ptrs[0], number.to(tl.int64))
                tl.store(status_ptrs[1], number.to(tl.int64))
                gone = 1
    return found, live, missing


@triton.jit(
    repr=with_operation("pushed_rows"),
    do_not_specialize=["in_strides", "out_strides", "shape", "chunks", "rank", "limit"],
)
def pushed_rows_kernel(
    in_ptrs,
    out_ptrs,
    in_strides,
    out_strides,
    shape,
    chunks,
    rank,
    limit,
    OP: tl.constexpr,
    HOW: tl.constexpr,
    CHUNKS: tl.constexpr,
    TIMED: tl.constexpr,
):
    """An operation on this rank's part of rows, a chunk of a row per program.

    Args:
        in_ptrs: the inputs; n_rows rows of n_cols elements each.
        out_ptrs: the result; two status words, on the device and on the host; this rank's buffer;
            and that of every rank in their order: zeros, n_rows · n_chunks words from each rank.
        in_strides: elements from one row to the next, for each input.
        out_strides: the same of the result.
        shape: rows, and columns of this rank's part.
        chunks: chunks of a row, the same number on all ranks; and columns of one of this rank, a
            multiple of HOW.vector.
        rank: of this rank.
        limit: how long to wait for words.
        OP: what is computed.
        HOW: a `SplitRows`, of whose words those of a row are on all ranks together.
        CHUNKS: a power of two, at least n_chunks.
        TIMED: whether there is a clock.
    """
    FIRST: tl.constexpr = 4
    WORLD: tl.constexpr = len(out_ptrs) - FIRST
    OUT: tl.constexpr = out_ptrs[0].dtype.element_ty
    INNER: tl.constexpr = OUT if OP.inputs == 1 else in_ptrs[0].dtype.element_ty
    n_rows, n_cols = shape
    n_chunks, chunk_cols = chunks
    n_tasks = n_rows * n_chunks
    rows = Rows(
        in_ptrs, in_strides, out_ptrs, out_strides, n_tasks, n_cols, n_chunks, chunk_cols, chunks
    )  # fmt: skip
    programs = tl.num_programs(0)
    task = tl.program_id(0)
    body, edge = load_chunk(rows, task, OP, HOW)

    while task < n_tasks:
        m_own, totals, terms = summarise(body, edge, task, rows, INNER, OP, HOW)
        word = word_of(m_own, totals[0], OP.shifted)
        place = rank.to(tl.int64) * n_tasks + task
        for other in tl.static_range(WORLD):
            tl.atomic_xchg(out_ptrs[FIRST + other] + place, word, sem="relaxed", scope="sys")
        kept, kept_edge = body, edge
        if HOW.keep_terms:
            kept = terms
        if HOW.depth == 1:  # on its way while this program waits
            body, edge = load_chunk(rows, task + programs, OP, HOW)
        found, live, missing = words_of_row(
            out_ptrs[3], (out_ptrs[1], out_ptrs[2]), task, n_tasks, n_chunks, limit,
            WORLD, CHUNKS, HOW.words, TIMED,
        )  # fmt: skip
        # eq: merge
        m, parts = unpack_summaries((found,), live, 0, OP)
        total = tl.where(missing > 0, float("nan"), tl.sum(parts[0], axis=0))
        write_chunk(task, kept, kept_edge, m_own, m, (total,), (), rows, OP, HOW)
        task += programs
        if HOW.depth == 0:
            body, edge = load_chunk(rows, task, OP, HOW)


def shared(n_words: int, group: Any, device: torch.device) -> tuple[list[Tensor], Any]:
    """Return words in the memory of every rank, which all ranks can write; and what has to be kept
    as long as they are used.

    Raises:
        RuntimeError: the GPUs do not see each other's memory, or there are none.
    """
    if device.type != "cuda":
        raise RuntimeError("words are pushed from GPU to GPU, and there is none")
    # PyTorch's own module takes a while to import.
    memory = importlib.import_module("torch.distributed._symmetric_memory")
    mine = memory.empty(n_words, dtype=torch.int64, device=device)
    handle = memory.rendezvous(mine, group)
    ranks = range(group.size())
    return [handle.get_buffer(rank, (n_words,), torch.int64) for rank in ranks], (mine, handle)


class Buffers:
    """Where the ranks of a group push their words: three buffers on every rank, in turn. A rank is
    missed after `timeout` seconds."""

    def __init__(self, group: Any, device: torch.device, timeout: float):
        self.group, self.device, self.timeout = group, device, timeout
        self.cuda = device.type == "cuda"
        self.status = (
            torch.zeros(1, dtype=torch.int64, device=device),
            torch.zeros(1, dtype=torch.int64, pin_memory=self.cuda),
        )
        self.size, self.turn, self.used = 0, 0, [0, 0, 0]
        self.stream: Any = None
        self.of_ranks: list[Tensor] = []
        self.shards = Memo()
        self.kept: Any = None

    def reserve(self, n_words: int) -> None:
        """Share memory for so many words in each buffer; all ranks do at the same time."""
        if n_words <= self.size:
            return
        self._synchronize()
        self.size = triton.next_power_of_2(max(n_words, LEAST_WORDS))
        of_ranks, self.kept = shared(3 * self.size, self.group, self.device)
        self.of_ranks = [each.view(3, self.size) for each in of_ranks]
        self.of_ranks[self.group.rank()].zero_()
        self.turn, self.used = 0, [0, 0, 0]
        self._synchronize()

    def _synchronize(self) -> None:
        if self.cuda:
            torch.cuda.synchronize(self.device)
        dist.barrier(self.group)

    def take(self, n_words: int) -> tuple[Tensor, ...]:
        """Return this rank's buffer for one call on the current stream, and that of every rank."""
        self.check()
        self.reserve(n_words)
        if self.cuda:
            stream = torch.cuda.current_stream(self.device)
            if self.stream is not None and self.stream != stream:
                stream.wait_stream(self.stream)
            self.stream = stream
        rank, turn = self.group.rank(), self.turn
        self.turn, after_next = (turn + 1) % 3, (turn + 2) % 3
        if self.used[after_next]:  # it has been the last one, and its words have been read
            self.of_ranks[rank][after_next, : self.used[after_next]].zero_()
        self.used[after_next], self.used[turn] = 0, n_words
        here = [each[turn, :n_words] for each in self.of_ranks]
        return (here[rank], *here)

    def check(self) -> None:
        """Raise a RuntimeError if a rank was missed in a call that has run by now."""
        number = int(self.status[1])
        if number:
            raise RuntimeError(
                f"rank {number - 1} of the group has not pushed its words within {self.timeout:g} s"
                "; what was computed without them is NaN"
            )


buffers: weakref.WeakKeyDictionary[Any, Buffers] = weakref.WeakKeyDictionary()
"""Those of the groups that push words."""


def push_words(group: Any, timeout: float | None = 60.0) -> None:
    """Let `softmax` and `log_softmax` over a group push their words, forward and backward.

    All ranks of the group call this, and from then on all calls of theirs that give the same
    results as before in one launch: 16-bit and float32 elements, parts of 2,048 columns or more,
    outside of `torch.compile`, `batch_invariant` and CUDA graphs. The parts follow each other in
    the order of the ranks; if one changes its size, all do.

    A rank that does not come raises nothing at once, since the host does not wait for a GPU: the
    others write NaN into the rows that lack its words, and raise at their next call of this group,
    or when asked by `check_words`.

    Args:
        group: a `torch.distributed.ProcessGroup` of GPUs that see each other's memory.
        timeout: seconds after which a rank is missing; None to push no more.

    Raises:
        TypeError: `group` is not a process group that this rank is in.
        ValueError: `timeout` is not positive.
        RuntimeError: the GPUs do not see each other's memory, or the group has no GPUs.
    """
    check_group(group)
    if timeout is None:
        buffers.pop(group, None)
        return
    if not timeout > 0:
        raise ValueError(f"timeout must be positive, not {timeout}")
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")
    made = Buffers(group, device, timeout)
    made.reserve(1)
    buffers[group] = made


def agree_once(group: Any, name: str, x: Tensor, dim: int) -> Shard:
    """Agree on a kind of call, with parts of these sizes, the first time that this rank makes it:
    words that do not come are noticed without a line. The ranks change their sizes all at once."""
    shards, gradient = buffers[group].shards, x.requires_grad and torch.is_grad_enabled()
    key = (name, x.dtype, x.shape, dim, gradient)
    shard = shards.get(key)
    if shard is None:
        shard = agree(group, name, x, dim, ("words are pushed",))
        shard = shards.keep(key, shard._replace(call=0))
    return shard


def check_words(group: Any) -> None:
    """Wait for the device, and raise a RuntimeError if a rank of the group was missed."""
    if group in buffers:
        of_group = buffers[group]
        if of_group.cuda:
            torch.cuda.synchronize(of_group.device)
        of_group.check()


def takes(shard: Shard, x: Tensor) -> bool:
    """Return whether the words of a call are pushed, for this rank's matrix x, by a group that
    does: the same on all ranks."""
    if x.dtype == torch.float64 or not len(x) or shard.widest < LEAST_COLS:
        return False
    if x.is_cuda and torch.cuda.is_current_stream_capturing():
        return False
    n_chunks = triton.cdiv(shard.widest, _block(shard.widest))
    fits = n_chunks <= MOST_CHUNKS and n_chunks * shard.group.size() <= MOST_WORDS
    return fits and len(x) * n_chunks < 2**30


def _block(widest: int) -> int:
    """Columns of a chunk at most. In the interpreter a program after another runs, and none may
    wait for one of its own rank."""
    whole = triton.next_power_of_2(widest)
    return whole if arguments.INTERPRETED else min(splitting.LONGEST_CHUNK, whole)


def run(op: Operation, inputs: tuple[Tensor, ...], shard: Shard) -> Tensor:
    """Return the elements of a softmax or log-softmax, or of the backward pass of one, of a call
    that `takes` has said yes to: of this rank's parts of rows, the first of the result's dtype."""
    index = cuda_index(inputs[0])
    if index >= 0 and index != current_device():
        with torch.cuda.device(index):
            return run(op, inputs, shard)
    inputs = tuple([each if each.stride(1) == 1 else each.contiguous() for each in inputs])
    out = torch.empty(inputs[0].shape, dtype=inputs[0].dtype, device=inputs[0].device)
    of_group = buffers[shard.group]
    key = key_of((op, shard.group, shard.widest, of_group.timeout), inputs)
    found = plans.get(key) or plans.keep(key, _planned(op, (*inputs, out), shard))
    launch, n_words = found
    launch.run(inputs, (out, *of_group.status, *of_group.take(n_words)))
    return out


def _planned(op: Operation, tensors: tuple[Tensor, ...], shard: Shard) -> tuple[Launch, int]:
    """(launch, words in a buffer) for inputs and a result that lie like these."""
    world, device, traits = shard.group.size(), device_of(tensors[0]), traits_of(op)
    n_rows, n_cols = tensors[0].shape
    strides = tuple([max(1, each.stride(0)) for each in tensors])
    sizes = [each.element_size() for each in tensors]
    addresses = tuple([each.data_ptr() for each in tensors])
    rows = rows_of(n_rows, n_cols, min(sizes), addresses, strides, max(sizes[:-1]))
    plain, more = REGISTERS[rows.itemsize, traits.inputs]
    simple = (traits.keeps_terms or traits.inputs == 2) and not rows.edges
    registers = 255 if rows.vector == 1 else plain if simple else more
    keep_terms = traits.keeps_terms and rows.itemsize == 4
    depth = 1 if (rows.itemsize, traits.inputs) == (2, 1) else 0
    taken = splitting.Candidate(_block(shard.widest), registers, NUM_WARPS, keep_terms, depth)
    # All ranks have as many chunks as the largest part.
    choice = splitting.split_as(taken, rows._replace(n_cols=shard.widest), traits, device)
    n_chunks, chunks = choice.n_chunks, triton.next_power_of_2(choice.n_chunks)
    lanes, _ = splitting.lanes_and_polls(world * chunks, NUM_WARPS)
    how: Any = choice.how._replace(words=lanes, polls=1)  # pyright: ignore[reportCallIssue]
    programs = min(n_rows * n_chunks, device.resident_programs(registers, NUM_WARPS))
    chunk_cols = triton.cdiv(triton.cdiv(n_cols, n_chunks), rows.vector) * rows.vector
    limit = int(buffers[shard.group].timeout * (1e9 if device.nvidia else 1e3))
    shapes = (strides[:-1], strides[-1:], (n_rows, n_cols), (n_chunks, chunk_cols))
    constants = {"OP": op, "HOW": how, "CHUNKS": chunks, "TIMED": device.nvidia}
    options = {"num_warps": NUM_WARPS, **({"maxnreg": registers} if device.nvidia else {})}
    numbers = (*shapes, shard.group.rank(), limit)
    launch = Launch(pushed_rows_kernel, programs, numbers, constants, options)
    return launch, world * n_rows * n_chunks
