"""Operations with several sums, numbers of the row and several results, on every geometry."""

import pytest
import torch

from geometries import GEOMETRIES
from kernel_cases import DEVICE, dtype_name, quiet
from triton_softmax import operations
from triton_softmax.composite import KERNEL_OF
from triton_softmax.kernels.row_scalars import count_targets_kernel

pytestmark = quiet

CASES = [
    pytest.param(geometry, geometry.dtypes[-1], id=f"{geometry.label}-{dtype_name(dtype)}")
    for geometry in GEOMETRIES
    for dtype in geometry.dtypes[-1:]
]
TOLERANCE = {torch.float16: 3e-3, torch.float32: 2e-5, torch.float64: 1e-12}


def numbers_of_rows(x: torch.Tensor, dim: int, how_many: int) -> tuple[torch.Tensor, ...]:
    """Targets, one of which is none and one the last element; their logits; and factors."""
    shape = [size for i, size in enumerate(x.shape) if i != dim]
    generator = torch.Generator().manual_seed(1)
    target = torch.randint(0, x.shape[dim], shape, generator=generator)
    target.view(-1)[0], target.view(-1)[-1] = -1, x.shape[dim] - 1
    there = target.clamp(min=0).unsqueeze(dim)
    picked = x.cpu().gather(dim, there).squeeze(dim)
    factors = torch.rand(4, *shape, generator=generator, dtype=torch.float64)
    factors[1].view(-1)[0] = 0.0  # of a row that is ignored
    factors[3] /= x.shape[dim]
    numbers = (target, picked, *factors.to(torch.promote_types(x.dtype, torch.float32)))
    return tuple(each.to(DEVICE) for each in numbers[:how_many])


LOSSES = ("cross_entropy_smoothed_gradient", "cross_entropy_gradient", "entropy")


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(("geometry", "dtype"), CASES)
def test_every_geometry(geometry, dtype, name):
    """Elements are written over the input, numbers of the row beside them."""
    op = operations.LOSSES[name]
    generator = torch.Generator().manual_seed(0)
    x = (3 * torch.randn(geometry.shape, generator=generator, dtype=torch.float64)).to(dtype)
    x = x.to(DEVICE)
    numbers = numbers_of_rows(x, geometry.dim, op.numbers)
    accumulator = torch.promote_types(dtype, torch.float32)
    expected = KERNEL_OF[op](*(each.cpu() for each in (x, *numbers)), geometry.dim, accumulator)
    expected = expected if isinstance(expected, tuple) else (expected,)
    shape = [size for i, size in enumerate(x.shape) if i != geometry.dim]
    outs = () if op.reduces else (x,)
    nan = float("nan")
    outs += tuple(
        torch.full(shape, nan, dtype=accumulator, device=DEVICE) for _ in range(op.row_results)
    )
    words = (each.repeat(1 + op.sums) for each in geometry.workspace())
    geometry.launch(op, (x, *numbers), outs, *words)
    for actual, wanted in zip(outs, expected, strict=True):
        tolerance = TOLERANCE[dtype if actual is x else accumulator]
        torch.testing.assert_close(
            actual.cpu().double(), wanted.double(), atol=tolerance, rtol=tolerance
        )


NOWHERE = (-1, -2, "n", "n + 1", 156, 2**31 - 1, 2**31, 2**40)
"""Targets that are no class, some of which would be an element of a later row."""


@pytest.mark.parametrize("name", ["cross_entropy_gradient", "cross_entropy_smoothed_gradient"])
@pytest.mark.parametrize(("geometry", "dtype"), CASES)
def test_a_target_out_of_range_writes_nowhere(geometry, dtype, name):
    """The other rows, and what lies behind the tensor, are what they are without it."""
    op = operations.LOSSES[name]
    n_cols = geometry.shape[geometry.dim]
    x = torch.linspace(-2, 2, torch.Size(geometry.shape).numel()).to(dtype).view(geometry.shape)
    target, *numbers = numbers_of_rows(x.to(DEVICE), geometry.dim, op.numbers)

    def results(first: int) -> tuple[torch.Tensor, torch.Tensor]:
        guarded = torch.full((x.numel() + 4096,), 7.0, dtype=dtype, device=DEVICE)
        dx = guarded[: x.numel()].view(x.shape).copy_(x)
        of_rows = [torch.empty_like(numbers[1]) for _ in range(op.row_results)]
        marked = target.clone()
        marked.view(-1)[0] = first
        marked.view(-1)[-1] = first
        words = (each.repeat(1 + op.sums) for each in geometry.workspace())
        geometry.launch(op, (dx, marked, *numbers), (dx, *of_rows), *words)
        rows = dx.movedim(geometry.dim, -1).flatten(0, -2)
        assert (guarded[x.numel() :] == 7.0).all()
        return rows[1:-1].clone(), rows[[0, -1]]

    expected, _ = results(0)
    for each in NOWHERE:
        each = {"n": n_cols, "n + 1": n_cols + 1}.get(each, each)
        others, _ = results(each)
        assert torch.equal(others, expected), each


def test_weights_of_targets_out_of_range_are_not_read():
    weights = torch.full((64,), 7.0, device=DEVICE)
    weights[:3] = 1.0
    target = torch.tensor([0, 3, -1, 9, 2, -100], device=DEVICE)
    inputs = (weights, target, weights[:3])
    counts = torch.empty(2, device=DEVICE)
    count_targets_kernel[(1,)](inputs, (counts,), 6, 3, -100, BLOCK=8)
    assert counts.tolist() == [5.0, 2.0]
