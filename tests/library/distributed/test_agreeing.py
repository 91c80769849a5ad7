"""Ranks agree, whatever each of them calls: the right answer, or the same error on all of them, and
nobody waits for ever."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ranks import Ranks

INVARIANT = {"batch_invariant": True}


@pytest.fixture(scope="module")
def pool():
    """Ranks, started again after one of them has died or has been left waiting."""
    kept: list[Ranks] = []

    def ranks() -> Ranks:
        if kept and kept[-1].broken:
            kept.pop().__exit__()
        if not kept:
            kept.append(Ranks(2, "calling"))
        return kept[-1]

    yield ranks
    for each in kept:
        each.__exit__()


def became(pool: Any, *calls: tuple[list[int], Any], **more: Any) -> list[list[tuple[str, str]]]:
    """What became of calls, (sizes, what every rank calls, or what all call), on each rank."""
    both = [(sizes, call if isinstance(call, list) else [call] * 2) for sizes, call in calls]
    ranks = pool()
    ranks.broken, found = False, None
    try:
        found = ranks.ask("sequence", both, **more)
    finally:  # a lost connection is not found again
        lost = found is None or any(kind == "RuntimeError" for each in found for kind, _ in each)
        ranks.broken |= lost
    return found


def all_right(found: list[list[tuple[str, str]]]) -> bool:
    return all(kind == "right" for of_rank in found for kind, _ in of_rank)


NARROW = {"dtype": torch.bfloat16, "loss_dtype": torch.float32, "gradient": False}
NARROW |= {"name": "cross_entropy"}
LOSS, TOKENS, SOFTMAX = ({"name": n} for n in ("cross_entropy", "token_logprobs", "softmax"))


@pytest.mark.parametrize("by_kernels", [False, True], ids=["operators", "kernels"])
@pytest.mark.parametrize("call", [LOSS, TOKENS, SOFTMAX, {**SOFTMAX, **INVARIANT}], ids=str)
@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param(([5, 2], [4, 3], [5, 3]), id="each-size-seen-before"),
        pytest.param(([5, 2], [5, 5]), id="another-on-one"),
        pytest.param(([1, 0], [0, 1], [1, 1]), id="empty"),
    ],
)
def test_parts_change_their_sizes(pool, sizes, call, by_kernels):
    assert all_right(became(pool, *[(each, call) for each in sizes], by_kernels=by_kernels))


def test_a_rank_without_columns_sends(pool):
    of_softmax = {**SOFTMAX, **INVARIANT}
    assert all_right(became(pool, ([0, 0], of_softmax), ([0, 1], of_softmax)))
    both = {"name": "selective_log_softmax_and_entropy"}
    assert all_right(became(pool, ([0, 1], both), ([3, 0], both)))


ODD = {
    "rows": (LOSS, {**LOSS, "rows": 3}),
    "rows-of-softmax": (SOFTMAX, {**SOFTMAX, "rows": 3}),
    "dtype": (SOFTMAX, {**SOFTMAX, "dtype": torch.float64}),
    "no-dtype": (SOFTMAX, {**SOFTMAX, "dtype": torch.int64, "gradient": False}),
    "function": (SOFTMAX, {"name": "logsumexp"}),
    "bits": ({**SOFTMAX, **INVARIANT}, SOFTMAX),
    "bits-of-losses": (LOSS, {**LOSS, **INVARIANT}),
    "gradient": (SOFTMAX, {**SOFTMAX, "gradient": False}),
    "refused": (SOFTMAX, {**SOFTMAX, "causal": True}),
    "dimension": (SOFTMAX, {**SOFTMAX, "dim": 7}),
    "axis": (SOFTMAX, {**SOFTMAX, "dim": 1, "axis": 0}),
    "scale": ({**SOFTMAX, "scale": 0.5}, {**SOFTMAX, "scale": 0.7}),
    "targets": (LOSS, {**LOSS, "class": 1}),
    "smoothing": (LOSS, {**LOSS, "label_smoothing": 7.0}),
    "smoothing-of-one": (LOSS, {**LOSS, "label_smoothing": 0.1}),
    "weights": tuple({**NARROW, "weight": dtype} for dtype in (torch.bfloat16, torch.float32)),
    "dimension-of-rows": (SOFTMAX, {**SOFTMAX, "dim": 0}),
    "classes": (TOKENS, {**TOKENS, "vocab_start": 0}),
    "vocabulary": (LOSS, {**LOSS, "vocab_start": 0, "vocab_size": 7}),
}
"""What one rank calls, and the other."""


@pytest.mark.parametrize("what", ODD)
def test_a_rank_that_calls_something_else_is_named_on_all(pool, what):
    """Also after each rank has seen what it calls now; and then all go on."""
    one, other = ODD[what]
    before = [([3, 4], each) for each in (one, other)]
    found = became(pool, *before, ([3, 4], [one, other]), ([3, 4], [other, one]), ([3, 4], one))
    for kinds in zip(*found, strict=True):
        assert all(kind == "right" for kind, _ in kinds) or all(
            kind != "right" for kind, _ in kinds
        )
    one_call = [*zip(*found, strict=True)]
    for of_ranks in (one_call[0], one_call[-1]):
        assert all(kind == "right" for kind, _ in of_ranks)
    for of_ranks in one_call[2:4]:
        assert all(kind != "right" for kind, _ in of_ranks)
        assert any("rank" in words for _, words in of_ranks)


def test_a_backward_pass_is_compared_too(pool):
    pool().ask("differentiates_something_else")


def test_a_number_of_another_type_is_the_same(pool):
    """Also where one rank has called it by its other name before."""
    one, other = {**LOSS, "label_smoothing": 0}, {**LOSS, "label_smoothing": 0.0}
    assert all_right(became(pool, ([3, 4], [one, other]), ([3, 4], other), ([3, 4], one)))
