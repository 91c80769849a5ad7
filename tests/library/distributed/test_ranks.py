"""Softmax and its loss on 1 to 8 ranks over gloo, each with a part of every row.

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
ANY_WORLD = pytest.mark.parametrize(
    "world, by_kernels", [*((world, True) for world in WORLDS), (3, False)]
)
"""Kernels on every number of ranks, and operators on one of them."""


@pytest.fixture(scope="module")
def ranks():
    with Ranks(4, "on_ranks") as ranks:
        yield ranks


@pytest.fixture(scope="module")
def eight():
    with Ranks(8, "on_ranks") as ranks:
        yield ranks


OF_A_KIND = {
    **dict.fromkeys(("in_a_mode", "lying_apart", "launches_little", "refuses_lists"), 2),
    "sends_what_is_promised": 2,
    **dict.fromkeys(("partial", "placed_out_of_order"), 2),
    **{
        "without_processors": 3,
        "selective": 3,
        "in_blocks": 3,
        "placed_probabilities": 4,
        "placed_tokens": 4,
        "refused": 4,
    },
}
"""Functions of `on_ranks` that are asked once, and of how many ranks."""


@pytest.mark.parametrize("name", OF_A_KIND)
def test_one_of_a_kind(ranks, name):
    ranks.ask(name, world=OF_A_KIND[name])


@ANY_WORLD
def test_softmax_and_gradient_are_those_of_the_whole(ranks, world, by_kernels):
    """One message of 8 bytes a row forward and one of 4 backward, in uneven parts."""
    ranks.ask("normalized", "softmax", (5, 13), -1, F64, by_kernels, world=world)
    ranks.ask("normalized", "log_softmax", (3, 6, 2), 1, F32, by_kernels, world=world)


@pytest.mark.parametrize(
    "name, most",
    [("softmax", 15), ("logsumexp", 15), ("cross_entropy", 26), ("token_logprobs", 25)],
)
def test_later_calls_enter_few_functions_of_few_files(ranks, name, most):
    ranks.ask("enters_few_functions", name, most, 10, world=2)


LOSSES_OF_ROWS = ["mean", "sum", "none", "weighted"]
INVARIANT = ["softmax", "tempered", "log_softmax", "logsumexp", *LOSSES_OF_ROWS]
INVARIANT += ["tokens", "several", "cooled", "by-rows", "both"]


@pytest.mark.parametrize("name", INVARIANT)
def test_the_same_bits_of_long_rows(name, eight):
    """Rows in chunks, of which the ranks send words: in 2, 4 and 8 parts, and as DTensors."""
    at = INVARIANT.index(name)
    world, dtype = [2, 4, 8][at % 3], [BF16, F32][at % 2]
    shape = (2 if name in (*LOSSES_OF_ROWS, "both") else 1, 16_384)
    if name == "softmax":  # a part has three chunks, one of them shorter
        shape = (1, 32_896)
    eight.ask("same_as_on_one", name, shape, dtype, world=world, context=at % 5 == 0)
    if name in ("softmax", "sum", "by-rows"):
        eight.ask("same_as_on_one", name, shape, dtype, world=2, mesh=(2,))
    if name != "both":
        eight.ask("same_as_on_one", name, (2, 16_384), dtype, world=2, apart=True)


@pytest.mark.parametrize("name", INVARIANT)
def test_the_same_bits_as_on_one_rank(ranks, name):
    """Equal parts of a row in one program, uneven ones, and DTensors: ranks gather whole rows."""
    ranks.ask("same_as_on_one", name, (3, 128), F32, world=2)
    ranks.ask("same_as_on_one", name, (3, 13), F32, [6, 0, 7], where=True, world=3)
    mesh = (2, 2) if name in ("softmax", "mean", "sum", "by-rows") else (2,)
    ranks.ask("same_as_on_one", name, (3, 64), F32, mesh=mesh, world=2 * len(mesh))
    if name in ("softmax", "logsumexp", "mean"):
        ranks.ask("compiled_as_on_one", name, world=2)


def test_the_same_bits_of_columns_and_of_capped_tokens(ranks):
    ranks.ask("columns_as_on_one", world=2)


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_16_bits(ranks, name, dtype):
    ranks.ask("normalized", name, (4, 9), -1, dtype, world=2)


def test_a_rank_may_have_nothing(ranks):
    """Three columns on four ranks; parts of sizes of one's own; no rows; one number."""
    ranks.ask("normalized", "softmax", (4, 3), -1, F64)
    ranks.ask("normalized", "log_softmax", (4, 9), -1, F64, sizes=[0, 8, 1, 0])
    ranks.ask("normalized", "softmax", (4, 9), -1, F64, sizes=[9, 0, 0, 0])
    ranks.ask("normalized", "log_softmax", (0, 9), -1, F64)
    ranks.ask("normalized", "softmax", (4,), -1, F64)
    ranks.ask("normalized", "log_softmax", (4, 0), -1, F64)


@pytest.mark.parametrize("by_kernels", WAYS)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_rows_that_hold_no_numbers(ranks, name, by_kernels):
    """The largest element on each rank in turn, parts of −∞ and NaN, a row of −∞, one of +∞."""
    rows = [[9.0 if i == j else 1.0 - j for j in range(4)] for i in range(4)]
    rows += [[-INF if i == j else float(j) for j in range(4)] for i in range(4)]
    rows += [[-INF, -INF, -INF, 2.0], [-INF] * 4, [1.0, NAN, 2.0, 3.0], [1.0, INF, 2.0, 3.0]]
    rows += [[1e4, 1e4 + 1, -1e4, 0.0], [-1e4, -1e4, -1e4, -1e4 + 2]]
    ranks.ask("normalized", name, (), -1, F64, by_kernels, values=rows)


@ANY_WORLD
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


@ANY_WORLD
def test_tokens_and_entropies(ranks, world, by_kernels):
    ranks.ask("tokens", (6, 13), F64, by_kernels=by_kernels, world=world)
    ranks.ask("tokens", (2, 3, 13), BF16, None, False, world=world, in_place=True)
    ranks.ask("tokens", (2, 3, 13), F32, 3, temperature=0.6, by_kernels=by_kernels, world=world)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_by_differences(ranks, name):
    ranks.ask("checked_by_differences", name, world=2)


PLACES = {
    "columns": ((2,), [Shard(1)], (5, 13), 1),
    "rows-of-columns": ((3,), [Shard(0)], (5, 13, 2), 0),
    "both": ((2, 2), [Shard(0), Shard(1)], (5, 7), -1),
    "one-replicated": ((2, 2), [Replicate(), Shard(2)], (5, 3, 3), -1),
    "rows-alone": ((2, 2), [Shard(0), Replicate()], (5, 3), -1),
    "an-empty-one": ((4,), [Shard(1)], (2, 3), -1),
}


@pytest.mark.parametrize(
    "name, places",
    [(name, each) for name in ("softmax", "logsumexp") for each in PLACES]
    + [("log_softmax", "both")],
)
def test_a_dtensor_keeps_its_placement(ranks, name, places):
    mesh, placements, shape, dim = PLACES[places]
    world = torch.Size(mesh).numel()
    ranks.ask("placed", name, mesh, placements, shape, dim, world=world)


@pytest.mark.parametrize(
    "more, plain",
    [
        ({}, True),
        ({}, False),
        ({"reduction": "none"}, False),
        ({"reduction": "sum", "label_smoothing": 0.1}, True),
        ({"weight": True}, True),
        ({"weight": True, "label_smoothing": 0.1}, False),
    ],
    ids=str,
)
def test_a_mean_is_over_all_rows_of_the_mesh(ranks, more, plain):
    """Targets and weights are plain tensors, or are placed."""
    ranks.ask("placed_loss", (2, 2), [Shard(0), Shard(1)], (5, 13), plain, **more)
    ranks.ask("placed_loss", (2, 2), [Replicate(), Shard(1)], (5, 3, 2), plain, **more)
    ranks.ask("placed_loss", (2, 2), [Shard(0), Replicate()], (5, 3), plain, **more)


@pytest.mark.parametrize("on_mesh", [False, True], ids=["parts", "DTensor"])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_modifiers(ranks, name, on_mesh):
    ranks.ask("with_maps", name, on_mesh, world=3)


@pytest.mark.parametrize("name", ["softmax", *FUNCTIONS[2:]])
def test_rows_have_the_same_bits_in_any_company(ranks, name):
    ranks.ask("in_any_company", name)


@pytest.mark.parametrize(
    "name, places",
    [(name, each) for name in FUNCTIONS[:4] for each in (None, Shard(1))]
    + [("token_logprobs", None), ("modified", None)]
    + [("softmax", Replicate()), ("logsumexp", Shard(0)), ("cross_entropy", Shard(0))],
    ids=str,
)
def test_compiled_without_a_break(ranks, name, places):
    """A part of the rows, and DTensors."""
    ranks.ask("compiled", name, places and [places], world=2)
    if places is None:
        ranks.ask("compiled", name, apart=True, world=2)


def test_what_a_part_may_not_be_is_refused_in_later_calls_too(ranks):
    ranks.ask("refused_whenever", world=2)


def test_without_other_ranks():
    with pytest.raises(TypeError, match="ProcessGroup"):
        triton_softmax.softmax(torch.ones(2), group=3)
    for function in (triton_softmax.softmax, triton_softmax.logsumexp):
        with pytest.raises(TypeError, match=r"the input must be a torch\.Tensor, not list"):
            function([1.0, 2.0], group=3)
    with pytest.raises(ValueError, match="a group's classes"):
        triton_softmax.cross_entropy(torch.ones(2, 3), torch.tensor([0, 1]), vocab_start=0)
    for function in (triton_softmax.cross_entropy, triton_softmax.token_logprobs):
        with pytest.raises(ValueError, match="a group's classes"):
            function(torch.ones(2, 3), torch.tensor([0, 1]), vocab_size=6)


def test_nobody_waits_for_ever():
    """In groups of their own, which are of no use afterwards."""
    with Ranks(2, "on_ranks") as ranks:
        with pytest.raises(Failed) as failed:
            ranks.ask("dies", 5)
        ranks.broken = True
    assert str(failed.value).startswith("rank 1: EOFError")
    assert "rank 0" not in str(failed.value)
