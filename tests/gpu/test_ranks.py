"""The checks of `tests/library/distributed` on two GPUs, over NCCL.

Two processes of this file itself, a GPU each:
`python -m torch.distributed.run --nproc-per-node 2 tests/gpu/test_ranks.py`. Under pytest the same
is started as a subprocess with a limit.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 300
TOLERANCES = {torch.float32: 2e-6, torch.bfloat16: 1.6e-2, torch.float16: 2e-3}


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus_over_nccl():
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}/tests"}
    run = subprocess.run(
        [*command, __file__], env=environment, timeout=LIMIT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-5000:]


def checks(group) -> None:
    """Every kind of call, forward and backward, beside the whole in float64."""
    from in_float64 import cross_entropy_of, tokens_of
    from triton_softmax import cross_entropy, log_softmax, logsumexp, softmax, token_logprobs

    rank, device = group.rank(), torch.device("cuda", group.rank())
    for dtype, tolerance in TOLERANCES.items():
        for rows, cols in ((5, 13), (64, 4097), (2500, 300), (33, 131_072), (7, 1)):
            generator = torch.Generator().manual_seed(0)
            x = (3 * torch.randn(rows, cols, generator=generator)).to(dtype).to(device)
            dy = torch.randn(rows, cols, generator=generator).to(dtype).to(device)
            target = torch.randint(cols, (rows,), generator=generator).to(device)
            target[1] = -100
            each = -(-cols // 2)
            mine = slice(min(cols, rank * each), min(cols, (rank + 1) * each))

            def near(actual, expected, tolerance=tolerance):
                torch.testing.assert_close(
                    actual.double(), expected.double(), atol=tolerance, rtol=tolerance
                )

            for function, wanted in ((softmax, torch.softmax), (log_softmax, torch.log_softmax)):
                whole = x.double().requires_grad_()
                expected = wanted(whole, 1)
                (gradient,) = torch.autograd.grad(expected, whole, dy.double())
                part = x[:, mine].clone().requires_grad_()
                y = function(part, 1, group=group)
                near(y, expected[:, mine].detach(), tolerance * 10)
                y.backward(dy[:, mine])
                near(part.grad, gradient[:, mine], tolerance * 10)
            near(logsumexp(x[:, mine], group=group), torch.logsumexp(x.double(), 1))
            weight = (0.1 + torch.rand(cols, generator=generator)).to(dtype).to(device)
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
                g = torch.rand(expected.shape, generator=generator).to(device)
                (gradient,) = torch.autograd.grad(expected, whole, g.double())
                part = x[:, mine].clone().requires_grad_()
                where = {"vocab_start": mine.start, "vocab_size": cols}
                loss = cross_entropy(part, target, group=group, **more, **where)
                loss.backward(g.to(dtype))
                near(loss, expected.detach(), tolerance * 10)
                near(
                    part.grad, gradient[:, mine], tolerance * max(1.0, gradient.abs().max().item())
                )
            index = target.clamp(min=0)
            for more in (1, 3):
                whole = x.double().requires_grad_()
                wide = index.unsqueeze(1).expand(-1, more)
                expected, entropies = tokens_of(whole, wide, return_entropy=True)
                g, h = (
                    torch.rand(each.shape, generator=generator) for each in (expected, entropies)
                )
                g, h = g.to(device), h.to(device)
                (gradient,) = torch.autograd.grad(
                    (expected * g).sum() + (entropies * h).sum(), whole
                )
                part = x[:, mine].clone().requires_grad_()
                found, entropy = token_logprobs(part, wide, group=group, return_entropy=True)
                ((found * g).sum() + (entropy * h).sum()).backward()
                near(found, expected.detach(), 1e-5)
                near(entropy, entropies.detach(), 1e-4)
                near(part.grad, gradient[:, mine], 10 * tolerance)


def graphs(group) -> None:
    """A captured call gives what an ordinary one gives."""
    from triton_softmax import cross_entropy, softmax

    device = torch.device("cuda", group.rank())
    x = torch.randn(64, 1000, device=device)
    target = torch.arange(64, device=device)
    where = {"group": group, "vocab_start": 1000 * group.rank(), "vocab_size": 2000}
    for call in (lambda: softmax(x, group=group), lambda: cross_entropy(x, target, **where)):
        expected = call()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = call()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(y, expected)


def agreement(group) -> None:
    """Shards change their sizes; and a rank that calls something else is named on both."""
    from triton_softmax import cross_entropy, logsumexp, softmax

    rank, device = group.rank(), torch.device("cuda", group.rank())
    x = torch.randn(4, 10, generator=torch.Generator().manual_seed(0)).to(device)
    target = torch.tensor([0, 4, 1, 3], device=device)
    for sizes in ((5, 2), (4, 3), (5, 3), (5, 5), (5, 0), (0, 5), (5, 2)):
        here = slice(sizes[0] * rank, sum(sizes[: rank + 1]))
        whole = x[:, : sum(sizes)].double().requires_grad_()
        part = x[:, here].clone().requires_grad_()
        loss = cross_entropy(part, target, group=group)
        expected = torch.nn.functional.cross_entropy(whole, target)
        torch.testing.assert_close(loss.double(), expected, atol=1e-5, rtol=1e-5)
        loss.backward()
        expected.backward()
        torch.testing.assert_close(part.grad.double(), whole.grad[:, here], atol=1e-5, rtol=1e-5)
        y = softmax(x[:, here], group=group, batch_invariant=True).double()
        wanted = torch.softmax(whole.detach(), 1)[:, here]
        torch.testing.assert_close(y, wanted, atol=1e-5, rtol=1e-5)
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


def main() -> None:
    import datetime

    import torch.distributed as dist

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=60))
    checks(dist.group.WORLD)
    graphs(dist.group.WORLD)
    agreement(dist.group.WORLD)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
