"""The choices that the tuner tries, and the time that its model gives them."""

from __future__ import annotations

import math

import pytest
import torch

from kernel_cases import expected, operands, quiet
from softmax_bench import cost, possible, providers
from triton_softmax import plan
from triton_softmax.config import Choice, Device, Traits
from triton_softmax.config.calls import Columns, Rows
from triton_softmax.config.constants import RowTile, SplitRows, StridedTile, TwoPass
from triton_softmax.operations import OPERATIONS

H200 = Device(132, nvidia=True)
SOFTMAX = Traits(inputs=1, keeps_terms=True)


def in_tiles(rows, cols, warps, n_rows, n_cols):
    how = RowTile(rows, cols, 4, False)
    return Choice("packed_rows", how, warps), Rows(n_rows, n_cols, 4, 4, False, 4), SOFTMAX


def in_chunks(n_rows, warps=1, most=None, depth=0):
    """Two chunks of 1,000 columns, by programs of 65 registers a thread."""
    how = SplitRows(1024, 4, False, False, False, False, depth, True, 0, True, True, 128, 3)
    choice = Choice("split_rows", how, warps, 65, 2, 1000, most)
    return choice, Rows(n_rows, 2000, 4, 4, False, 4), SOFTMAX


COLUMNS = Columns(3000, 100, 50, 2, 4, 4, False)
TILE = Choice("strided", StridedTile(128, 64, 4, True, False), 16)
LOOPS = Choice("two_pass", TwoPass(32, 64, 4, False, True, True), 1, None, 2, 64, apart=True)
MODELLED = {
    # Each of 500 programs moves 2 · 2 · 1024 · 4 bytes and issues 2048 · 12 + 1024 · 9 = 33,792
    # instructions, in 1000 + 33792 / 128 + 2 · 250 = 1764 ns without others, which is also how long
    # it waits; the 132 multiprocessors move all in 500 · 16384 / (132 · 24) = 2586 ns, and the one
    # with 4 programs computes for 4 · 33792 / 270 = 501 ns; 1764 + √(1764² + 2586² + 501²) = 4934.
    "two rows": (in_tiles(2, 1024, 4, 1000, 1024), (500, 16384, 2048, 1024, 1), 4934.013),
    "255 registers": (in_tiles(2, 1904, 1, 8, 1904), (4, 30464, 3808, 1904, 1), 5936.3717),
    "257 registers": (in_tiles(2, 1920, 1, 8, 1920), (4, 30720, 3840, 1920, 1), math.inf),
    "256 in one row": (in_tiles(1, 7168, 1, 8, 7168), (8, 57344, 7168, 3584, 1), math.inf),
    # 512 threads of 88 elements, 32 registers besides and 8 to spare take all registers.
    "full": (in_tiles(1, 45056, 16, 8, 45056), (8, 360448, 45056, 22528, 1), 7960.4523),
    "too full": (in_tiles(1, 45568, 16, 8, 45568), (8, 364544, 45568, 22784, 1), math.inf),
    "one wave": (in_chunks(2046), (2046, 8016, 1024, 512, 1), 13355.087),
    "pipeline": (in_chunks(10**4, most=200, depth=2), (10**4, 8016, 1024, 512, 1), 287296.66),
    "large": (in_chunks(3000, warps=32), (3000, 8016, 1024, 512, 1), 152338.24),
    # Accesses are narrow, so 16 elements take a register each, and 4 their addresses.
    "columns": ((TILE, COLUMNS, SOFTMAX), (3000, 37000, 8192, 4096, 1), 47232.043),
    "columns in loops": ((LOOPS, COLUMNS, SOFTMAX), (3000, 28774, 2048, 768, 4), 67597.361),
}


@pytest.mark.parametrize("asked, work, nanoseconds", MODELLED.values(), ids=MODELLED)
def test_what_the_model_says(asked, work, nanoseconds):
    """A call's work, and its time on 132 multiprocessors, as computed by hand from the constants;
    next to a border: the last program that fits, the wave that is full, the first that is not."""
    assert cost.work(*asked) == work
    assert cost.duration(*asked, H200) == pytest.approx(nanoseconds, rel=1e-7)


@quiet
@pytest.mark.parametrize("operation", ["softmax", "softmax_backward", "logsumexp"])
@pytest.mark.parametrize("shape", [(5, 1), (5, 33), (2, 300), (2, 2500), (2, 40, 7)])
def test_possible_choices_compute_what_is_asked(operation, shape):
    """The model's first and last. A CPU neither waits nor has assembly."""
    if "logsumexp" in operation and len(shape) == 3:
        return
    op, n_rows, n_cols = OPERATIONS[operation], math.prod(shape) // shape[1], shape[1]
    inputs = operands(operation, n_rows, n_cols, torch.float32, gaps=(0, 0))
    wanted = expected(operation, inputs)
    if len(shape) == 3:
        inputs = [t.view(shape[0], shape[2], n_cols).mT.contiguous() for t in inputs]
        wanted = wanted.view(shape[0], shape[2], n_cols).mT
    for which in (0, -1):

        def asked(*call, which=which):
            found = [each for each in possible.timed(*call[:3]) if each[0] < math.inf]
            return sorted(found, key=lambda each: each[0])[which][1]

        with providers.choosing(asked):
            got = plan.make_plan(op, tuple(inputs), 1)(*inputs)
        torch.testing.assert_close(got.double(), wanted, atol=3e-6, rtol=3e-5)
