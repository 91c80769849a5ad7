"""Softmax of rows that are sharded over several GPUs, in one launch and without a message.

    python -m torch.distributed.run --standalone --nproc-per-node 2 examples/symmetric_memory.py

compares it with the library's softmax over NCCL on the GPUs of this machine, and times both.

The library sends a message between two launches: the first finds the sums of this rank's columns,
the second reads them again and writes the result. Where GPUs map each other's memory, a row that is
sharded is a row in chunks (`triton_softmax.kernels.split_rows`), some of which belong to programs
on another GPU. A program publishes the word of its chunk on every rank, polls the words of its row
in its own memory, and writes from registers: one read, one write, one launch.

On one GPU a program can recompute a missing word. Here it cannot, since another rank's elements are
out of reach. So no more programs are launched than run at once, and each does its tasks in the
order of the rows: then the first unfinished row can always be finished. A program that waits longer
than the time-out leaves NaN in its rows and the number of the missing rank in the status words, and
then no program waits any more.

A word is missing while it is zero. There are three buffers, used in turn; a call zeroes the one
whose turn is next but one. No rank can push into it earlier than that: it would have finished the
call in between, for which it needs words that this rank has pushed after the zeros.
"""

import importlib
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from triton_softmax.arguments import INTERPRETED
from triton_softmax.config import rows_of, splitting
from triton_softmax.kernels.device.exchange import poll, unpack_summaries, word_of
from triton_softmax.kernels.device.names import with_operation
from triton_softmax.kernels.split_rows import Rows, load_chunk, summarise, write_chunk
from triton_softmax.operations.operation import Operation
from triton_softmax.operations.softmax import LOG_SOFTMAX, LOG_SOFTMAX_VJP, SOFTMAX, SOFTMAX_VJP
from triton_softmax.plan import device_of, key_of, traits_of
from triton_softmax.plan.launch import Launch

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

    # --8<-- [start:push]
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
        # --8<-- [end:push]
        if HOW.depth == 0:
            body, edge = load_chunk(rows, task, OP, HOW)


class Peers:
    """The ranks of a group whose GPUs map each other's memory: three buffers of words on each, and
    what is launched. All ranks make one at the same time.

    Args:
        group: a `torch.distributed.ProcessGroup`.
        timeout: seconds after which a rank is missing.
        share: returns so many int64 words of every rank's memory, in the order of the ranks, and
            what has to be kept as long as they are used; as `of_gpus`.
    """

    def __init__(
        self,
        group: Any,
        timeout: float = 60.0,
        share: Callable[..., tuple[list[Tensor], Any]] | None = None,
    ):
        self.group, self.timeout, self.share = group, timeout, share or of_gpus
        self.launches: dict[tuple, tuple[Launch, int]] = {}
        self.size, self.turn, self.used = 0, 0, [0, 0, 0]
        self.stream: Any = None

    def take(self, n_words: int, device: torch.device) -> tuple[Tensor, ...]:
        """Return this rank's buffer for a call on the current stream, and that of every rank."""
        if n_words > self.size:
            self.reserve(n_words, device)
        if device.type == "cuda":
            stream = torch.cuda.current_stream(device)
            if self.stream is not None and self.stream != stream:
                stream.wait_stream(self.stream)
            self.stream = stream
        # --8<-- [start:turn]
        rank, turn = self.group.rank(), self.turn
        self.turn, after_next = (turn + 1) % 3, (turn + 2) % 3
        if self.used[after_next]:  # it has been the last one, and its words have been read
            self.buffers[rank][after_next, : self.used[after_next]].zero_()
        self.used[after_next], self.used[turn] = 0, n_words
        here = [each[turn, :n_words] for each in self.buffers]
        # --8<-- [end:turn]
        return (here[rank], *here)

    def reserve(self, n_words: int, device: torch.device) -> None:
        """Share memory for so many words in each buffer; all ranks do at the same time."""
        self.synchronize(device)
        size = triton.next_power_of_2(max(n_words, LEAST_WORDS))
        words, self.kept = self.share(3 * size, self.group, device)
        self.size, self.buffers = size, [each.view(3, size) for each in words]
        self.buffers[self.group.rank()].zero_()
        self.turn, self.used = 0, [0, 0, 0]
        # Read by programs and by the host.
        pinned = torch.zeros(1, dtype=torch.int64, pin_memory=device.type == "cuda")
        self.status = torch.zeros(1, dtype=torch.int64, device=device), pinned
        self.synchronize(device)

    def synchronize(self, device: torch.device) -> None:
        """Wait for the GPUs of all ranks."""
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        dist.barrier(self.group)

    def check(self) -> None:
        """Raise a RuntimeError if a rank was missed in a call that has run by now."""
        number = int(self.status[1]) if self.size else 0
        if number:
            raise RuntimeError(
                f"rank {number - 1} of the group has not pushed its words within {self.timeout:g} s"
                "; what was computed without them is NaN"
            )

    def run(self, op: Operation, *inputs: Tensor) -> Tensor:
        """Return the elements of an operation on this rank's columns of matrices."""
        self.check()
        inputs = tuple([each if each.stride(1) == 1 else each.contiguous() for each in inputs])
        out = torch.empty(inputs[0].shape, dtype=inputs[0].dtype, device=inputs[0].device)
        if not out.numel():
            return out
        key = key_of((op,), inputs)
        if key not in self.launches:
            self.launches[key] = self.plan(op, (*inputs, out))
        launch, n_words = self.launches[key]
        buffers = self.take(n_words, out.device)
        launch.run(inputs, (out, *self.status, *buffers))
        return out

    def plan(self, op: Operation, tensors: tuple[Tensor, ...]) -> tuple[Launch, int]:
        """Return a launch for inputs and a result that lie like these, and words of its buffer."""
        world, device, traits = self.group.size(), device_of(tensors[0]), traits_of(op)
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
        # In the interpreter a program after another runs, and none may wait for its own rank.
        block = triton.next_power_of_2(max(n_cols, 16))
        block = block if INTERPRETED else min(splitting.LONGEST_CHUNK, block)
        taken = splitting.Candidate(block, registers, NUM_WARPS, keep_terms, depth)
        choice = splitting.split_as(taken, rows, traits, device)
        n_chunks, chunks = choice.n_chunks, triton.next_power_of_2(choice.n_chunks)
        if n_chunks > MOST_CHUNKS or world * n_chunks > MOST_WORDS or n_rows * n_chunks >= 2**30:
            raise ValueError(f"too many columns, {n_cols}, or rows, {n_rows}")
        lanes, _ = splitting.lanes_and_polls(world * chunks, NUM_WARPS)
        how: Any = choice.how._replace(words=lanes, polls=1)
        programs = min(n_rows * n_chunks, device.resident_programs(registers, NUM_WARPS))
        chunk_cols = triton.cdiv(triton.cdiv(n_cols, n_chunks), rows.vector) * rows.vector
        limit = int(self.timeout * (1e9 if device.nvidia else 1e3))
        shapes = (strides[:-1], strides[-1:], (n_rows, n_cols), (n_chunks, chunk_cols))
        constants = {"OP": op, "HOW": how, "CHUNKS": chunks, "TIMED": device.nvidia}
        options = {"num_warps": NUM_WARPS, **({"maxnreg": registers} if device.nvidia else {})}
        numbers = (*shapes, self.group.rank(), limit)
        launch = Launch(pushed_rows_kernel, programs, numbers, constants, options)
        return launch, world * n_rows * n_chunks


def of_gpus(n_words: int, group: Any, device: torch.device) -> tuple[list[Tensor], Any]:
    """Return words in the memory of every GPU, which all GPUs can write, and what to keep.

    Raises:
        RuntimeError: the GPUs do not see each other's memory, or there are none.
    """
    if device.type != "cuda":
        raise RuntimeError("words are pushed from GPU to GPU, and there is none")
    # A private module, which takes a while to import.
    memory = importlib.import_module("torch.distributed._symmetric_memory")
    mine = memory.empty(n_words, dtype=torch.int64, device=device)
    handle = memory.rendezvous(mine, group)
    ranks = range(group.size())
    return [handle.get_buffer(rank, (n_words,), torch.int64) for rank in ranks], (mine, handle)


class _Pushed(Function):
    """Softmax or log-softmax of a matrix of which other ranks have other columns."""

    @staticmethod
    def forward(ctx, x, peers: Peers, log: bool):
        y = peers.run(LOG_SOFTMAX if log else SOFTMAX, x.detach())
        ctx.save_for_backward(y)
        ctx.arguments = peers, log
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        peers, log = ctx.arguments
        vjp = LOG_SOFTMAX_VJP if log else SOFTMAX_VJP
        return peers.run(vjp, *ctx.saved_tensors, dy), None, None


def softmax(x: Tensor, peers: Peers, log: bool = False) -> Tensor:
    """Return this rank's columns of softmax or log-softmax, with a gradient.

    All ranks make the same calls, of the same shape and dtype: nobody compares them. If a rank does
    not come, nothing is raised at once, since the host does not wait for a GPU. The others write
    NaN into the rows that lack its words, and raise a RuntimeError at their next call, or at
    `peers.check()`. A captured CUDA graph would use the same buffer in each replay, and is refused.

    Args:
        x: this rank's columns, of shape (rows, columns), in float16, bfloat16 or float32, on the
            current device. Those of the ranks follow each other in their order.

    Raises:
        ValueError: x is no such matrix, or too large.
        RuntimeError: a rank was missed before, or the GPUs do not see each other's memory.
    """
    if x.dim() != 2 or x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError(
            f"x must be a matrix of 16-bit or float32 elements, not {x.dtype} {x.shape}"
        )
    if x.is_cuda and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("a CUDA graph cannot take the buffers in turn")
    return _Pushed.apply(x, peers, log)  # pyright: ignore[reportReturnType]


def main() -> None:
    """Compare with the library over NCCL, and time both with nothing else on the GPU."""
    import triton_softmax

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    group = dist.group.WORLD
    peers = Peers(group)
    x = torch.randn(2048, 65_536, device="cuda", dtype=torch.bfloat16)
    ways = {
        "in one launch": lambda: softmax(x, peers),
        "with a message": lambda: triton_softmax.softmax(x, 1, group=group),
    }
    torch.testing.assert_close(*[call() for call in ways.values()])
    for name, call in ways.items():
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        dist.barrier(group)
        torch.cuda._sleep(10_000_000)  # so that the GPU does not wait for the host
        begin.record()
        for _ in range(20):
            call()
        end.record()
        torch.cuda.synchronize()
        if group.rank() == 0:
            print(f"{tuple(x.shape)} on each GPU, {name}: {begin.elapsed_time(end) * 50:.0f} µs")
    peers.check()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
