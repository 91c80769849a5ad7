"""Words that ranks push into each other's memory: here into files that all of them have mapped."""

from __future__ import annotations

import pytest
import torch

from ranks import Failed, Ranks
from softmax_bench.compilation import compiled

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
INF, NAN = float("inf"), float("nan")


@pytest.fixture(scope="module")
def ranks():
    with Ranks(4, "on_ranks") as ranks:
        yield ranks


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_and_gradient_are_those_of_the_whole(ranks, world, name):
    """And no message is sent, call after call, in parts that are uneven or empty."""
    ranks.ask("pushed_words", name, (2, 13), -1, F32, world=world)
    ranks.ask("pushed_words", name, (1, 6, 2), 1, BF16, world=world)


def test_parts_of_ones_own_sizes(ranks):
    ranks.ask("pushed_words", "softmax", (1, 3), -1, F32)
    ranks.ask("pushed_words", "softmax", (2, 9), -1, F16, sizes=[0, 8, 1, 0])
    ranks.ask("pushed_words", "softmax", (0, 9), -1, F32)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_rows_that_hold_no_numbers(ranks, name):
    """A part on each of two ranks."""
    rows = [[-INF, -INF, -INF, 2.0], [-INF] * 4, [1.0, NAN, 2.0, 3.0], [1.0, INF, 2.0, 3.0]]
    rows += [[1e4, 1e4 + 1, -1e4, 0.0]]
    ranks.ask("pushed_words", name, (), -1, F32, values=rows, world=2)


def test_all_ranks_merge_to_the_same_bits_as_a_message_does(ranks):
    ranks.ask("pushed_as_sent", (2, 40), world=4)


def test_buffers_grow_and_are_used_in_turn(ranks):
    ranks.ask("pushed_in_turn", world=2)


def test_what_goes_by_message_all_the_same(ranks):
    """float64, short parts, batch invariance, and losses."""
    ranks.ask("sent_all_the_same", world=2)


def test_a_rank_that_does_not_come_is_named(ranks):
    """NaN in the rows that lack its words, and an error at the next call, and when asked."""
    ranks.ask("pushed_without_one", world=2)


def test_a_rank_that_does_not_push_is_told_apart(ranks):
    with pytest.raises(Failed, match="do not call the same thing"):
        ranks.ask("pushing_alone", world=2)


def test_arguments_are_checked(ranks):
    ranks.ask("pushed_arguments", world=2)


# name, dtype, whether rows may start between two vectors
LAUNCHED = [("softmax", "bfloat16", False), ("softmax", "float32", True)]
LAUNCHED += [("log_softmax", "bfloat16", True), ("log_softmax", "float32", False)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype", "edges"), LAUNCHED)
def test_compiles_without_spills(name, dtype, edges):
    """What ships, forward and backward, for a part of 65,536 columns on two ranks."""
    found = compiled(f"""
x = torch.empty(64, {65_537 if edges else 65_536}, dtype=torch.{dtype}, requires_grad=True)
y = {name}(x, 1, group=ranks(2, pushing=True))
torch.autograd.grad(y, x, y.detach())
""")
    assert [each.kernel for each in found] == ["pushed_rows_kernel"] * 2
    for result in found:
        assert result.constants["CHUNKS"] == (16 if edges else 8)
        assert result.constants["HOW"].edges == edges
        assert result.spill_bytes <= (4 if (dtype, edges) == ("float32", True) else 0)
        # Words are looked for in memory, anew.
        assert "ld.volatile.global.b64" in result.assembly
