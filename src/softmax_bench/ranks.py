"""Softmax and cross-entropy of rows that are cut over several GPUs, beside what others do.

`python -m torch.distributed.run --standalone --nproc-per-node 2 -m softmax_bench ranks --out FILE`
adds a run to a file, of two kinds of matrices in bfloat16: some of which each rank has 65,536
columns, so that rows grow with the ranks; and some of a fixed size that all ranks share, which are
measured on one rank as well. It says the median, 20th and 80th percentile of each call, on the
slower rank, with nothing in the L2 cache before; its time among many, back to back; the processor's
time; and what it sends. The others are PyTorch's softmax of a `DTensor`, which gathers whole rows,
its loss of gathered rows, its `loss_parallel`, and the losses of Megatron-LM and TransformerEngine,
where they are installed; where Megatron-LM is not, its formula in PyTorch's operators. Softmax with
pushed words is `examples/symmetric_memory.py`, so run it at the root. The softmax and the loss of
one GPU's part alone, a copy of it, and a message of the same size alone say what the rest is made
of.
"""

from __future__ import annotations

import math
import os
import pickle
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from softmax_bench.measure import HostTimer, summary
from softmax_bench.providers import Missing, imported
from softmax_bench.results import Run
from softmax_bench.runner import describe
from softmax_bench.schema import DataError

FORMAT = "triton-softmax-ranks/1"

ROWS = (512, 2048, 8192)
COLUMNS = 65_536
"""On each rank."""

SHARED = ((4096, 128_256), (64, 152_064))
"""Rows and columns of the matrices that all ranks share."""

REPEATS, CALLS = 30, 20
BYTES = {"Byte": 1, "BFloat16": 2, "Half": 2, "Float": 4, "Int": 4, "Double": 8, "Long": 8}


def quantiles_us(call: Callable[[], Any], group: Any, flush: Tensor) -> dict[str, float]:
    """The median, 20th and 80th percentile of a call's time in µs, on the slower rank."""
    times = []
    for repeat in range(REPEATS + 3):
        flush.zero_()
        dist.barrier(group)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        # Longer than the host takes for a call, so that the device never waits for it.
        torch.cuda._sleep(3_000_000)
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        if repeat >= 3:
            times.append(begin.elapsed_time(end) * 1e3)
    slower = torch.tensor([*summary(times).values()], device="cuda")
    dist.all_reduce(slower, dist.ReduceOp.MAX, group=group)
    return dict(zip(("us_p20", "us", "us_p80"), slower.tolist(), strict=True))


def host_us(call: Callable[[], Any], group: Any) -> float:
    """What the processor of a rank takes for a call, in µs: the least of five rounds."""

    def together() -> None:
        torch.cuda.synchronize()
        dist.barrier(group)

    return min(HostTimer(together, batches=5, calls=3, warm=0)(call))


def sustained_us(call: Callable[[], Any], group: Any) -> float:
    """The time of a call among many, back to back, in µs, on the slower rank: the median of rounds.
    Whatever holds a rank up holds up all."""
    times = []
    for _ in range(5):
        torch.cuda.synchronize()
        dist.barrier(group)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(CALLS):
            call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / CALLS)
    slower = torch.tensor(statistics.median(times), device="cuda")
    dist.all_reduce(slower, dist.ReduceOp.MAX, group=group)
    return slower.item()


def sent_bytes(call: Callable[[], Any]) -> int:
    """What a rank gives to NCCL in a call, in bytes, by PyTorch's flight recorder."""

    def recorded() -> list[dict[str, Any]]:
        torch.cuda.synchronize()
        dump = torch._C._distributed_c10d._dump_nccl_trace  # pyright: ignore
        return pickle.loads(dump(True, False, False)).get("entries", [])

    last = max((each["record_id"] for each in recorded()), default=-1)
    call()
    sizes = [
        math.prod(size) * BYTES[dtype]
        for each in recorded()
        if each["record_id"] > last
        for size, dtype in zip(each["input_sizes"], each["input_dtypes"], strict=True)
    ]
    return sum(sizes)


def matrices(world: int) -> list[dict[str, int]]:
    """Return the rows of each matrix, its columns on each rank, and all of them if they are shared.

    >>> matrices(8)[-1], len(matrices(1))
    ({'rows': 64, 'columns': 19008, 'total': 152064}, 2)
    """
    growing = [{"rows": n_rows, "columns": COLUMNS} for n_rows in ROWS] if world > 1 else []
    shared = [{"rows": n, "columns": total // world, "total": total} for n, total in SHARED]
    return growing + shared


class MegatronFormula(Function):
    """The losses of rows, as Megatron-LM's fused loss computes them: with one message for the
    maxima, one for the sums and target logits, and the gradient from the probabilities."""

    @staticmethod
    def forward(ctx, logits, target, start: int, group):
        x = logits.float()
        largest = x.amax(1)
        dist.all_reduce(largest, dist.ReduceOp.MAX, group=group)
        terms = (x - largest.unsqueeze(1)).exp_()
        column = target - start
        here = (column >= 0) & (column < x.shape[1])
        column = column.clamp(0, x.shape[1] - 1).unsqueeze(1)
        at_target = torch.where(here, x.gather(1, column).squeeze(1) - largest, 0.0)
        sums = torch.stack((terms.sum(1), at_target))
        dist.all_reduce(sums, group=group)
        ctx.save_for_backward(terms.div_(sums[0].unsqueeze(1)), here, column)
        return sums[0].log() - sums[1]

    @staticmethod
    def backward(ctx, g):
        probabilities, here, column = ctx.saved_tensors
        dx = probabilities * g.unsqueeze(1)
        dx.scatter_add_(1, column, (-g * here).unsqueeze(1))
        return dx.bfloat16(), None, None, None


def calls(group: Any, peers: Any, rows: int, columns: int) -> dict[str, Callable[[], Any]]:
    """What is measured, by name, for a matrix of so many columns on each rank; `peers` push their
    words."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard
    from torch.distributed.tensor.parallel import loss_parallel

    from examples import symmetric_memory
    from triton_softmax import cross_entropy, softmax

    mesh = init_device_mesh("cuda", (group.size(),))
    x = torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)
    y = torch.empty_like(x)
    target = torch.randint(columns * group.size(), (rows,), device="cuda")
    here = target % columns
    dist.broadcast(target, 0, group=group)
    start, total = columns * group.rank(), columns * group.size()
    leaf = x.clone().requires_grad_()
    placed = DTensor.from_local(x, mesh, [Shard(1)])
    placed_target = DTensor.from_local(target, mesh, [Replicate()])
    words = torch.zeros(2, rows, device="cuda")
    of_all = torch.empty(group.size(), 2, rows, device="cuda")

    where: dict[str, Any] = {"group": group, "vocab_start": start, "vocab_size": total}

    def step(loss: Callable[[], Tensor]) -> Callable[[], None]:
        """A loss and its gradient, which is a new one each time."""

        def call() -> None:
            leaf.grad = None
            loss().backward()

        return call

    def of_pytorch() -> None:
        given = DTensor.from_local(leaf, mesh, [Shard(1)])
        with loss_parallel():
            step(lambda: torch.nn.functional.cross_entropy(given, placed_target))()

    def of_gathered() -> None:
        every = x.new_empty(group.size(), rows, columns)
        dist.all_gather_into_tensor(every, x, group=group)
        whole = every.transpose(0, 1).reshape(rows, total).requires_grad_()
        torch.nn.functional.cross_entropy(whole, target).backward()
        assert whole.grad is not None
        leaf.grad = whole.grad[:, start : start + columns].contiguous()

    def of_megatron() -> Tensor:
        losses = imported("megatron.core.fusions.fused_cross_entropy")
        of = losses.fused_vocab_parallel_cross_entropy
        return of(leaf.unsqueeze(1), target.unsqueeze(1), group).mean()

    def of_formula() -> Tensor:
        losses: Any = MegatronFormula.apply(leaf, target, start, group)
        return losses.mean()

    def of_transformer_engine() -> Tensor:
        of = imported("transformer_engine.pytorch.cross_entropy")
        return of.parallel_cross_entropy(leaf[None], target[None], 0.0, True, group)

    return {
        "copy": lambda: y.copy_(x),
        "message": lambda: dist.all_gather_into_tensor(of_all, words, group=group),
        "softmax, part alone": lambda: softmax(x, 1),
        "softmax": lambda: softmax(x, 1, group=group),
        "softmax, batch-invariant": lambda: softmax(x, 1, group=group, batch_invariant=True),
        "softmax, words pushed": lambda: symmetric_memory.softmax(x, peers),
        "softmax, DTensor of PyTorch": lambda: torch.softmax(placed, 1),
        "cross-entropy, part alone": step(lambda: cross_entropy(leaf, here)),
        "cross-entropy": step(lambda: cross_entropy(leaf, target, **where)),
        "cross-entropy, batch-invariant": step(
            lambda: cross_entropy(leaf, target, **where, batch_invariant=True)
        ),
        "cross-entropy, gathered rows": of_gathered,
        "cross-entropy, loss_parallel": of_pytorch,
        "cross-entropy, Megatron-LM": step(of_megatron),
        "cross-entropy, Megatron-LM's formula": step(of_formula),
        "cross-entropy, TransformerEngine": step(of_transformer_engine),
    }


def run(out: Path, commit: str | None) -> None:
    """Add a run to a file, or go on with it, in each process that `torch.distributed.run` starts.

    Raises:
        DataError: it has not started this one.
    """
    if "LOCAL_RANK" not in os.environ:
        raise DataError("torch.distributed.run has to start this")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    group: Any = dist.group.WORLD
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    run = Run(out, FORMAT, "ranks", commit, ranks=dist.get_world_size())
    missing = [each for each in matrices(group.size()) if run.lacks(**each)]
    dist.barrier()  # everybody has read the file
    peers = imported("examples.symmetric_memory").Peers(group)
    for matrix in missing:
        found = []
        for name, call in calls(group, peers, matrix["rows"], matrix["columns"]).items():
            row: dict[str, Any] = {"call": name, **matrix}
            try:
                row |= quantiles_us(call, group, flush) | {"host_us": host_us(call, group)}
                row |= {"sustained_us": sustained_us(call, group), "sent": sent_bytes(call)}
            except torch.OutOfMemoryError:
                row["error"] = "out of memory"
            except Missing:
                continue
            except Exception as error:  # GPUs may not see each other's memory
                row["error"] = describe(error)
            found.append(row)
        if dist.get_rank() == 0:
            run.add(found)
        torch.cuda.empty_cache()
    dist.destroy_process_group()
