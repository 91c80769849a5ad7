"""What is particular to three loops: tiles of rows by columns."""

import pytest
import torch

from kernel_cases import assert_near, expected_forward, matrix, quiet
from softmax_tutorial import three_loops, two_loops

pytestmark = quiet


@pytest.mark.parametrize("block_rows", [1, 2, 16])
@pytest.mark.parametrize("block_cols", [8, 64])
def test_any_tile(block_rows, block_cols):
    x = matrix(17, 50, torch.float32, gap=3)
    assert_near(
        three_loops.softmax_forward(x, block_rows=block_rows, block_cols=block_cols),
        expected_forward(x),
    )


def test_the_running_maximum_starts_at_minus_infinity():
    """Started at 0, as the puzzle's solutions do it, this row is 0/0."""
    x = torch.tensor([[-1000.0, -1001.0]])
    y = three_loops.softmax_forward(x)
    assert_near(y, torch.tensor([[0.7311, 0.2689]]), atol=5e-5)
    m = torch.zeros(())
    assert torch.isnan((x - m).exp() / (x - m).exp().sum()).all()


def test_the_backward_pass_is_that_of_two_loops():
    assert three_loops.softmax_backward is two_loops.softmax_backward
