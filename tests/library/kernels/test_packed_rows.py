"""Several short rows per program, read in vectors where rows allow it."""

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


def run(operation, inputs, *, rows=4, vector=1, **options):
    n_rows, n_cols = inputs[0].shape
    how = RowTile(rows, max(16, triton.next_power_of_2(n_cols)), vector, barrier=False)
    return run_rows(operation, Choice("packed_rows", how, num_warps=4), inputs, **options)


@EVERY_OPERATION
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_name)
@pytest.mark.parametrize(
    "n_rows, n_cols",
    [(5, n_cols) for n_cols in (1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 256, 257)]
    + [(1, n_cols) for n_cols in (1, 8, 33)],
)
def test_every_operation(n_rows, n_cols, dtype, operation):
    inputs = operands(operation, n_rows, n_cols, dtype)
    assert_result(operation, run(operation, inputs, gap=2), inputs)


@EVERY_OPERATION
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_name)
def test_vectors_change_nothing(dtype, operation):
    vector = 16 // dtype.itemsize
    inputs = operands(operation, 5, 3 * vector, dtype, gaps=(vector, 0))
    assert torch.equal(run(operation, inputs, vector=vector), run(operation, inputs))


@EVERY_OPERATION
@pytest.mark.parametrize("rows", [1, 2, 16])
def test_rows_per_program_change_nothing(rows, operation):
    inputs = operands(operation, 17, 33, torch.float32)
    assert torch.equal(run(operation, inputs, rows=rows), run(operation, inputs, rows=4))


@EVERY_OPERATION
def test_hostile_rows_as_torch(operation):
    inputs = hostile_operands(operation, hostile(3, (0, 1, 2)))
    assert_as_torch(operation, run(operation, inputs), inputs)


def run_in_tiles(operation, inputs, tiles, *, vector=1, barrier=False):
    """Two rows per program, in tiles of 16 columns."""
    how = RowTile(2, 16, vector, barrier, tiles)
    return run_rows(operation, Choice("packed_rows", how, num_warps=4), inputs)


@EVERY_OPERATION
@pytest.mark.parametrize("tiles", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("more", [-1, 0, 1, 15, 16])
def test_tiles_side_by_side(more, tiles, operation):
    """The last tile may have any number of columns, and none."""
    inputs = operands(operation, 3, max(1, 16 * (tiles - 1) + more), torch.float32)
    assert_result(operation, run_in_tiles(operation, inputs, tiles), inputs)


@EVERY_OPERATION
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_name)
def test_tiles_in_vectors(dtype, operation):
    vector = 16 // dtype.itemsize
    inputs = operands(operation, 3, 32 + vector, dtype, gaps=(vector, 0))
    result = run_in_tiles(operation, inputs, 3, vector=vector)
    assert_result(operation, result, inputs)
    assert torch.equal(result, run_in_tiles(operation, inputs, 3))


@EVERY_OPERATION
def test_hostile_rows_in_tiles_as_torch(operation):
    """Tiles that hold −∞ alone beside others that hold what is hostile."""
    inputs = hostile_operands(operation, hostile(40, (0, 15, 33)))
    assert_as_torch(operation, run_in_tiles(operation, inputs, 3), inputs)


@pytest.mark.parametrize("offset", [1e4, -1e4])
def test_a_large_offset_costs_log_sum_exp_its_own_rounding(offset):
    x = matrix(5, 257, torch.float32) + offset
    assert_result("logsumexp", run("logsumexp", (x,)), (x,))


@pytest.mark.parametrize("dtypes", [(torch.float16, torch.float32), (torch.float32, torch.float16)])
@EVERY_OPERATION
def test_input_and_result_of_different_dtypes(dtypes, operation):
    in_dtype, out_dtype = dtypes
    inputs = operands(operation, 5, 33, in_dtype)
    result = run(operation, inputs, out_dtype=out_dtype)
    assert result.dtype == out_dtype
    rounded = as_computed(operation, inputs, out_dtype)
    assert_near(result, expected(operation, rounded), dtype=torch.float16, atol=2e-3)


@EVERY_OPERATION
@pytest.mark.skipif(not INTERPRETED, reason="the interpreter records addresses")
@pytest.mark.parametrize("n_cols", [1, 5, 16, 33])
def test_every_element_is_written_once_and_nothing_else_read(n_cols, operation):
    inputs = operands(operation, 5, n_cols, torch.float16)
    for kernel in (functools.partial(run, gap=2), functools.partial(run_in_tiles, tiles=3)):
        with watch_accesses() as accesses:
            result = kernel(operation, inputs)
        accesses.assert_reads_only(*inputs)
        accesses.assert_writes_once(result)
