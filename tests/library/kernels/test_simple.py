"""Packed rows in twenty lines, and split rows in forty: right against float64, whichever rows
share a program and whoever computes a chunk."""

from functools import partial

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.errors import InterpreterError

from kernel_cases import DEVICE, INTERPRETED, quiet
from softmax_tutorial import packed_rows_simple, split_rows_simple

pytestmark = quiet
INF, NAN = float("inf"), float("nan")
KERNELS = {
    "packed": lambda block: partial(packed_rows_simple.softmax_forward, block_rows=block),
    "split": lambda block: partial(split_rows_simple.softmax_forward, block=block, max_polls=2),
}


@pytest.mark.parametrize(
    "name, block, n_rows, n_cols",
    [
        *(("packed", 2, 5, 3), ("packed", 4, 7, 33), ("packed", None, 64, 8)),
        *(("split", 32, 3, 100), ("split", 64, 1, 64), ("split", 8, 2, 33)),
    ],
)
def test_against_float64(name, block, n_rows, n_cols):
    x = 4 * torch.randn(n_rows, n_cols, device=DEVICE)
    y = KERNELS[name](block)(x)
    torch.testing.assert_close(y.double(), torch.softmax(x.double(), 1), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", KERNELS)
def test_what_is_no_number_stays_in_its_row(name):
    """Of four rows that share a tile, and of three chunks in which one is −∞: its word is not
    zero."""
    x = torch.zeros(4, 12, device=DEVICE)
    x[0, 4:8] = -INF
    x[1] = -INF
    x[2, 9] = NAN
    x[3, 1] = INF
    torch.testing.assert_close(KERNELS[name](4)(x), torch.softmax(x, dim=1), equal_nan=True)


@pytest.mark.parametrize("name", KERNELS)
def test_a_matrix_with_gaps_is_refused(name):
    with pytest.raises(ValueError, match="contiguous"):
        KERNELS[name](4)(torch.zeros(4, 8)[:, :4])


def test_nothing_is_written_below_the_last_row():
    """The second program has lanes for two rows and only one row."""
    x = torch.randn(4, 5, device=DEVICE)
    y = torch.full_like(x, 7.0)
    kernel = packed_rows_simple.packed_rows_simple_kernel
    kernel[(2,)](x, y, 3, 5, BLOCK_ROWS=2, BLOCK_COLS=8)
    torch.testing.assert_close(y[:3], torch.softmax(x, dim=1)[:3])
    assert (y[3] == 7).all()


def test_no_word_is_left_out():
    """Every program publishes before it looks, so all words are there at the end, and none is the
    word that says *not there yet*."""
    x = torch.randn(2, 40, device=DEVICE)
    words = torch.zeros(10, dtype=torch.int64, device=DEVICE)
    kernel = split_rows_simple.split_rows_simple_kernel
    kernel[(10,)](x, torch.empty_like(x), words, 40, 5, 0, BLOCK=8)
    assert (words != 0).all()


@pytest.mark.skipif(not INTERPRETED, reason="the interpreter alone runs one program after another")
def test_a_program_that_runs_first_does_without_partners():
    """Program 0 finds no word but its own, and is right nevertheless."""
    x = torch.randn(1, 40)
    words = torch.zeros(5, dtype=torch.int64)
    y = torch.full_like(x, NAN)
    kernel = split_rows_simple.split_rows_simple_kernel
    kernel[(1,)](x, y, words, 40, 5, 3, BLOCK=8)
    torch.testing.assert_close(y[:, :8], torch.softmax(x, dim=1)[:, :8])
    assert y[:, 8:].isnan().all() and (words != 0).tolist() == [True, False, False, False, False]


@triton.jit
def add_kernel(x_ptr, ONE: tl.constexpr):
    tl.store(x_ptr, tl.load(x_ptr) + ONE)


@pytest.mark.skipif(not INTERPRETED, reason="compiled kernels do not check")
@pytest.mark.parametrize("dtype, most", [(torch.int32, 2**31 - 1), (torch.int8, 127)])
def test_the_interpreter_finds_integers_that_overflow(dtype, most):
    """Though `interpreted` has NumPy look for them."""
    x = torch.tensor([most - 1], dtype=dtype)
    add_kernel[(1,)](x, 1)
    assert x.item() == most
    with pytest.raises(InterpreterError, match="overflow"):
        add_kernel[(1,)](x, 1)
