"""The programs of `examples/`. Ranks push their words into files that all of them have mapped, in
place of the memory of GPUs; the test for GPUs runs the program itself."""

from __future__ import annotations

import pytest
import torch

from ranks import Ranks
from site_build import ROOT, python
from softmax_bench.compilation import compiled

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
INF, NAN = float("inf"), float("nan")


@pytest.fixture(scope="module")
def ranks():
    with Ranks(3, "examples_on_ranks") as ranks:
        yield ranks


@pytest.mark.parametrize("world", [1, 2, 3])
def test_words_are_pushed_and_nothing_is_sent(ranks, world):
    ranks.ask("pushed", False, (2, 6 * world), F32, world=world)
    ranks.ask("pushed", True, (1, 5 * world), BF16, world=world)
    ranks.ask("pushed", False, (1, world), F16, world=world)


@pytest.mark.parametrize("log", [False, True])
def test_rows_that_hold_no_numbers(ranks, log):
    rows = [[-INF, -INF, -INF, 2.0], [-INF] * 4, [1.0, NAN, 2.0, 3.0], [1.0, INF, 2.0, 3.0]]
    rows += [[1e4, 1e4 + 1, -1e4, 0.0]]
    ranks.ask("pushed", log, (), F32, rows, world=2)


@pytest.mark.parametrize("name", ["as_sent", "in_turn", "without_one", "refused"])
def test_symmetric_memory(ranks, name):
    ranks.ask(name, world=2)


COMPILED = [("bfloat16", False), ("float32", True), ("bfloat16", True), ("float32", False)]
"""Element type, and whether rows may start between two vectors."""
SPILLED = {("float32", True): 4, ("bfloat16", False): 8}
"""Bytes per thread at most, in any supported Triton, of what is known to spill."""


@pytest.mark.slow
@pytest.mark.parametrize("dtype, edges", COMPILED)
def test_compiles_without_spills(dtype, edges):
    """Forward and backward, for a part of 65,536 columns on two ranks."""
    found = compiled(f"""
from examples.symmetric_memory import Peers, softmax
x = torch.empty(64, {65_537 if edges else 65_536}, dtype=torch.{dtype}, requires_grad=True)
share = lambda n_words, group, device: ([torch.empty(n_words, dtype=torch.int64)] * 2, None)
y = softmax(x, Peers(ranks(2), share=share), log={dtype == "bfloat16" and edges})
torch.autograd.grad(y, x, y.detach())
""")
    assert [each.kernel for each in found] == ["pushed_rows_kernel"] * 2
    for result in found:
        assert result.constants["CHUNKS"] == (16 if edges else 8)
        assert result.constants["HOW"].edges == edges
        assert result.spill_bytes <= SPILLED.get((dtype, edges), 0)
        # Words are looked for in memory, anew.
        assert "ld.volatile.global.b64" in result.assembly


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_the_program_on_gpus():
    """It compares with the library, and then times both."""
    launcher = "-m torch.distributed.run --standalone --nproc-per-node=2".split()
    run = python(*launcher, "examples/symmetric_memory.py", PYTHONPATH=f"{ROOT}/src")
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-5000:]
    assert run.stdout.count("µs") == 2
