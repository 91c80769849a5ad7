"""Packed rows in twenty lines: right against float64, whichever rows share a program."""

import pytest
import torch

from kernel_cases import INTERPRETED, quiet
from softmax_tutorial import packed_rows_simple

pytestmark = quiet
DEVICE = "cpu" if INTERPRETED else "cuda"


@pytest.mark.parametrize("n_rows, n_cols, block_rows", [(5, 3, 2), (7, 33, 4), (64, 8, None)])
def test_against_float64(n_rows, n_cols, block_rows):
    torch.manual_seed(0)
    x = 4 * torch.randn(n_rows, n_cols, device=DEVICE)
    y = packed_rows_simple.softmax_forward(x, block_rows=block_rows)
    expected = torch.softmax(x.double(), dim=1)
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-7)


def test_a_row_is_not_touched_by_those_in_its_tile():
    """A row of −∞ and one with a NaN become NaN, and the other rows of the tile do not."""
    inf, nan = float("inf"), float("nan")
    x = torch.zeros(4, 5, device=DEVICE)
    x[0] = -inf
    x[1, 3] = nan
    x[2, 1:] = -inf
    y = packed_rows_simple.softmax_forward(x, block_rows=4)
    torch.testing.assert_close(y, torch.softmax(x, dim=1), equal_nan=True)


def test_nothing_is_written_below_the_last_row():
    """The second program has lanes for two rows and only one row."""
    x = torch.randn(4, 5, device=DEVICE)
    y = torch.full_like(x, 7.0)
    kernel = packed_rows_simple.packed_rows_simple_kernel
    kernel[(2,)](x, y, 3, 5, BLOCK_ROWS=2, BLOCK_COLS=8)
    torch.testing.assert_close(y[:3], torch.softmax(x, dim=1)[:3])
    assert (y[3] == 7).all()


def test_a_matrix_with_gaps_is_refused():
    with pytest.raises(ValueError, match="contiguous"):
        packed_rows_simple.softmax_forward(torch.zeros(4, 8)[:, :4])
