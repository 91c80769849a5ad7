"""Softmax and its loss on 1 to 4 ranks over gloo, each with a part of every row.

The ranks are started once for this file and run the functions of `tests/on_ranks.py`, which compare
with the whole. Every question has a limit: nothing waits for ever.
"""

from __future__ import annotations

import pytest
import torch
from torch.distributed.tensor import Replicate, Shard

import triton_softmax
from ranks import Failed, Ranks

F64, F32, F16, BF16 = torch.float64, torch.float32, torch.float16, torch.bfloat16
INF, NAN = float("inf"), float("nan")
WORLDS = [1, 2, 3, 4]
FUNCTIONS = ["softmax", "log_softmax", "logsumexp", "cross_entropy", "token_logprobs"]
WAYS = [pytest.param(True, id="kernels"), pytest.param(False, id="operators")]


@pytest.fixture(scope="module")
def ranks():
    with Ranks(4, "on_ranks") as ranks:
        yield ranks


@pytest.mark.parametrize("by_kernels", WAYS)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("world", WORLDS)
def test_softmax_and_gradient_are_those_of_the_whole(ranks, world, name, by_kernels):
    """One message of 8 bytes a row forward and one of 4 backward, in uneven parts."""
    ranks.ask("normalized", name, (5, 13), -1, F64, by_kernels, world=world)
    ranks.ask("normalized", name, (3, 6, 2), 1, F32, by_kernels, world=world)


def test_long_rows_are_summarised_in_chunks(ranks):
    ranks.ask("normalized", "softmax", (1, 70_001), -1, F32, world=2)


@pytest.mark.parametrize("name", ["softmax", "cross_entropy", "token_logprobs"])
def test_later_calls_enter_few_functions_of_few_files(ranks, name):
    ranks.ask("enters_few_functions", name, 20, 10, world=2)


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_16_bits(ranks, name, dtype):
    ranks.ask("normalized", name, (4, 9), -1, dtype, world=2)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_a_rank_may_have_nothing(ranks, name):
    """Three columns on four ranks; parts of sizes of one's own; no rows; one number."""
    ranks.ask("normalized", name, (4, 3), -1, F64)
    ranks.ask("normalized", name, (4, 9), -1, F64, sizes=[0, 8, 1, 0])
    ranks.ask("normalized", name, (4, 9), -1, F64, sizes=[9, 0, 0, 0])
    ranks.ask("normalized", name, (0, 9), -1, F64)
    ranks.ask("normalized", name, (4,), -1, F64)
    ranks.ask("normalized", name, (4, 0), -1, F64)


@pytest.mark.parametrize("by_kernels", WAYS)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_rows_that_hold_no_numbers(ranks, name, by_kernels):
    """The largest element on each rank in turn, parts of −∞ and NaN, a row of −∞, one of +∞."""
    rows = [[9.0 if i == j else 1.0 - j for j in range(4)] for i in range(4)]
    rows += [[-INF if i == j else float(j) for j in range(4)] for i in range(4)]
    rows += [[-INF, -INF, -INF, 2.0], [-INF] * 4, [1.0, NAN, 2.0, 3.0], [1.0, INF, 2.0, 3.0]]
    rows += [[1e4, 1e4 + 1, -1e4, 0.0], [-1e4, -1e4, -1e4, -1e4 + 2]]
    ranks.ask("normalized", name, (), -1, F64, by_kernels, values=rows)


@pytest.mark.parametrize("by_kernels", WAYS)
@pytest.mark.parametrize("world", WORLDS)
def test_logsumexp_is_the_same_on_all_ranks(ranks, world, by_kernels):
    ranks.ask("summed_up", (5, 13), -1, F64, by_kernels=by_kernels, world=world)
    ranks.ask("summed_up", (3, 5, 4), (0, 2), F32, True, by_kernels=by_kernels, world=world)
    rows = [[1.0, 2.0, INF, 3.0], [-INF] * 4, [1.0, NAN, 2.0, INF], [1e4, 0.0, -INF, 1e4]]
    ranks.ask("summed_up", (), -1, F64, by_kernels=by_kernels, values=rows, world=world)


LOSSES = {
    "plain": {},
    "none": {"reduction": "none", "z_loss": 1e-2},
    "smoothed": {"label_smoothing": 0.1, "z_loss": 1e-3},
    "weighted": {"weight": True, "z_loss": 1e-3},
    "weights-cut": {"weight": True, "sharded_weight": True},
    "smoothed-weights-cut": {"weight": True, "sharded_weight": True, "label_smoothing": 0.2},
    "smoothed-weighted": {"weight": True, "label_smoothing": 0.2, "z_loss": 1e-2},
    "probabilities": {"probabilities": True, "label_smoothing": 0.2},
    "weighted-probabilities": {"probabilities": True, "weight": True, "reduction": "sum"},
    "mapped": {"softcap": 5.0, "scale": 0.7, "in_place": True},
    "in-place": {"in_place": True, "reduction": "sum"},
}


@pytest.mark.parametrize("by_kernels", WAYS)
@pytest.mark.parametrize("name", LOSSES)
def test_cross_entropy_is_that_of_the_whole(ranks, name, by_kernels):
    """One message of 16 bytes a row forward, and none backward."""
    one, other = [*LOSSES].index(name) % 4, ([*LOSSES].index(name) + 1) % 4
    for world in (WORLDS[one], WORLDS[other]) if by_kernels else (3,):
        ranks.ask("loss", (6, 13), F64, by_kernels, world=world, **LOSSES[name])


def test_cross_entropy_of_other_shapes(ranks):
    ranks.ask("loss", (13,), F64, world=3)
    ranks.ask("loss", (3, 5, 2), F32, world=2, reduction="none")
    for probabilities in (False, True):  # a rank without classes
        ranks.ask("loss", (6, 3), F64, label_smoothing=0.1, probabilities=probabilities)
    ranks.ask("loss", (6, 9), F64, sizes=[0, 8, 1, 0], weight=True)
    ranks.ask("loss", (6, 9), BF16, in_place=True, world=2)
    for by_kernels in (True, False):
        ranks.ask("loss", (6, 300), F64, by_kernels, world=2, small_targets=True)
    ranks.ask("loss", (6, 300), F64, weight=True, label_smoothing=0.1, world=2, small_targets=True)
    for by_kernels in (True, False):
        for more in ({}, {"reduction": "none"}, {"weight": True, "label_smoothing": 0.1}):
            ranks.ask("loss", (6, 9), F16, by_kernels, world=2, loss_dtype=F32, **more)
            ranks.ask("loss", (6, 9), BF16, by_kernels, world=2, **more)


@pytest.mark.parametrize("by_kernels", WAYS)
@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_class_weights_are_cut_where_one_rank_has_all_classes(ranks, epsilon, by_kernels):
    """That rank cannot tell by their number that the others have none of them."""
    for cut in (True, False):
        more = {"weight": True, "sharded_weight": cut, "label_smoothing": epsilon}
        ranks.ask("loss", (6, 9), F64, by_kernels, sizes=[9, 0], world=2, **more)


def test_a_mode_of_torch_functions_keeps_the_group(ranks):
    """As `torch.set_default_device` is one."""
    ranks.ask("in_a_mode", world=2)


def test_class_weights_take_one_message(ranks):
    ranks.ask("sends_what_is_promised", world=2)


@pytest.mark.parametrize("by_kernels", WAYS)
@pytest.mark.parametrize("world", WORLDS)
def test_tokens_and_entropies(ranks, world, by_kernels):
    ranks.ask("tokens", (6, 13), F64, by_kernels=by_kernels, world=world)
    ranks.ask("tokens", (2, 3, 13), BF16, None, False, world=world, in_place=True)
    ranks.ask("tokens", (2, 3, 13), F32, 3, temperature=0.6, by_kernels=by_kernels, world=world)


def test_a_loss_launches_little(ranks):
    ranks.ask("launches_little", world=2)


def test_elements_may_lie_apart(ranks):
    ranks.ask("lying_apart", world=2)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_by_differences(ranks, name):
    ranks.ask("checked_by_differences", name, world=2)


def test_many_rows_go_in_blocks(ranks):
    ranks.ask("in_blocks", world=3)


PLACES = {
    "columns": ((2,), [Shard(1)], (5, 13), 1),
    "rows-of-columns": ((3,), [Shard(0)], (5, 13, 2), 0),
    "both": ((2, 2), [Shard(0), Shard(1)], (5, 7), -1),
    "one-replicated": ((2, 2), [Replicate(), Shard(2)], (5, 3, 3), -1),
    "rows-alone": ((2, 2), [Shard(0), Replicate()], (5, 3), -1),
    "an-empty-one": ((4,), [Shard(1)], (2, 3), -1),
}


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_a_dtensor_keeps_its_placement(ranks, name, places):
    mesh, placements, shape, dim = PLACES[places]
    world = torch.Size(mesh).numel()
    ranks.ask("placed", name, mesh, placements, shape, dim, world=world)


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "placed"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"reduction": "none"},
        {"reduction": "sum", "label_smoothing": 0.1},
        {"weight": True},
        {"weight": True, "label_smoothing": 0.1},
    ],
    ids=str,
)
def test_a_mean_is_over_all_rows_of_the_mesh(ranks, plain, more):
    ranks.ask("placed_loss", (2, 2), [Shard(0), Shard(1)], (5, 13), plain, **more)
    ranks.ask("placed_loss", (2, 2), [Replicate(), Shard(1)], (5, 3, 2), plain, **more)
    ranks.ask("placed_loss", (2, 2), [Shard(0), Replicate()], (5, 3), plain, **more)


def test_tokens_of_a_dtensor(ranks):
    ranks.ask("placed_tokens", (2, 2), [Shard(0), Shard(1)], (5, 13))


@pytest.mark.parametrize("on_mesh", [False, True], ids=["parts", "DTensor"])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_maps(ranks, name, on_mesh):
    ranks.ask("with_maps", name, on_mesh, world=3)


def test_partial_placements_are_reduced_first(ranks):
    ranks.ask("partial", world=2)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_rows_have_the_same_bits_in_any_company(ranks, name):
    ranks.ask("in_any_company", name)


def test_the_kernel_that_is_asked_for_computes_whole_rows_of_a_dtensor(ranks):
    ranks.ask("implementations_placed", world=2)


def test_what_is_refused(ranks):
    ranks.ask("refused")


def test_what_is_no_tensor_is_refused(ranks):
    ranks.ask("refuses_lists", world=2)


DISAGREEMENTS = "rows, dtype, function, dimension, with a gradient, smoothing of labels"
DISAGREEMENTS += ", vocabulary, size of it"


@pytest.mark.parametrize("what", DISAGREEMENTS.split(", "))
def test_a_disagreement_is_reported_on_every_rank(ranks, what):
    ranks.ask("disagree", what, world=3)


@pytest.mark.parametrize("places", [None, Shard(1), Shard(0), Replicate()], ids=str)
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp", "cross_entropy"])
def test_compiled_without_a_break(ranks, name, places):
    """A part of the rows, and DTensors."""
    ranks.ask("compiled", name, places and [places], world=2)


def test_words_of_another_call_are_noticed(ranks):
    ranks.ask("sends_other_words", world=2)


def test_without_other_ranks():
    with pytest.raises(TypeError, match="ProcessGroup"):
        triton_softmax.softmax(torch.ones(2), group=3)
    for function in (triton_softmax.softmax, triton_softmax.logsumexp):
        with pytest.raises(TypeError, match=r"the input must be a torch\.Tensor, not list"):
            function([1.0, 2.0], group=3)
    with pytest.raises(ValueError, match="a group's classes"):
        triton_softmax.cross_entropy(torch.ones(2, 3), torch.tensor([0, 1]), vocab_start=0)


def test_nobody_waits_for_ever(ranks):
    """The last test of the file, since these groups are of no use afterwards."""
    ranks.ask("changes_its_mind", world=3)
    with pytest.raises(Failed) as failed:
        ranks.ask("dies", world=2)
    ranks.broken = True
    assert str(failed.value).startswith("rank 1: EOFError")
    assert "rank 0" not in str(failed.value)
