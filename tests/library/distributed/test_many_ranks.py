"""Rows over four and eight ranks: values, gradients, bits, meshes, parts that change their sizes,
and a rank that raises or dies. Small sizes: the ranks of a test share a few cores."""

from __future__ import annotations

import time

import pytest
import torch
from torch.distributed.tensor import Replicate, Shard

from ranks import TIMEOUT, Failed, Ranks

F64, F32, BF16 = torch.float64, torch.float32, torch.bfloat16
MANY = pytest.mark.parametrize("world", [4, 8])


@pytest.fixture(scope="module")
def ranks():
    with Ranks(8, "on_ranks") as ranks:
        yield ranks


@pytest.fixture(scope="module")
def callers():
    with Ranks(8, "calling") as ranks:
        yield ranks


@MANY
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_values_and_gradients(ranks, world, name):
    """In equal parts, by `torch.chunk`'s rule, and in parts some of which are empty."""
    ranks.ask("normalized", name, (3, 2 * world), -1, F32, world=world)
    ranks.ask("normalized", name, (2, 19), -1, F64, name == "softmax", world=world)
    sizes = [0, 5, 1, 0, 3, 0, 2, 8][:world]
    ranks.ask("normalized", name, (2, sum(sizes)), -1, BF16, sizes=sizes, world=world)


@pytest.mark.parametrize("world", [2, 4, 8])
def test_a_long_row(ranks, world):
    """Of which each rank has several chunks, and the last rank fewer columns."""
    ranks.ask("normalized", "softmax", (1, 70_001), -1, F32, world=world)


@MANY
def test_one_number_for_a_row(ranks, world):
    ranks.ask("summed_up", (5, 19), -1, F64, world=world)
    ranks.ask("tokens", (6, 19), F32, world=world)
    ranks.ask("tokens", (2, 3, 19), BF16, 3, temperature=0.6, world=world)


@MANY
@pytest.mark.parametrize(
    "more",
    [
        {"z_loss": 1e-3},
        {"reduction": "none"},
        {"weight": True, "sharded_weight": True, "label_smoothing": 0.2},
        {"probabilities": True, "reduction": "sum"},
    ],
    ids=str,
)
def test_losses(ranks, world, more):
    ranks.ask("loss", (6, 19), F32, world=world, **more)
    sizes = [0, 5, 1, 0, 3, 0, 2, 8][:world]
    ranks.ask("loss", (3, sum(sizes)), F64, sizes=sizes, world=world, **more)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp", "mean", "tokens"])
def test_the_same_bits_on_1_2_4_and_8_ranks(ranks, name):
    """Of long rows in equal parts, and of short ones however they are cut."""
    shape = (2 if name == "mean" else 1, 16_384)
    for world in (2, 4, 8):
        ranks.ask("same_as_on_one", name, shape, F32, world=world)
    for sizes in ([40, 1, 0, 23], [8, 8, 8, 8, 8, 8, 8, 8], [0, 1, 2, 3, 5, 8, 13, 32]):
        more = {"sizes": sizes, "where": True, "world": len(sizes)}
        ranks.ask("same_as_on_one", name, (3, 64), F32, **more)


@pytest.mark.parametrize("shape", [(2, 2), (2, 4)], ids=str)
@pytest.mark.parametrize("placements", [[Shard(0), Shard(1)], [Replicate(), Shard(1)]], ids=str)
def test_meshes(ranks, shape, placements):
    world = shape[0] * shape[1]
    for name in ("softmax", "logsumexp"):
        ranks.ask("placed", name, shape, placements, (5, 19), 1, world=world)
    for more in ({}, {"reduction": "none"}, {"weight": True, "label_smoothing": 0.1}):
        ranks.ask("placed_loss", shape, placements, (5, 19), False, world=world, **more)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["softmax", "mean"])
def test_the_same_bits_on_a_mesh(ranks, name):
    ranks.ask("same_as_on_one", name, (4, 16_384), F32, mesh=(2, 4), world=8)


@pytest.mark.parametrize("name", ["softmax", "cross_entropy", "token_logprobs"])
@MANY
def test_parts_change_their_sizes(callers, world, name):
    sizes = [3, 1, 2, 5, 0, 4, 1, 2][:world]
    turns = (0, 0, 1, world // 2, 0)
    calls = [([*sizes[n:], *sizes[:n]], [{"name": name}] * world) for n in turns]
    calls += [([2] * world, [{"name": name}] * world), (sizes, [{"name": name}] * world)]
    found = callers.ask("sequence", calls, world=world)
    assert all(kind == "right" for of_rank in found for kind, _ in of_rank), found


@MANY
def test_a_rank_that_raises_is_named_on_all(callers, world):
    """One has wrong arguments, and then one calls something else; all go on."""
    right, sizes = {"name": "softmax"}, [2] * world
    wrong = {**right, "dim": 7}
    calls = [[right] * world, [right] * (world - 1) + [wrong], [right, {"name": "logsumexp"}]]
    calls[2] += [right] * (world - 2)
    calls += [[right] * world]
    found = callers.ask("sequence", [(sizes, of_ranks) for of_ranks in calls], world=world)
    first, refused, other, last = zip(*found, strict=True)
    assert all(kind == "right" for kind, _ in (*first, *last))
    assert refused[-1][0] == "IndexError"
    assert all(f"rank {world - 1}: IndexError" in words for _, words in refused[:-1]), refused
    assert all(kind == "ValueError" and "rank 1: logsumexp" in words for kind, words in other)


@pytest.mark.slow
@MANY
def test_a_rank_that_dies_is_an_error_on_all(world):
    """Within the time-out, on each of the others."""
    with Ranks(world, "on_ranks") as ranks:
        since = time.monotonic()
        with pytest.raises(Failed) as failed:
            ranks.ask("dies", 5)
        assert time.monotonic() - since < TIMEOUT
        ranks.broken = True
    assert str(failed.value) == "rank 1: EOFError: "
