"""Lines of columns that count as one in `two_pass`: any operation is right against float64, however
many lines are folded and however they are spread over tiles, chunks and programs."""

import contextlib
import itertools
import math
from typing import Any

import pytest
import torch
import triton

import triton_softmax
from geometries import rows_of, used
from kernel_cases import (
    DEVICE,
    INTERPRETED,
    NAN,
    OPERATIONS,
    assert_as_torch,
    assert_near,
    assert_result,
    hostile,
    hostile_operands,
    matrix,
    quiet,
    watch_accesses,
)
from triton_softmax.config import Choice, constants
from triton_softmax.plan import launches_of, plan_of

pytestmark = quiet


def run(operation: str, inputs, fold: int, wide: int, chunk: int, apart: bool) -> torch.Tensor:
    """The results of rows that are laid out as adjacent columns of two outer slices, a row each."""
    op: Any = OPERATIONS[operation]
    n_rows, n_cols = inputs[0].shape
    n_inner = n_rows // 2

    def columns(x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(0, (2, n_inner)).movedim(1, -1).contiguous()

    laid = tuple(map(columns, inputs))
    shape = (2, n_inner) if op.reduces else laid[0].shape
    out = torch.full(shape, NAN, dtype=inputs[0].dtype, device=DEVICE)
    spread = [t if t.dim() == 3 else t.unsqueeze(1).expand(laid[0].shape) for t in (*laid, out)]
    outer, cols, inner = zip(*(each.stride() for each in spread), strict=True)
    lines = n_cols // fold
    n_chunks = -(-lines // chunk) if apart else 1
    how = constants.TwoPass(4, wide, 1, False, True, True, tiles=2, fold=fold, merged=4, at_once=8)
    chunk = chunk if apart else -(-lines // 8) * 8
    choice = Choice("two_pass", how, 4, n_chunks=n_chunks, chunk_cols=chunk, apart=apart)
    launches, workspace = launches_of(op, choice, (2, *outer), n_cols, cols, (n_inner, *inner))
    words = used(workspace.n_words)  # none is read before it is written
    with watch_accesses() if INTERPRETED else contextlib.nullcontext() as accesses:
        for launch in launches:
            launch.run(laid, (out,), words)
    if accesses:
        accesses.assert_reads_only(*laid, words, words.view(torch.float32))
    return out.movedim(1, -1).flatten(0, 1) if out.dim() == 3 else out.flatten()


SHAPES = [
    (fold, n_inner, lines)
    for fold, n_inner, lines in itertools.product((1, 2, 8), (2, 7), (1, 8, 17))
]
"""Folds, columns of a slice, and lines that are left: one, a whole step, and two steps and one."""


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("apart", [False, True], ids=["one-launch", "launches-apart"])
def test_every_operation(operation, apart):
    for at, (fold, n_inner, lines) in enumerate(SHAPES):
        wide = max(8, 1 << (fold * n_inner - 1).bit_length()) if not apart else 8
        dtype = (torch.float32, torch.bfloat16, torch.float64)[(at + at // 3) % 3]
        inputs = rows_of(operation, 2 * n_inner, lines * fold, dtype=dtype)
        found = run(operation, inputs, fold, wide, 8, apart)
        assert_result(operation, found, inputs)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("apart", [False, True], ids=["one-launch", "launches-apart"])
def test_hostile_columns_as_torch(operation, apart):
    rows = hostile(32, (0, 3, 31))  # in the places of a folded line
    inputs = hostile_operands(operation, rows[: len(rows) // 2 * 2])
    wide = 8 if apart else triton.next_power_of_2(4 * len(inputs[0]) // 2)
    assert_as_torch(operation, run(operation, inputs, 4, wide, 8, apart), inputs)


CHOSEN = {
    "chunks": ((2, 2080, 7), False),
    "pixels": ((1, 4224, 3, 3), False),
    "slices": ((140, 832, 10), True),
}
"""(N, classes, …) of which the library folds lines, and whether one launch takes slices."""


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("shape, sliced", CHOSEN.values(), ids=CHOSEN)
def test_a_loss_along_folded_columns(shape, sliced, smoothing):
    """Its target lies in one of the places of a folded line, which alone is overwritten."""
    x = matrix(shape[0], math.prod(shape[1:]), torch.float16).view(shape).requires_grad_()
    target = torch.arange(shape[0] * math.prod(shape[2:]), device=DEVICE) * 37 % shape[1]
    target = target.view(shape[0], *shape[2:])
    target.view(-1)[1] = -100
    plan = plan_of(OPERATIONS["softmax"], (x.detach(),), 1)
    how = plan.launches[0].constants["HOW"]
    assert how.fold > 1 and (len(plan.launches) == 1) == sliced
    loss = triton_softmax.cross_entropy(x, target, label_smoothing=smoothing)
    (gradient,) = torch.autograd.grad(loss, x)
    y = x.detach().double().requires_grad_()
    wanted = torch.nn.functional.cross_entropy(y, target, label_smoothing=smoothing)
    assert_near(loss, wanted, dtype=torch.float16)
    assert_near(gradient, torch.autograd.grad(wanted, y)[0], dtype=torch.float16)
