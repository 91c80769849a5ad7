"""What holds for every geometry: any operation is right against float64 at every border, for every
dtype and every hostile row, and touches nothing but its operands.

Tiles and chunks are smaller than any that are chosen, so that few elements make several of them.
What is particular to a geometry is tested in a file of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
import triton

from kernel_cases import (
    DEVICE,
    EVERY_OPERATION,
    INF,
    INTERPRETED,
    NAN,
    OPERATIONS,
    as_computed,
    assert_as_torch,
    assert_near,
    assert_result,
    expected,
    hostile,
    hostile_operands,
    matrix,
    operands,
    quiet,
    run_columns,
    run_rows,
    watch_accesses,
)
from triton_softmax.config import Choice
from triton_softmax.config.space import (
    RowTile,
    SplitRows,
    SplitStrided,
    StridedTile,
    TwoPass,
)

pytestmark = quiet
Inputs = tuple[torch.Tensor, ...]
CHUNK = 16
LANES = 1 if INTERPRETED else 128
"""On a GPU every thread that polls needs a word of its own."""


def whole(n_cols: int) -> int:
    return max(16, triton.next_power_of_2(n_cols))


def packed_rows(n_cols: int, vector: int, tiles: int = 1, rows: int = 4) -> Choice:
    how = RowTile(rows, 16 if tiles > 1 else whole(n_cols), 1, False, tiles)
    return Choice("packed_rows", how, 4)


def aligned_rows(n_cols: int, vector: int, tiles: int = 1, rows: int = 4) -> Choice:
    body = n_cols // vector * vector
    how = RowTile(rows, 16 if tiles > 1 else whole(body), vector, False, tiles, edges=True)
    return Choice("aligned_rows", how, 4)


def split_rows(n_cols: int, vector: int, depth: int = 0, two_launches: bool = False) -> Choice:
    n_chunks = triton.cdiv(n_cols, CHUNK)
    words = max(triton.next_power_of_2(n_chunks), LANES)
    how = SplitRows(
        block=CHUNK,
        vector=vector,
        edges=True,
        pairs=False,
        barrier=False,
        keep_terms=False,
        depth=depth,
        wait=not INTERPRETED and not two_launches,
        backoff=0,
        publish=True,
        write=True,
        words=words,
        polls=max(1, words // 128),
    )
    return Choice(
        "split_rows", how, 4, n_chunks=n_chunks, chunk_cols=CHUNK, two_launches=two_launches
    )


def strided(n_cols: int, vector: int) -> Choice:
    return Choice("strided", StridedTile(whole(n_cols), 4, 1, False, False), 4)


def split_strided(n_cols: int, vector: int) -> Choice:
    n_chunks = triton.cdiv(n_cols, CHUNK)
    chunks = max(triton.next_power_of_2(n_chunks), LANES // 4)
    polls = max(1, chunks * 4 // 128)
    how = SplitStrided(CHUNK, 4, 1, False, False, wait=not INTERPRETED, chunks=chunks, polls=polls)
    return Choice("split_strided", how, 4, n_chunks=n_chunks)


def two_pass(n_cols: int, vector: int, two_launches: bool = False) -> Choice:
    chunk = CHUNK if two_launches else triton.cdiv(n_cols, CHUNK) * CHUNK
    n_chunks = triton.cdiv(n_cols, chunk)
    how = TwoPass(CHUNK // 2, 4, 1, False, publish=True, write=True)
    return Choice(
        "two_pass", how, 4, n_chunks=n_chunks, chunk_cols=chunk, two_launches=n_chunks > 1
    )


class Form(NamedTuple):
    """A geometry in one of its forms; called with inputs that are laid out for it."""

    choose: Callable[..., Choice]
    """From the columns, the elements of a vector, and the options."""
    options: dict = {}
    float64: bool = True
    """Whether it takes float64, whose summaries do not fit the words that programs exchange."""

    @property
    def by_columns(self) -> bool:
        return self.choose in (strided, split_strided, two_pass)

    def lay_out(self, inputs: Inputs) -> Inputs:
        """Rows as they are, or as columns whose elements lie apart, amid NaN."""

        def columns(x: torch.Tensor) -> torch.Tensor:
            return (matrix(*x.T.shape, x.dtype, gap=3).copy_(x.T) if x.dim() > 1 else x)[None]

        return tuple(map(columns, inputs)) if self.by_columns else inputs

    def __call__(
        self,
        operation: str,
        inputs: Inputs,
        *,
        out_dtype: torch.dtype | None = None,
        words: torch.Tensor | None = None,
        **options,
    ) -> torch.Tensor:
        """The result, a row of it for each row."""
        x, n_cols = inputs[0], inputs[0].shape[1]
        out_dtype = out_dtype or x.dtype
        vector = 16 // min(x.element_size(), out_dtype.itemsize)
        choice = self.choose(n_cols, vector, **{**self.options, **options})
        if not self.by_columns:
            gap = x.stride(0) - n_cols + vector  # in step with x
            return run_rows(operation, choice, inputs, gap=gap, words=words, out_dtype=out_dtype)
        shape = (1, x.shape[2]) if OPERATIONS[operation].reduces else x.shape
        out = torch.full(shape, NAN, dtype=out_dtype, device=DEVICE)
        result = run_columns(operation, choice, inputs, out=out, words=words)[0]
        return result.T if result.dim() > 1 else result


FORMS = {
    "packed_rows": Form(packed_rows),
    "packed_rows-tiles": Form(packed_rows, {"tiles": 3, "rows": 2}),
    "aligned_rows": Form(aligned_rows),
    "aligned_rows-tiles": Form(aligned_rows, {"tiles": 3, "rows": 2}),
    "split_rows": Form(split_rows, float64=False),
    "split_rows-pipeline": Form(split_rows, {"depth": 1}, float64=False),
    "split_rows-two-launches": Form(split_rows, {"two_launches": True}, float64=False),
    "strided": Form(strided),
    "split_strided": Form(split_strided, float64=False),
    "two_pass": Form(two_pass),
    "two_pass-two-launches": Form(two_pass, {"two_launches": True}),
}
EVERY_FORM = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def rows_of(operation: str, n_rows: int, n_cols: int, dtype=torch.float32) -> Inputs:
    """Inputs whose rows start at different distances from a vector, in step with each other."""
    return operands(operation, n_rows, n_cols, dtype, gaps=(0, 2 * (16 // dtype.itemsize)))


@pytest.mark.parametrize(
    "operation, n_cols",
    [
        *((operation, 33) for operation in OPERATIONS),
        *(("softmax", 1), ("softmax_backward", 48), ("logsumexp", 48), ("logsumexp_backward", 1)),
    ],
)
@EVERY_FORM
def test_every_operation(form, operation, n_cols):
    """One column, one more than whole chunks and tiles, and whole ones."""
    inputs = rows_of(operation, 3, n_cols)
    assert_result(operation, form(operation, form.lay_out(inputs)), inputs)


@pytest.mark.parametrize(
    "operation, dtype",
    [
        ("softmax_backward", torch.float16),
        ("logsumexp", torch.bfloat16),
        ("softmax_backward", torch.float64),
    ],
    ids=str,
)
@EVERY_FORM
def test_every_dtype(form, operation, dtype):
    if dtype == torch.float64 and not form.float64:
        pytest.skip("does not take float64")
    inputs = rows_of(operation, 3, 43, dtype)
    assert_result(operation, form(operation, form.lay_out(inputs)), inputs)


@EVERY_OPERATION
@EVERY_FORM
def test_hostile_rows_as_torch(form, operation):
    """An element in each of three tiles or chunks, all else −∞. Rows of 43 start at every distance
    from a vector."""
    inputs = hostile_operands(operation, hostile(43, (0, 20, 42)))
    assert_as_torch(operation, form(operation, form.lay_out(inputs)), inputs)


@pytest.mark.parametrize("operation", ["softmax", "logsumexp"])
@EVERY_FORM
def test_summaries_of_chunks(form, operation):
    """A maximum that rises, one that falls, and one far from the row's; chunks that are all −∞; an
    offset, which costs log-sum-exp its own rounding and nothing else."""
    rising = torch.arange(48.0) * 3
    x = torch.stack([rising, rising.flip(0), rising.roll(20), rising + 1e4, rising - 1e4])
    x[1, 16:32], x[2, :20], x[3, :16] = -INF, -INF, -300.0
    inputs = (x.to(DEVICE),)
    assert_result(operation, form(operation, form.lay_out(inputs)), inputs)


@pytest.mark.parametrize(
    "operation, in_dtype, out_dtype",
    [
        ("softmax", torch.float16, torch.float32),
        ("log_softmax_backward", torch.float32, torch.float16),
        ("logsumexp", torch.float16, torch.float32),
    ],
    ids=str,
)
@EVERY_FORM
def test_input_and_result_of_different_dtypes(form, operation, in_dtype, out_dtype):
    """In step for the narrower of the two, whose vector has more elements."""
    inputs = operands(operation, 3, 33, in_dtype, gaps=(7, 15))
    result = form(operation, form.lay_out(inputs), out_dtype=out_dtype)
    assert result.dtype == out_dtype
    rounded = as_computed(operation, inputs, out_dtype)
    assert_near(result, expected(operation, rounded), dtype=torch.float16, atol=2e-3)


@pytest.mark.parametrize(
    "operation", ["softmax", "softmax_backward", "logsumexp", "logsumexp_backward"]
)
@EVERY_FORM
@pytest.mark.skipif(not INTERPRETED, reason="the interpreter records addresses")
def test_every_element_is_written_once_and_nothing_else_read(form, operation):
    inputs = form.lay_out(operands(operation, 2, 43, torch.float16, gaps=(8, 16)))
    words = torch.zeros(256, dtype=torch.int64)
    exchanges = form.choose in (split_rows, split_strided, two_pass)
    with watch_accesses() as accesses:
        result = form(operation, inputs, words=words if exchanges else None)
    numbers = words.view(torch.float32)  # of which a word holds two, or that stand alone
    accesses.assert_reads_only(*inputs, words, numbers)
    accesses.assert_writes_once(result, workspace=numbers)


@pytest.mark.parametrize("operation", ["softmax", "log_softmax_backward", "logsumexp"])
@pytest.mark.parametrize("form", ["packed_rows", "aligned_rows"])
def test_rows_per_program_and_tiles_change_nothing(form, operation):
    inputs = rows_of(operation, 9, 43)
    wanted = FORMS[form](operation, inputs)
    for rows in (1, 2, 16):
        assert torch.equal(FORMS[form](operation, inputs, rows=rows), wanted)
    for tiles in (5, 8):  # more than there are columns for
        assert_result(operation, FORMS[form](operation, inputs, tiles=tiles), inputs)


@EVERY_OPERATION
@pytest.mark.parametrize("dtype, tiles", [(torch.float16, 1), (torch.float32, 3)], ids=str)
def test_vectors_of_whole_rows_change_nothing(dtype, tiles, operation):
    vector = 16 // dtype.itemsize
    inputs = operands(operation, 3, 32 + vector, dtype, gaps=(vector, 0))
    one, more = (
        run_rows(
            operation,
            Choice("packed_rows", RowTile(2, 16 if tiles > 1 else 64, each, False, tiles), 4),
            inputs,
        )
        for each in (1, vector)
    )
    assert torch.equal(one, more)


@EVERY_FORM
def test_a_row_read_again_and_again(form):
    """A stride of zero in dy, in step with rows that are a multiple of a vector apart."""
    operation = "softmax_backward"
    y, dy = operands(operation, 4, 40, torch.float32, gaps=(0, 0))
    inputs = (y, dy[:1].expand(4, 40))
    given = (y.T[None], inputs[1].T[None]) if form.by_columns else inputs
    assert_result(operation, form(operation, given), inputs)
