"""Operations with several sums, numbers of the row and several results, on every geometry."""

import pytest
import torch

from geometries import FORMS, Form, as_on_a_gpu, split_rows
from kernel_cases import DEVICE, INTERPRETED, NAN, assert_result, matrix, operands, quiet
from triton_softmax import composite, operations
from triton_softmax.arguments import LossOptions
from triton_softmax.composite import KERNEL_OF
from triton_softmax.kernels.row_scalars import count_targets_kernel
from triton_softmax.operations.operation import NAMED

pytestmark = quiet

CASES = FORMS | {"split_rows-late": Form(split_rows, {"depth": 2}, float64=False)}
NAMES = ("cross_entropy_smoothed_gradient", "cross_entropy_gradient", "cross_entropy_smoothed")
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}
N_COLS = 43
NOWHERE = (-1, -2, 156, 2**31 - 1, 2**31, 2**40)
"""Targets that are no class, beside the first two behind the last class."""


def numbers_of_rows(x: torch.Tensor, nowhere: tuple[int, ...], dtype) -> tuple[torch.Tensor, ...]:
    """Targets, of which the first two are the ends of a row; their logits; and factors. Of a row
    whose target is nowhere the factor is 0."""
    target = torch.tensor([0, N_COLS - 1, *nowhere], device=DEVICE)
    picked = x.gather(1, target.clamp(0, N_COLS - 1)[:, None])[:, 0]
    generator = torch.Generator().manual_seed(1)
    factors = torch.rand(3, len(x), generator=generator, dtype=torch.float64)
    factors[:2, 2:] = 0.0
    factors[1] *= 1e-8  # of a squared log-sum-exp
    factors[2] /= N_COLS
    return target, picked.to(dtype), *factors.to(dtype).to(DEVICE)


def by_operators(x: torch.Tensor, *numbers: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The losses of rows, after the gradient of these."""
    target, _, b, z, c = (*numbers, None)[:5]
    x = x.double().clone().requires_grad_()
    options = LossOptions(1, -100, "none", 0.0, 1.0, x.dtype)
    results = composite.row_losses(x, composite.RowScalars(target, b, z, c), options)
    return *torch.autograd.grad(results[0].sum(), x), *(each.detach() for each in results)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("label", CASES)
def test_every_geometry(label, name):
    """Elements are written over the input, numbers of the row beside them. A target out of range
    writes nowhere: neither in another row, nor what lies around the rows."""
    form, op = CASES[label], NAMED[name]
    dtype = torch.float64 if form.float64 and name == NAMES[2] else torch.float32
    which = 3 * [*CASES].index(label) + NAMES.index(name)
    nowhere = (N_COLS + which % 2, NOWHERE[which % len(NOWHERE)])
    x = matrix(4 if op.placed or op.finish_at else 2, N_COLS, dtype, gap=8 - N_COLS % 8)
    x += 1e4  # a sum of elements would lose digits
    numbers = numbers_of_rows(x, nowhere[: len(x) - 2], dtype)[: op.numbers]
    at = (-1 if n < 0 or n >= N_COLS else n for n in numbers[0].tolist())
    known = torch.tensor([*at]), *(each.cpu() for each in numbers[1:])
    expected = by_operators(x.cpu(), *known)[op.reduces :]
    laid = form.lay_out((x, *numbers))
    around = laid[0].as_strided((laid[0].untyped_storage().size() // dtype.itemsize,), (1,), 0)
    outs = () if op.reduces else laid[:1]
    of_rows = laid[0].select(1, 0)
    outs += tuple(torch.full_like(of_rows, NAN) for _ in range(op.row_results))
    outside = around.isnan().sum()
    form.launch(op, laid, outs)
    assert around.isnan().sum() == outside, "written beside the rows"
    for actual, wanted in zip(outs, expected, strict=True):
        rows = actual[0].movedim(-1, 0) if form.by_columns else actual
        near = {"atol": TOLERANCE[dtype], "rtol": TOLERANCE[dtype]}
        torch.testing.assert_close(rows[:2].cpu(), wanted[:2].to(dtype), **near)


@pytest.mark.skipif(not INTERPRETED, reason="a GPU runs the assembly itself")
@pytest.mark.parametrize("label", ["split_rows", "split_rows-late", "split_strided"])
def test_launches_as_on_a_gpu(label, monkeypatch):
    as_on_a_gpu(monkeypatch)
    test_every_geometry(label, NAMES[2])


@pytest.mark.parametrize("name", operations.OPERATIONS)
def test_replacements_on_the_cpu(name):
    op, dtype = operations.OPERATIONS[name], torch.float64
    inputs = tuple(each.cpu() for each in operands(name, 3, N_COLS, dtype))
    assert_result(name, KERNEL_OF[op](*inputs, 1, dtype), inputs)


def test_weights_of_targets_out_of_range_are_not_read():
    weights = torch.full((64,), 7.0, device=DEVICE)
    weights[:3] = 1.0
    target = torch.tensor([0, 3, -1, 9, 2, -100], device=DEVICE)
    inputs = (weights, target, weights[:3])
    counts = torch.empty(2, device=DEVICE)
    count_targets_kernel[(1,)](inputs, (counts,), 6, 3, -100, BLOCK=8)
    assert counts.tolist() == [5.0, 2.0]
