"""A rank is a chunk: every function on parts of rows of any size, over gloo, by kernels."""

from __future__ import annotations

import pytest
import torch

from on_ranks import PARTS
from ranks import Ranks


@pytest.fixture(scope="module")
def ranks():
    with Ranks(3, "on_ranks") as ranks:
        yield ranks


SIZES = {
    "equal": [5000, 5000],
    "unequal": [3000, 7001],
    "one-short": [700, 3000],
    "one-column": [1, 4096],
    "empty": [0, 5000],
    "short": [30, 41],
    "three": [2100, 0, 1300],
}


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("name", PARTS)
def test_parts_of_any_size(ranks, name, sizes):
    given = SIZES[sizes]
    dtype = torch.bfloat16 if sizes == "one-short" else torch.float32
    ranks.ask("in_parts", name, given, dtype, world=len(given))


@pytest.mark.parametrize(
    "n, dtype", [(9001, torch.float32), (40, torch.bfloat16), (9, torch.float64)]
)
def test_kernels_of_a_loss_share_memory(ranks, n, dtype):
    for rows in (5, 8):
        ranks.ask("loss_by_addresses", rows, n, dtype, world=2)
        smoothed = {"reduction": "none", "label_smoothing": 0.1}
        ranks.ask("loss_by_addresses", rows, n, dtype, world=2, **smoothed)


@pytest.mark.parametrize("name", PARTS)
def test_parts_in_float64(ranks, name):
    ranks.ask("in_parts", name, [2500, 2400], torch.float64, world=2)
