"""Operations with several sums, numbers of the row and several results, on every geometry."""

import pytest
import torch

from geometries import GEOMETRIES
from kernel_cases import DEVICE, dtype_name, quiet
from triton_softmax import cpu
from triton_softmax.plan import operation_of

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
    op = operation_of(name)
    generator = torch.Generator().manual_seed(0)
    x = (3 * torch.randn(geometry.shape, generator=generator, dtype=torch.float64)).to(dtype)
    x = x.to(DEVICE)
    numbers = numbers_of_rows(x, geometry.dim, op.numbers)
    accumulator = torch.promote_types(dtype, torch.float32)
    expected = getattr(cpu, name)(
        *(each.cpu() for each in (x, *numbers)), geometry.dim, accumulator
    )
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
