"""Words that ranks push into each other's memory: here into files that all of them have mapped."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import known
from ranks import Failed, Ranks
from softmax_bench.compilation import OPERATIONS, Request
from triton_softmax.distributed import pushed
from triton_softmax.finishing import FINISHES
from triton_softmax.plan import traits_of

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
INF, NAN = float("inf"), float("nan")


@pytest.fixture(scope="module")
def ranks():
    with Ranks(4, "on_ranks") as ranks:
        yield ranks


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_and_gradient_are_those_of_the_whole(ranks, world, name):
    """And no message is sent, call after call, in parts that are uneven or empty."""
    ranks.ask("pushed_words", name, (5, 13), -1, F32, world=world)
    ranks.ask("pushed_words", name, (3, 6, 2), 1, BF16, world=world)


def test_parts_of_ones_own_sizes(ranks):
    ranks.ask("pushed_words", "softmax", (4, 3), -1, F32)
    ranks.ask("pushed_words", "softmax", (4, 9), -1, F16, sizes=[0, 8, 1, 0])
    ranks.ask("pushed_words", "softmax", (0, 9), -1, F32)


def test_rows_that_hold_no_numbers(ranks):
    rows = [[-INF, -INF, -INF, 2.0], [-INF] * 4, [1.0, NAN, 2.0, 3.0], [1.0, INF, 2.0, 3.0]]
    rows += [[1e4, 1e4 + 1, -1e4, 0.0], [-1e4, -1e4, -1e4, -1e4 + 2], [0.0, -0.0, 0.0, 0.0]]
    for name in ("softmax", "log_softmax"):
        ranks.ask("pushed_words", name, (), -1, F32, values=rows)


def test_all_ranks_merge_to_the_same_bits_as_a_message_does(ranks):
    ranks.ask("pushed_as_sent", (7, 40), world=4)


def test_buffers_grow_and_are_used_in_turn(ranks):
    ranks.ask("pushed_in_turn", world=2)


def test_what_goes_by_message_all_the_same(ranks):
    """float64, short parts, batch invariance, and losses."""
    ranks.ask("sent_all_the_same", world=2)


def test_a_rank_that_does_not_come_is_named(ranks):
    """NaN in the rows that lack its words, and an error at the next call, and when asked."""
    ranks.ask("pushed_without_one", world=3)


def test_a_rank_that_does_not_push_is_told_apart(ranks):
    with pytest.raises(Failed, match="do not call the same thing"):
        ranks.ask("pushing_alone", world=2)


def test_arguments_are_checked(ranks):
    ranks.ask("pushed_arguments", world=2)


def requests() -> dict[str, Request]:
    """What ships, for a part of 65,536 columns on two ranks."""
    found = {}
    for name, op in FINISHES.items():
        if name not in OPERATIONS:
            continue
        inputs = 2 if "backward" in name else 1
        for dtype, size in (("bf16", 2), ("fp32", 4)):
            for vector, edges in ((16 // size, False), (16 // size, True)):
                chosen = pushed.choose(traits_of(op), size, vector, edges, 8192, 8, 2, True)
                signature = {
                    "in_ptrs": (f"*{dtype}",) * inputs,
                    "out_ptrs": (f"*{dtype}", *("*i64",) * 5),
                    "in_strides": ("i32",) * inputs,
                    "out_strides": ("i32",),
                    **dict.fromkeys(("shape", "chunks"), ("i32", "i32")),
                    "rank": "i32",
                    "limit": "i64",
                }
                constants = {"OP": OPERATIONS[name], "HOW": chosen.how, "CHUNKS": chosen.chunks}
                found[f"{name} {dtype} {edges}"] = Request(
                    "triton_softmax.distributed.pushed:pushed_rows_kernel",
                    signature,
                    {**constants, "TIMED": True},
                    num_warps=pushed.NUM_WARPS,
                    max_registers=chosen.registers,
                )
    return found


def test_compiles_without_spills(monkeypatch):
    """What has changed is compiled, and each day a tenth of the rest; see `tests/known.py`."""
    monkeypatch.setattr(known, "PATH", Path(__file__).parent / "known_pushed.json")
    asked = requests()
    found, wrong = known.answers({known.key(request): request for request in asked.values()})
    assert not wrong
    for name, request in asked.items():
        compiled = found[known.key(request)]
        assert not isinstance(compiled, Exception), compiled
        assert compiled.spill_bytes == 0, name
        # Words are looked for in memory, each time anew.
        assert "ld.volatile.global.b64" in compiled.assembly
