"""What holds for every geometry: any operation is right against float64 at every border, for every
dtype and every hostile row, touches nothing but its operands, and reads them as often as it says.

What is particular to a geometry is tested in a file of its own.
"""

import pytest
import torch

from geometries import EVERY_FORM, FORMS, Form, as_on_a_gpu, rows_of, two_pass
from kernel_cases import (
    DEVICE,
    EVERY_OPERATION,
    INF,
    INTERPRETED,
    OPERATIONS,
    as_computed,
    assert_as_torch,
    assert_near,
    assert_result,
    expected,
    hostile,
    hostile_operands,
    operands,
    quiet,
    watch_accesses,
)
from triton_softmax.config import splitting

pytestmark = quiet


def each_with_some(cases: list) -> list[tuple[Form, tuple]]:
    """Every form with every third case, so that each case is met by a third of the forms."""
    return [
        pytest.param(form, *case, id="-".join([label, *map(str, case)]))
        for i, (label, form) in enumerate(FORMS.items())
        for case in cases[i % 3 :: 3]
    ]


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
    inputs = rows_of(operation, 2, n_cols)
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
    inputs = rows_of(operation, 2, 43, dtype)
    assert_result(operation, form(operation, form.lay_out(inputs)), inputs)


@EVERY_OPERATION
@EVERY_FORM
def test_hostile_rows_as_torch(form, operation):
    """An element in each of three tiles or chunks, all else −∞. Rows of 43 start at every distance
    from a vector. A form meets every row with some operation, and so does an operation in every
    kind of form."""
    which = [*FORMS.values()].index(form) + [*OPERATIONS].index(operation)
    rows = hostile(43, (0, 20, 42))
    inputs = hostile_operands(operation, rows[which % 6 :: 6] if form.exchanges else rows)
    assert_as_torch(operation, form(operation, form.lay_out(inputs)), inputs)


@pytest.mark.parametrize("operation", ["softmax", "logsumexp"])
@EVERY_FORM
def test_summaries_of_chunks(form, operation):
    """A maximum that rises, one that falls, and one far from the row's; chunks that are all −∞; an
    offset, which costs log-sum-exp its own rounding and nothing else."""
    rising = torch.arange(48.0) * 3
    x = torch.stack([rising, rising.flip(0), rising.roll(20) + 1e4])
    x[1, 16:32], x[2, :20] = -INF, -INF
    inputs = (x.to(DEVICE),)
    assert_result(operation, form(operation, form.lay_out(inputs)), inputs)


@pytest.mark.parametrize(
    "form, operation, in_dtype, out_dtype",
    each_with_some(
        [
            ("softmax", torch.float16, torch.float32),
            ("log_softmax_backward", torch.float32, torch.float16),
            ("logsumexp", torch.float16, torch.float32),
            ("softmax_backward", torch.float32, torch.float16),
            ("logsumexp", torch.float32, torch.float16),
            ("log_softmax", torch.float16, torch.float32),
        ]
    ),
)
def test_input_and_result_of_different_dtypes(form, operation, in_dtype, out_dtype):
    """In step for the narrower of the two, whose vector has more elements. One input is widened
    first, so that a wide result is exact."""
    inputs = operands(operation, 2, 33, in_dtype, gaps=(7, 15))
    result = form(operation, form.lay_out(inputs), out_dtype=out_dtype)
    assert result.dtype == out_dtype
    rounded = as_computed(operation, inputs, out_dtype)
    exact = len(inputs) == 1 and out_dtype == torch.float32
    near = {} if exact else {"dtype": torch.float16, "atol": 2e-3}
    assert_near(result, expected(operation, rounded), **near)


@pytest.mark.parametrize(
    "operation", ["softmax", "softmax_backward", "logsumexp", "logsumexp_backward"]
)
@EVERY_FORM
@pytest.mark.skipif(not INTERPRETED, reason="the interpreter records addresses")
def test_every_element_is_read_as_often_as_stated_and_written_once(form, operation):
    """Edges are part of the row, and programs believe the words that are there. Loops read twice,
    unless a number is all that is wanted."""
    op = OPERATIONS[operation]
    inputs = form.lay_out(operands(operation, 2, 43, torch.float16, gaps=(8, 16)))
    words = torch.zeros(256, dtype=torch.int64)
    kept = words if form.exchanges else None
    form(operation, inputs, words=kept)  # publishes what there is to say
    with watch_accesses() as accesses:
        result = form(operation, inputs, words=kept)
    numbers = words.view(torch.float32)  # of which a word holds two, or that stand alone
    accesses.assert_reads_only(*inputs, words, numbers)
    accesses.assert_writes_once(result, workspace=numbers)
    loops = form.choose is two_pass and not op.reduces
    passes = 2 if loops or form is FORMS["split_rows-two-launches"] else 1
    assert accesses.reads_of(*inputs[: op.inputs]) == passes * op.inputs * 2 * 43


@pytest.mark.parametrize("operation", ["softmax", "log_softmax_backward", "logsumexp"])
@pytest.mark.parametrize("form", ["packed_rows", "aligned_rows"])
def test_rows_per_program_and_tiles_change_nothing(form, operation):
    inputs = rows_of(operation, 5, 43)
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
        FORMS["packed_rows"](operation, inputs, rows=2, tiles=tiles, of=each)
        for each in (1, vector)
    )
    assert torch.equal(one, more)


@pytest.mark.skipif(not INTERPRETED, reason="a GPU runs the assembly itself")
def test_pairs_as_a_gpu_gets_them_give_the_same_bits(monkeypatch):
    """The largest of two at once, behind barriers."""
    split, inputs = FORMS["split_rows"], rows_of("softmax", 2, 43, torch.float16)
    wanted = split("softmax", inputs)
    as_on_a_gpu(monkeypatch)
    assert torch.equal(split("softmax", inputs, pairs=True), wanted)


@EVERY_FORM
def test_a_row_read_again_and_again(form):
    """A stride of zero in dy, in step with rows that are a multiple of a vector apart."""
    operation = "softmax_backward"
    y, dy = operands(operation, 2, 40, torch.float32, gaps=(0, 0))
    inputs = (y, dy[:1].expand(2, 40))
    given = (y.T[None], inputs[1].T[None]) if form.by_columns else inputs
    assert_result(operation, form(operation, given), inputs)


MISSING = {
    "all": slice(None),
    "first": slice(0, None, 3),
    "last": slice(2, None, 3),
    "no": slice(0),
}


@pytest.mark.parametrize(
    "operation, missing",
    [("softmax", each) for each in MISSING]
    + [(operation, [*MISSING][i % 3]) for i, operation in enumerate(OPERATIONS)][1:],
)
@pytest.mark.parametrize("form", ["split_rows", "split_strided"])
def test_doing_without_partners_does_not_change_a_bit(form, operation, missing, monkeypatch):
    """Rows in 3 chunks, of columns two groups: words that are there are believed, words that are
    not are computed."""
    n_rows = 8 if FORMS[form].by_columns else 2
    inputs = FORMS[form].lay_out(rows_of(operation, n_rows, 43))
    words = torch.zeros(3 * n_rows, dtype=torch.int64, device=DEVICE)
    result = FORMS[form](operation, inputs, words=words)
    before = words.clone()
    assert (before != 0).all(), "all published"
    words[MISSING[missing]] = 0
    monkeypatch.setattr(splitting, "MAX_POLLS", -1)
    assert torch.equal(FORMS[form](operation, inputs, words=words), result)
    assert torch.equal(words, before)
