"""Lines of columns that count as one in `two_pass`: any operation is right against float64, however
many lines are folded and however they are spread over tiles, chunks and programs."""

import itertools
from typing import Any

import pytest
import torch

from geometries import NAN, rows_of, used
from kernel_cases import DEVICE, OPERATIONS, assert_result, quiet
from triton_softmax.config import Choice, constants
from triton_softmax.plan import launches_of

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
    for launch in launches:
        launch.run(laid, (out,), words)
    return out.movedim(1, -1).flatten(0, 1) if out.dim() == 3 else out.flatten()


SHAPES = [
    (fold, n_inner, lines)
    for fold, n_inner, lines in itertools.product((1, 2, 8), (2, 3, 7, 8), (1, 8, 17))
]
"""Folds, columns of a slice, and lines that are left: one, a whole step, and two steps and one."""


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("apart", [False, True], ids=["one-launch", "launches-apart"])
def test_every_operation(operation, apart):
    for at, (fold, n_inner, lines) in enumerate(SHAPES):
        wide = max(8, 1 << (fold * n_inner - 1).bit_length()) if not apart else 8
        dtype = (torch.float32, torch.bfloat16, torch.float64)[at % 3]
        inputs = rows_of(operation, 2 * n_inner, lines * fold, dtype=dtype)
        found = run(operation, inputs, fold, wide, 8, apart)
        assert_result(operation, found, inputs)
