"""Softmax and cross-entropy of rows that are cut over two GPUs, beside what others do.

`python -m torch.distributed.run --standalone --nproc-per-node 2 -m softmax_bench.ranks` prints a
table of medians in milliseconds, of the slower rank: 8,192 rows of 2 × 65,536 bfloat16. The others
are PyTorch's softmax of a `DTensor`, its `loss_parallel`, and the formula that Megatron-LM has
published, written here with PyTorch's operators: three all-reduces forward, of the maximum, of the
target's logit and of the denominator. The softmax of one GPU's part alone is the yardstick.

No result of it has been published yet.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

ROWS, COLUMNS = 8192, 65_536
"""Rows, and columns on each rank."""

REPEATS = 20


class MegatronCrossEntropy(torch.autograd.Function):
    """Vocabulary-parallel cross-entropy by Megatron-LM's formula: losses of rows."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, start: int, group: Any) -> Tensor:
        z = logits.float()
        m = z.amax(-1)
        dist.all_reduce(m, dist.ReduceOp.MAX, group=group)
        z = z - m.unsqueeze(-1)
        column = target - start
        elsewhere = (column < 0) | (column >= z.shape[1])
        column = column.masked_fill(elsewhere, 0)
        picked = z.gather(1, column.unsqueeze(1)).squeeze(1).masked_fill(elsewhere, 0.0)
        dist.all_reduce(picked, group=group)
        y = z.exp_()
        d = y.sum(-1)
        dist.all_reduce(d, group=group)
        y /= d.unsqueeze(-1)
        ctx.save_for_backward(y, column, elsewhere)
        ctx.dtype = logits.dtype
        return d.log() - picked

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        y, column, elsewhere = ctx.saved_tensors
        rows = torch.arange(len(y), device=y.device)
        dx = y.clone()
        dx[rows, column] -= (~elsewhere).to(dx.dtype)
        return (dx * gradients[0].unsqueeze(-1)).to(ctx.dtype), None, None, None


def median_ms(call: Callable[[], Any], group: Any) -> float:
    """The median time of a call, on the slower rank; the L2 cache holds nothing of it before."""
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    times = []
    for repeat in range(REPEATS + 3):
        flush.zero_()
        dist.barrier(group)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        if repeat >= 3:
            times.append(begin.elapsed_time(end))
    median = torch.tensor(sorted(times)[len(times) // 2], device="cuda")
    dist.all_reduce(median, dist.ReduceOp.MAX, group=group)
    return median.item()


def calls(group: Any) -> dict[str, Callable[[], Any]]:
    """What is measured, by name."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard
    from torch.distributed.tensor.parallel import loss_parallel

    from triton_softmax import cross_entropy, softmax

    mesh = init_device_mesh("cuda", (group.size(),))
    x = torch.randn(ROWS, COLUMNS, device="cuda", dtype=torch.bfloat16)
    target = torch.randint(COLUMNS * group.size(), (ROWS,), device="cuda")
    dist.broadcast(target, 0, group=group)
    start, total = COLUMNS * group.rank(), COLUMNS * group.size()
    leaf = x.clone().requires_grad_()
    placed = DTensor.from_local(x, mesh, [Shard(1)])
    placed_target = DTensor.from_local(target, mesh, [Replicate()])

    def ours() -> None:
        where = {"vocab_start": start, "vocab_size": total}
        cross_entropy(leaf, target, group=group, **where).backward()

    def of_pytorch() -> None:
        given = DTensor.from_local(leaf, mesh, [Shard(1)])
        with loss_parallel():
            torch.nn.functional.cross_entropy(given, placed_target).backward()

    def of_megatron() -> None:
        MegatronCrossEntropy.apply(leaf, target, start, group).mean().backward()

    return {
        "softmax of the part alone": lambda: softmax(x, 1),
        "softmax, two ranks": lambda: softmax(x, 1, group=group),
        "softmax, DTensor of PyTorch": lambda: torch.softmax(placed, 1),
        "cross-entropy forward and backward": ours,
        "the same, loss_parallel": of_pytorch,
        "the same, Megatron's formula": of_megatron,
    }


def main() -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    group = dist.group.WORLD
    for name, call in calls(group).items():
        try:
            text = f"{median_ms(call, group):8.3f} ms"
        except torch.OutOfMemoryError:
            text = "out of memory"
        if dist.get_rank() == 0:
            print(f"{name:40} {text}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
