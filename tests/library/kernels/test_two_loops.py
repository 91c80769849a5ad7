"""What is particular to two loops: the online recurrence over tiles, and the tuner."""

import pytest
import torch
import triton

from kernel_cases import (
    INTERPRETED,
    assert_near,
    expected_backward,
    expected_forward,
    matrix,
    quiet,
)
from softmax_tutorial import two_loops

pytestmark = quiet


@pytest.mark.parametrize("log", [False, True], ids=["softmax", "log"])
def test_rows_of_781(log):
    """Enough rows to fill one tile and begin another."""
    x = matrix(67, 781, torch.float32)
    y = two_loops.softmax_forward(x, log=log, block_rows=64, block_cols=256)
    assert_near(y, expected_forward(x, log=log))
    dy = matrix(67, 781, torch.float32, seed=1)
    dx = two_loops.softmax_backward(y, dy, log=log, block_rows=64, block_cols=256)
    assert_near(dx, expected_backward(y, dy, log=log), atol=1e-4 if log else 2e-6)


@pytest.mark.parametrize("order", ["rising", "falling"])
def test_the_maximum_in_every_tile_or_only_in_the_first(order):
    x = torch.linspace(-300, 300, 1000)[None, :].contiguous()
    x = x if order == "rising" else x.flip(1).contiguous()
    assert_near(two_loops.softmax_forward(x, block_cols=16), expected_forward(x))


@pytest.mark.parametrize("block_cols", [256, 1024, 8192])
@pytest.mark.parametrize("n_cols", [257, 4097])
def test_every_tile_of_the_tuner(block_cols, n_cols):
    x = matrix(2, n_cols, torch.float32)
    y = two_loops.softmax_forward(x, block_cols=block_cols)
    assert_near(y, expected_forward(x))
    assert_near(two_loops.softmax_backward(y, x, block_cols=block_cols), expected_backward(y, x))


def test_the_tuning_space():
    space = {(config.kwargs["BLOCK_COLS"], config.num_warps) for config in two_loops.tuning_space()}
    assert space == {
        (cols, warps) for cols in (256, 512, 1024, 2048, 4096, 8192) for warps in (2, 4, 8, 16)
    }
    assert len(two_loops.CONFIGS) == (1 if INTERPRETED else 24)


@pytest.mark.parametrize(
    "kernel",
    [two_loops.softmax_forward_two_loops_kernel, two_loops.softmax_backward_two_loops_kernel],
    ids=["forward", "backward"],
)
def test_the_tuner_is_keyed_on_the_number_of_columns(kernel):
    assert isinstance(kernel, triton.runtime.Autotuner)
    assert kernel.keys == ["n_cols"]
