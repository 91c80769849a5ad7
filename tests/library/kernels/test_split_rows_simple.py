"""Split rows in forty lines: right against float64, whoever computes a chunk."""

import pytest
import torch

from kernel_cases import INTERPRETED, quiet
from softmax_tutorial import split_rows_simple

pytestmark = quiet
DEVICE = "cpu" if INTERPRETED else "cuda"


@pytest.mark.parametrize("n_rows, n_cols, block", [(3, 100, 32), (1, 64, 64), (2, 33, 8)])
def test_against_float64(n_rows, n_cols, block):
    torch.manual_seed(0)
    x = 4 * torch.randn(n_rows, n_cols, device=DEVICE)
    y = split_rows_simple.softmax_forward(x, block=block, max_polls=2)
    expected = torch.softmax(x.double(), dim=1)
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-7)


def test_the_corners_of_the_monoid():
    """A chunk of −∞ has a word that is not zero; a NaN reaches all chunks of its row and no other
    row."""
    inf, nan = float("inf"), float("nan")
    x = torch.zeros(4, 12, device=DEVICE)
    x[0, 4:8] = -inf
    x[1] = -inf
    x[2, 9] = nan
    x[3, 1] = inf
    y = split_rows_simple.softmax_forward(x, block=4, max_polls=1)
    torch.testing.assert_close(y, torch.softmax(x, dim=1), equal_nan=True)


def test_no_word_is_left_out():
    """Every program publishes before it looks, so all words are there at the end, and none is the
    word that says *not there yet*."""
    x = torch.randn(2, 40, device=DEVICE)
    words = torch.zeros(10, dtype=torch.int64, device=DEVICE)
    y = torch.empty_like(x)
    kernel = split_rows_simple.split_rows_simple_kernel
    kernel[(10,)](x, y, words, 40, 5, 0, BLOCK=8)
    assert (words != 0).all()


@pytest.mark.skipif(not INTERPRETED, reason="the interpreter alone runs one program after another")
def test_a_program_that_runs_first_does_without_partners():
    """Program 0 finds no word but its own, and is right nevertheless."""
    x = torch.randn(1, 40)
    words = torch.zeros(5, dtype=torch.int64)
    y = torch.full_like(x, float("nan"))
    kernel = split_rows_simple.split_rows_simple_kernel
    kernel[(1,)](x, y, words, 40, 5, 3, BLOCK=8)
    torch.testing.assert_close(y[:, :8], torch.softmax(x, dim=1)[:, :8])
    assert y[:, 8:].isnan().all() and (words != 0).tolist() == [True, False, False, False, False]


def test_a_matrix_with_gaps_is_refused():
    with pytest.raises(ValueError, match="contiguous"):
        split_rows_simple.softmax_forward(torch.zeros(4, 8)[:, :4])
