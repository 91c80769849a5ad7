"""The checks of `tests/library/distributed` on several GPUs, over NCCL.

A process of this file for each GPU, of which any number may be there, from one:
`python -m torch.distributed.run --nproc-per-node 8 tests/gpu/test_ranks.py`, or some of its parts
if they are named behind it. Nearly all of the time goes into compiling; several parts at once, each
with a `--master-port` of its own, compile side by side. Under pytest each part is started on two,
four and eight GPUs, as far as there are so many, with a limit.
"""

import datetime
import functools
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from in_float64 import cross_entropy_of, tokens_of
from on_ranks import near
from triton_softmax import cross_entropy, log_softmax, logsumexp, softmax, token_logprobs
from triton_softmax.distributed import process_group

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 600
TIMEOUT = 30
"""Seconds after which a rank is missed."""

DTYPES = torch.float32, torch.bfloat16, torch.float16
GPUS = torch.cuda.device_count()
ANY_WORLD = pytest.mark.parametrize("world", [n for n in (2, 4, 8) if n <= GPUS])


def started(rank: int, world: int, port: int, *arguments: str) -> subprocess.Popen:
    """A rank."""
    variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_PORT": port}
    environment = {name: str(value) for name, value in variables.items()}
    environment |= {"MASTER_ADDR": "localhost", "PYTHONPATH": f"{ROOT}/src:{ROOT}/tests"}
    return subprocess.Popen(
        [sys.executable, __file__, *arguments],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(world: int, *arguments: str) -> list[tuple[int, str]]:
    """What becomes of each rank: how it ends, and what it says."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    ranks = [started(rank, world, port, *arguments) for rank in range(world)]
    until = time.monotonic() + LIMIT
    try:
        for rank in ranks:
            rank.wait(max(0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        pass
    for rank in ranks:
        rank.kill()
    return [(rank.wait(), rank.communicate()[0][-5000:]) for rank in ranks]


@ANY_WORLD
@pytest.mark.parametrize(
    "part", "float32 bfloat16 float16 bits meshes graphs compiled agreement".split()
)
def test_gpus_over_nccl(world, part):
    for code, said in ended(world, part):
        assert code == 0, said


@ANY_WORLD
def test_a_rank_that_dies_is_an_error_on_all(world):
    since = time.monotonic()
    for rank, (code, said) in enumerate(ended(world, "dies")):
        assert code == (17 if rank == 1 else 0), said
    assert time.monotonic() - since < TIMEOUT + 60


def cut(group, n: int, each: int | None = None) -> slice:
    """Where this rank's part of n columns lies, by the rule of `torch.chunk`, or with so many each
    but for the last rank, which has the rest."""
    rank, last = group.rank(), group.size() - 1
    each = each or -(-n // group.size())
    return slice(min(n, rank * each), n if rank == last else min(n, (rank + 1) * each))


def checks(dtype: torch.dtype, group) -> None:
    """Every kind of call, forward and backward, beside the whole in float64."""
    for rows, cols in ((5, 13), (64, 4097), (2500, 300), (33, 131_072), (9, 10_001), (7, 1)):
        generator = torch.Generator().manual_seed(0)
        x = (3 * torch.randn(rows, cols, generator=generator)).to(dtype).cuda()
        dy = torch.randn(rows, cols, generator=generator).to(dtype).cuda()
        target = torch.randint(cols, (rows,), generator=generator).cuda()
        target[1] = -100
        mine = cut(group, cols, 1500 if rows == 9 else None)

        for function, wanted in ((softmax, torch.softmax), (log_softmax, torch.log_softmax)):
            whole = x.double().requires_grad_()
            expected = wanted(whole, 1)
            (gradient,) = torch.autograd.grad(expected, whole, dy.double())
            part = x[:, mine].clone().requires_grad_()
            y = function(part, 1, group=group)
            near(y.detach(), expected[:, mine].detach(), dtype, 10)
            y.backward(dy[:, mine])
            near(part.grad, gradient[:, mine], dtype, 10)
        near(logsumexp(x[:, mine], group=group), torch.logsumexp(x.double(), 1), dtype)
        weight = (0.1 + torch.rand(cols, generator=generator)).to(dtype).cuda()
        for more in (
            {},
            {"label_smoothing": 0.1, "z_loss": 1e-3},
            {"reduction": "none", "z_loss": 1e-3},
            {"weight": weight},
            {"weight": weight[mine], "reduction": "sum"},
            {"weight": weight, "label_smoothing": 0.1},
        ):
            if cols == 1 and more.get("reduction") == "sum":
                continue  # of one class the first rank has all, and all weights
            whole = x.double().requires_grad_()
            wanted = more | ({"weight": weight.double()} if "weight" in more else {})
            expected = cross_entropy_of(whole, target, **wanted)
            g = torch.rand(expected.shape, generator=generator).cuda()
            (gradient,) = torch.autograd.grad(expected, whole, g.double())
            part = x[:, mine].clone().requires_grad_()
            where = {"vocab_start": mine.start, "vocab_size": cols}
            for _ in range(3):  # from the second time on kernels share memory by address
                part.grad = None
                loss = cross_entropy(part, target, group=group, **more, **where)
                loss.backward(g.to(dtype))
            near(loss.detach(), expected.detach(), dtype, 10)
            near(part.grad, gradient[:, mine], dtype, max(1.0, gradient.abs().max().item()))
        index = target.clamp(min=0)
        for more in (1, 3):
            whole = x.double().requires_grad_()
            wide = index.unsqueeze(1).expand(-1, more)
            expected, entropies = tokens_of(whole, wide, return_entropy=True)
            g, h = (torch.rand(each.shape, generator=generator) for each in (expected, entropies))
            g, h = g.cuda(), h.cuda()
            (gradient,) = torch.autograd.grad((expected * g).sum() + (entropies * h).sum(), whole)
            part = x[:, mine].clone().requires_grad_()
            found, entropy = token_logprobs(part, wide, group=group, return_entropy=True)
            ((found * g).sum() + (entropy * h).sum()).backward()
            near(found.detach(), expected.detach(), torch.float32, 5)
            near(entropy.detach(), entropies.detach(), torch.float32, 50)
            near(part.grad, gradient[:, mine], dtype, 10)


def bits(group) -> None:
    """A batch-invariant call gives this rank the bits of one GPU, in equal parts and in others."""
    for dtype in DTYPES:
        for rows, cols in ((3, 32_768), (70, 131_072), (5, 1000)):
            generator = torch.Generator("cuda").manual_seed(0)
            x = torch.randn(rows, cols, generator=generator, device="cuda").to(dtype)
            dy = torch.randn(rows, cols, generator=generator, device="cuda").to(dtype)
            target = torch.randint(cols, (rows,), generator=generator, device="cuda")
            ends = [cols * (rank + 1) ** 2 // group.size() ** 2 for rank in range(group.size())]
            uneven = slice(([0] + ends)[group.rank()], ends[group.rank()])
            for mine in (cut(group, cols), uneven):
                for function in (softmax, log_softmax, logsumexp, cross_entropy):
                    found = []
                    for given, more in ((x, {}), (x[:, mine], {"group": group})):
                        leaf = given.clone().requires_grad_()
                        args = (target,) if function is cross_entropy else ()
                        y = function(leaf, *args, batch_invariant=True, **more)
                        g = dy[:, mine] if more and y.dim() == 2 else dy
                        y.backward(g if y.dim() == 2 else torch.ones_like(y))
                        cut_too = y.dim() == 2 and not more
                        found += [y[:, mine] if cut_too else y]
                        found += [leaf.grad if more else leaf.grad[:, mine]]
                    assert torch.equal(found[0], found[2]), (function, dtype, cols, mine)
                    assert torch.equal(found[1], found[3]), (function, dtype, cols, mine)


def meshes(group) -> None:
    """DTensors whose rows are cut as well, on two ranks of a row or more."""
    if group.size() < 4:
        return
    mesh = init_device_mesh("cuda", (2, group.size() // 2), mesh_dim_names=("rows", "classes"))
    x, target = torch.randn(6, 4099, device="cuda"), torch.arange(6, device="cuda") * 700
    for tensor in (x, target):
        dist.broadcast(tensor, 0, group=group)
    whole = x.double().requires_grad_()
    expected = torch.nn.functional.cross_entropy(whole, target)
    expected.backward()
    for placements in ([Shard(0), Shard(1)], [Replicate(), Shard(1)]):
        given = distribute_tensor(x, mesh, placements).requires_grad_()
        y = softmax(given, 1)
        assert list(y.placements) == placements
        torch.testing.assert_close(y.full_tensor(), torch.softmax(x, 1))
        loss = cross_entropy(given, target)
        loss.backward()
        torch.testing.assert_close(
            loss.full_tensor().double(), expected.detach(), atol=1e-5, rtol=0
        )
        gradient = given.grad.full_tensor().double()
        torch.testing.assert_close(gradient, whole.grad, atol=1e-6, rtol=1e-5)


def graphs(group) -> None:
    """A captured call gives what an ordinary one gives, for elements that came later too."""
    x = torch.randn(64, 1000, device="cuda")
    target = torch.arange(64, device="cuda")
    where = {"vocab_start": 1000 * group.rank(), "vocab_size": 1000 * group.size()}
    for call in (
        lambda: softmax(x, group=group),
        lambda: cross_entropy(x, target, group=group, **where),
    ):
        call()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = call()
        for _ in range(2):
            graph.replay()
            assert torch.equal(y, call())
            x.copy_(torch.randn(64, 1000, device="cuda"))


def compiled(group) -> None:
    """Under `torch.compile`, in one graph, with a gradient."""
    x = torch.randn(64, 4096, device="cuda", dtype=torch.bfloat16)
    target = torch.arange(64, device="cuda")
    where = {"vocab_start": 4096 * group.rank(), "vocab_size": 4096 * group.size()}
    for call in (
        lambda x: softmax(x, group=group),
        lambda x: log_softmax(x, group=group),
        lambda x: cross_entropy(x, target, group=group, **where),
    ):
        found = []
        for function in (call, torch.compile(call, fullgraph=True)):
            leaf = x.clone().requires_grad_()
            y = function(leaf)
            (y if y.dim() == 0 else y.float().square().sum()).backward()
            found.append((y.detach(), leaf.grad))
        for eager, traced in zip(*found, strict=True):
            torch.testing.assert_close(traced, eager, atol=1.6e-2, rtol=1.6e-2)


def agreement(group) -> None:
    """Parts change their sizes; and a rank that calls something else is named on all."""
    rank, world = group.rank(), group.size()
    x = torch.randn(4, 6 * world, generator=torch.Generator().manual_seed(0)).cuda()
    target = torch.tensor([0, 4, 1, 3], device="cuda")
    some = [(5 + 3 * i) % 7 for i in range(world)]
    turned = [some[i:] + some[:i] for i in (0, 0, 1, world - 1, 0)]
    for sizes in (*turned, [5] * world, [5] + [0] * (world - 1), [0] * (world - 1) + [5], some):
        here = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
        whole = x[:, : sum(sizes)].double().requires_grad_()
        part = x[:, here].clone().requires_grad_()
        loss = cross_entropy(part, target, group=group)
        expected = torch.nn.functional.cross_entropy(whole, target)
        torch.testing.assert_close(loss.double(), expected, atol=1e-5, rtol=1e-5)
        loss.backward()
        expected.backward()
        torch.testing.assert_close(part.grad.double(), whole.grad[:, here], atol=1e-5, rtol=1e-5)
        for more in ({}, {"batch_invariant": True}):
            y = softmax(x[:, here], group=group, **more).double()
            wanted = torch.softmax(whole.detach(), 1)[:, here]
            torch.testing.assert_close(y, wanted, atol=1e-5, rtol=1e-5)
    if world == 1:
        return
    part, odd = x[:, :5].contiguous(), rank == 1
    for call in (
        lambda: softmax(part[odd:], group=group),
        lambda: softmax(part.bfloat16() if odd else part, group=group),
        lambda: (logsumexp if odd else softmax)(part, group=group),
        lambda: softmax(part, group=group, batch_invariant=odd),
        lambda: softmax(part.long() if odd else part, group=group),
    ):
        with pytest.raises((ValueError, TypeError), match="rank 1: |int64"):
            call()
    torch.cuda.synchronize()


def dies(group) -> None:
    """A rank is gone, and the others get an error within the time-out."""
    process_group.TIMEOUT = datetime.timedelta(seconds=TIMEOUT)  # of lines, ten minutes otherwise
    x = torch.randn(4, 1000, device="cuda")
    softmax(x, group=group)
    torch.cuda.synchronize()
    if group.rank() == 1:
        os._exit(17)
    with pytest.raises(RuntimeError):
        softmax(x, group=group)
    os._exit(0)  # of a group whose members are gone nobody can take leave


def main() -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=60))
    parts = {str(dtype)[6:]: functools.partial(checks, dtype) for dtype in DTYPES}
    parts |= {each.__name__: each for each in (bits, meshes, graphs, compiled, agreement, dies)}
    begin = time.monotonic()
    for name in sys.argv[1:] or [name for name in parts if name != "dies"]:
        parts[name](dist.group.WORLD)
        print(f"{time.monotonic() - begin:.0f} s: {name} done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
