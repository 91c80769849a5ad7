"""The checks of `tests/library/distributed` on two GPUs, over NCCL.

Two processes of this file itself, a GPU each:
`python -m torch.distributed.run --nproc-per-node 2 tests/gpu/test_ranks.py`. Under pytest the same
is started as a subprocess with a limit.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 300


def test_two_gpus_over_nccl():
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}/tests"}
    run = subprocess.run(
        [*command, __file__], env=environment, timeout=LIMIT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-5000:]


def checks(group) -> None:
    """Every kind of call, forward and backward, beside the whole in float64."""
    from torch.nn import functional

    from triton_softmax import cross_entropy, log_softmax, logsumexp, softmax, token_logprobs

    rank, device = group.rank(), torch.device("cuda", group.rank())
    tolerances = {torch.float32: 2e-6, torch.bfloat16: 1.6e-2, torch.float16: 2e-3}
    for dtype, tolerance in tolerances.items():
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

            for function, wanted in (
                (softmax, torch.softmax),
                (log_softmax, torch.log_softmax),
            ):
                whole = x.double().requires_grad_()
                expected = wanted(whole, 1)
                (gradient,) = torch.autograd.grad(expected, whole, dy.double())
                part = x[:, mine].clone().requires_grad_()
                y = function(part, 1, group=group)
                near(y, expected[:, mine].detach(), tolerance * 10)
                y.backward(dy[:, mine])
                near(part.grad, gradient[:, mine], tolerance * 10)
            near(logsumexp(x[:, mine], group=group), torch.logsumexp(x.double(), 1))
            for epsilon in (0.0, 0.1):
                whole = x.double().requires_grad_()
                expected = functional.cross_entropy(whole, target, label_smoothing=epsilon)
                (gradient,) = torch.autograd.grad(expected, whole)
                part = x[:, mine].clone().requires_grad_()
                loss = cross_entropy(part, target, group=group, label_smoothing=epsilon)
                loss.backward()
                near(loss, expected.detach(), tolerance * 10)
                near(part.grad, gradient[:, mine])
            index = target.clamp(min=0)
            found, entropy = token_logprobs(x[:, mine], index, group=group, return_entropy=True)
            y = torch.log_softmax(x.double(), 1)
            near(found, y.gather(1, index.unsqueeze(1)).squeeze(1), 1e-5)
            near(entropy, -(y.exp() * y).sum(1), 1e-4)


def graphs(group) -> None:
    """A captured call gives what an ordinary one gives."""
    from triton_softmax import softmax

    x = torch.randn(64, 1000, device=torch.device("cuda", group.rank()))
    expected = softmax(x, group=group)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = softmax(x, group=group)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(y, expected)


def main() -> None:
    import datetime

    import torch.distributed as dist

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=60))
    checks(dist.group.WORLD)
    graphs(dist.group.WORLD)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
