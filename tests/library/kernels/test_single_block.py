"""What is particular to a single block: the heuristic, its thresholds, and the longest row."""

import pytest
import torch

from kernel_cases import DEVICE, assert_near, expected_backward, expected_forward, matrix
from softmax_tutorial import single_block


@pytest.mark.parametrize(
    "block_size, num_warps",
    [
        (1, 4),
        (1024, 4),
        (2048, 8),
        (4096, 8),
        (8192, 16),
        (16384, 16),
        (32768, 32),
        (65536, 32),
        (1 << 20, 32),
    ],
)
def test_num_warps_for_block(block_size, num_warps):
    assert single_block.num_warps_for_block(block_size) == num_warps


@pytest.mark.parametrize("threshold", [2048, 32768])
@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_the_borders_of_the_heuristic(threshold, offset):
    x = matrix(1, threshold + offset, torch.float32)
    y = single_block.softmax_forward(x)
    assert_near(y, expected_forward(x))
    assert_near(single_block.softmax_backward(y, x), expected_backward(y, x))


def test_256x512_through_a_cross_entropy():
    """The validation of the source: forward against torch.softmax, backward through a cross-entropy
    loss."""
    x = matrix(256, 512, torch.float32, scale=1.0).contiguous().requires_grad_()
    target = torch.arange(256, device=DEVICE) * 2
    torch.nn.functional.cross_entropy(x, target).backward()
    y = single_block.softmax_forward(x.detach())
    assert_near(y, torch.softmax(x.detach(), dim=1))
    dy = torch.zeros_like(y)
    dy[torch.arange(256), target] = -1 / (256 * y[torch.arange(256), target])
    assert_near(single_block.softmax_backward(y, dy), x.grad, atol=1e-8)


@pytest.mark.parametrize("n_cols", [single_block.MAX_COLS + 1, 1 << 22])
def test_longer_rows_are_refused(n_cols):
    x = torch.empty(1, n_cols, device=DEVICE)
    with pytest.raises(ValueError, match="at most 1,048,576 columns"):
        single_block.softmax_forward(x)
    with pytest.raises(ValueError, match="at most 1,048,576 columns"):
        single_block.softmax_backward(x, x)


def test_the_longest_row():
    x = matrix(1, single_block.MAX_COLS, torch.float32)
    assert_near(single_block.softmax_forward(x), expected_forward(x), atol=1e-9)
