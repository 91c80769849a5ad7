"""A dimension whose elements lie apart: in tiles that hold all of it, in tiles that wait for each
other, and in loops."""

import pytest
import torch
import triton

from kernel_cases import (
    DEVICE,
    EVERY_OPERATION,
    INTERPRETED,
    OPERATIONS,
    assert_near,
    expected,
    matrix,
    quiet,
    run_columns,
)
from triton_softmax.config import Choice, space
from triton_softmax.config.space import SplitStrided, StridedTile, TwoPass

pytestmark = quiet
GEOMETRIES = ("whole", "split", "loops", "chunks")
EVERY_GEOMETRY = pytest.mark.parametrize("geometry", GEOMETRIES)


def run(
    operation, inputs, geometry, *, inner=4, cols=8, vector=1, wide_index=False, **options
) -> torch.Tensor:
    """Tiles of cols × inner, or of the whole dimension; loops in one launch, or over chunks of two
    tiles in two launches."""
    n_cols = inputs[0].shape[1]
    if geometry == "whole":
        block_cols = triton.next_power_of_2(n_cols)
        how = StridedTile(block_cols, inner, vector, barrier=False, wide_index=wide_index)
        choice = Choice("strided", how, 4)
    elif geometry == "split":
        n_chunks = triton.cdiv(n_cols, cols)
        # On a GPU every thread polls.
        chunks = max(triton.next_power_of_2(n_chunks), 1 if INTERPRETED else 128 // inner)
        how = SplitStrided(
            cols,
            inner,
            vector,
            barrier=False,
            wide_index=wide_index,
            wait=not INTERPRETED,
            chunks=chunks,
            polls=max(1, chunks * inner // 128),
        )
        choice = Choice("split_strided", how, 4, n_chunks=n_chunks)
    else:
        chunk_cols = 2 * cols if geometry == "chunks" else triton.cdiv(n_cols, cols) * cols
        n_chunks = triton.cdiv(n_cols, chunk_cols)
        how = TwoPass(cols, inner, vector, wide_index, publish=True, write=True)
        choice = Choice(
            "two_pass",
            how,
            4,
            n_chunks=n_chunks,
            chunk_cols=chunk_cols,
            two_launches=n_chunks > 1,
        )
    return run_columns(operation, choice, inputs, **options)


def cube(*shape, dtype=torch.float32, seed=0, scale=4.0):
    """A tensor amid NaN with gaps along every dimension."""
    n_outer, n_cols, n_inner = shape
    flat = matrix(n_outer * (n_cols + 1), n_inner, dtype, gap=3, seed=seed, scale=scale)
    return flat.as_strided(
        shape, (flat.stride(0) * (n_cols + 1), flat.stride(0), 1), flat.storage_offset()
    )


def cubes(operation, *shape, dtype=torch.float32):
    """The inputs of an operation along the middle of such a tensor."""
    x = cube(*shape, dtype=dtype)
    if OPERATIONS[operation].numbers:
        return x, matrix(shape[0], shape[2], dtype, gap=3, seed=1, scale=1.0)
    if not operation.endswith("backward"):
        return (x,)
    y = x.copy_((torch.log_softmax if "log" in operation else torch.softmax)(x.double(), 1))
    return y, cube(*shape, dtype=dtype, seed=1, scale=1.0)


@pytest.mark.parametrize("operation", ["softmax", "softmax_backward", "logsumexp"])
@EVERY_GEOMETRY
def test_every_order_of_dimensions(geometry, operation):
    """With a stride of 0 in dy, and a result in the same order."""
    storage = cube(2, 3, 5)
    for order in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)):
        x = storage.permute(order)
        out = torch.empty_like(storage).permute(order)
        inputs = (x,)
        if OPERATIONS[operation].numbers:
            inputs = (x, storage.flip(2).permute(order)[:, 0])
        elif operation.endswith("backward"):
            inputs = (x, x[:1].expand(x.shape))
        elif operation == "logsumexp":
            out = out[:, 0]
        result = run(operation, inputs, geometry, inner=8, cols=2, out=out)
        assert_near(result, expected(operation, inputs), atol=1e-4)


@EVERY_OPERATION
@EVERY_GEOMETRY
def test_offsets_in_64_bits(geometry, operation):
    inputs = cubes(operation, 2, 9, 5)
    wide = run(operation, inputs, geometry, wide_index=True)
    assert torch.equal(wide, run(operation, inputs, geometry))


@EVERY_OPERATION
@EVERY_GEOMETRY
def test_a_vector_that_divides_the_lines_changes_nothing(geometry, operation):
    inputs = tuple(each[..., :8].contiguous() for each in cubes(operation, 2, 19, 12))
    result = run(operation, inputs, geometry, inner=8)
    for vector in (2, 4):
        again = run(operation, inputs, geometry, inner=8, vector=vector)
        assert torch.equal(again, result)


@EVERY_OPERATION
@pytest.mark.parametrize("published", ["none", "some", "all"])
def test_doing_without_partners_does_not_change_a_bit(published, operation, monkeypatch):
    """33 columns in 3 chunks, two groups of 4: words that are there are believed, words that are
    not are computed."""
    inputs = cubes(operation, 1, 33, 6)
    words = torch.zeros(2 * 3 * 4, dtype=torch.int64, device=DEVICE)
    result = run(operation, inputs, "split", cols=16, words=words)
    before = words.clone()
    by_group = before.view(2, 3, 4)
    assert (by_group[0] != 0).all() and (by_group[1, :, :2] != 0).all(), "all published"
    if published == "none":
        words.zero_()
    elif published == "some":
        words[::3] = 0
    monkeypatch.setattr(space, "MAX_POLLS", -1)
    assert torch.equal(run(operation, inputs, "split", cols=16, words=words), result)
    after = words.view(2, 3, 4)
    assert torch.equal(after[0], by_group[0]) and torch.equal(after[1, :, :2], by_group[1, :, :2])
