"""Rows that start anywhere: a head, a body of whole vectors, a tail."""

import functools

import pytest
import torch
import triton

from kernel_cases import (
    DTYPES,
    EVERY_OPERATION,
    INTERPRETED,
    as_computed,
    assert_as_torch,
    assert_near,
    assert_result,
    dtype_name,
    expected,
    hostile,
    hostile_operands,
    matrix,
    operands,
    quiet,
    run_rows,
    watch_accesses,
)
from triton_softmax.choose import Choice
from triton_softmax.choose.constants import RowTile

pytestmark = quiet


def run(operation, inputs, *, rows=8, vector=None, **options):
    n_rows, n_cols = inputs[0].shape
    vector = vector or 16 // inputs[0].dtype.itemsize
    block_cols = max(16, triton.next_power_of_2(n_cols // vector * vector))
    how = RowTile(rows, block_cols, vector, barrier=False)
    return run_rows(operation, Choice("aligned_rows", how, num_warps=4), inputs, **options)


@EVERY_OPERATION
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_name)
@pytest.mark.parametrize(
    "n_rows, n_cols",
    [(9, n_cols) for n_cols in (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 257)]
    + [(1, n_cols) for n_cols in (1, 8, 33)],
)
def test_every_operation(n_rows, n_cols, dtype, operation):
    """Nine rows start at every distance from a vector."""
    vector = 16 // dtype.itemsize
    inputs = operands(operation, n_rows, n_cols, dtype, gaps=(0, 2 * vector))
    assert_result(operation, run(operation, inputs, gap=vector), inputs)


def run_in_tiles(operation, inputs, tiles, **options):
    """Two rows per program, in tiles of 16 columns."""
    how = RowTile(2, 16, 16 // inputs[0].dtype.itemsize, False, tiles)
    return run_rows(operation, Choice("aligned_rows", how, num_warps=4), inputs, **options)


@EVERY_OPERATION
@pytest.mark.parametrize("tiles", [1, 3, 5, 8])
@pytest.mark.parametrize("more", [-1, 0, 1, 15, 16])
def test_tiles_side_by_side(more, tiles, operation):
    """Nine rows, so that bodies of several lengths end in the last tile, or before it."""
    inputs = operands(operation, 9, max(1, 16 * (tiles - 1) + more), torch.float32, gaps=(0, 8))
    assert_result(operation, run_in_tiles(operation, inputs, tiles, gap=4), inputs)


@EVERY_OPERATION
@pytest.mark.skipif(not INTERPRETED, reason="the interpreter records addresses")
@pytest.mark.parametrize("n_cols", [1, 5, 8, 13, 24, 33])
def test_every_element_is_written_once_and_nothing_else_read(n_cols, operation):
    inputs = operands(operation, 9, n_cols, torch.float16, gaps=(8, 16))
    for kernel in (run, functools.partial(run_in_tiles, tiles=3)):
        with watch_accesses() as accesses:
            result = kernel(operation, inputs, gap=24)
        accesses.assert_reads_only(*inputs)
        accesses.assert_writes_once(result)


@EVERY_OPERATION
@pytest.mark.parametrize("rows", [1, 2, 16])
def test_rows_per_program_change_nothing(rows, operation):
    inputs = operands(operation, 17, 33, torch.float32, gaps=(0, 4))
    assert torch.equal(run(operation, inputs, rows=rows), run(operation, inputs))


@pytest.mark.parametrize("operation", ["softmax_backward", "log_softmax_backward"])
def test_a_row_read_again_and_again(operation):
    """A stride of zero in dy, in step with rows that are a multiple of a vector apart."""
    y, dy = operands(operation, 4, 40, torch.float32, gaps=(0, 0))
    inputs = (y, dy[:1].expand(4, 40))
    assert_result(operation, run(operation, inputs), inputs)


@EVERY_OPERATION
@pytest.mark.parametrize("places", [(0, 3, 8), (0, 1, 2), (4, 5, 7), (8, 9, 10)], ids=str)
def test_hostile_rows_as_torch(places, operation):
    """Rows of eleven start at every distance from a vector, so that head, body and tail hold each
    of the three elements in some of them."""
    inputs = hostile_operands(operation, hostile(11, places))
    assert_as_torch(operation, run(operation, inputs), inputs)


@pytest.mark.parametrize("offset", [1e4, -1e4])
def test_a_large_offset_costs_log_sum_exp_its_own_rounding(offset):
    x = matrix(9, 257, torch.float32) + offset
    assert_result("logsumexp", run("logsumexp", (x,)), (x,))


@pytest.mark.parametrize("dtypes", [(torch.float16, torch.float32), (torch.float32, torch.float16)])
@EVERY_OPERATION
def test_input_and_result_of_different_dtypes(dtypes, operation):
    """In step for the narrower of the two, whose vector has more elements."""
    in_dtype, out_dtype = dtypes
    inputs = operands(operation, 9, 33, in_dtype, gaps=(7, 15))
    vector = {"vector": 8} if out_dtype.itemsize == 2 else {}
    result = run(operation, inputs, gap=23, out_dtype=out_dtype, **vector)
    assert result.dtype == out_dtype
    rounded = as_computed(operation, inputs, out_dtype)
    assert_near(result, expected(operation, rounded), dtype=torch.float16, atol=2e-3)
