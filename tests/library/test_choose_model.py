"""Choices on GPUs that nobody has tuned on: at every border they cover the rows, and what is
computed is right."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from kernel_cases import expected, operands, quiet
from triton_softmax import plan
from triton_softmax.choose import Choice, Device, Traits, choose_rows, choose_strided, model
from triton_softmax.choose.rows import choose_adjacent, rows_of
from triton_softmax.choose.strided import Columns, choose_columns
from triton_softmax.plan import OPERATIONS, traits_of

DEVICES = {n: Device(n, nvidia=True) for n in (1, 108, 148)}
"""Among them an A100 and a B200."""
H200 = Device(132, nvidia=True)
LENGTHS = sorted(
    {max(1, 2**k + step) for k in range(0, 17, 2) for step in (-1, 0, 1)} | {12, 100, 3000}
)
LONG = [2**k + step for k in (18, 20, 22, 25) for step in (-1, 0, 3, 8)]

of_every_operation = pytest.mark.parametrize("operation", OPERATIONS)
of_every_kind = pytest.mark.parametrize(
    "operation", ["softmax", "softmax_backward", "log_softmax_backward", "logsumexp"]
)
on_every_device = pytest.mark.parametrize("device", DEVICES.values(), ids=map(str, DEVICES))


def rows(n_rows, n_cols, itemsize, operation, gap=0, address=0):
    """What a choice sees of the inputs, whose rows lie `gap` elements apart, and of the result."""
    op = OPERATIONS[operation]
    strides = (n_cols + gap,) * op.inputs + (n_cols,) * (not op.reduces)
    addresses = (address,) + (0,) * (len(strides) - 1)
    return rows_of(n_rows, n_cols, itemsize, addresses, strides)


def is_power_of_2(n: int) -> bool:
    return n >= 1 and n & (n - 1) == 0


def check_tile(choice: Choice, length: int, side: int) -> None:
    how = choice.how
    assert all(map(is_power_of_2, (how.block_cols, side, choice.num_warps)))
    assert how.tiles * how.block_cols >= length > 0
    assert choice.num_warps <= 16 and choice.max_registers is None
    assert choice.n_chunks == 1 and not choice.two_launches


def check_rows(choice: Choice, facts, traits: Traits, device: Device) -> None:
    """Every column is in a tile or a chunk, every word is read, and all that wait run at once."""
    how, n_cols = choice.how, facts.n_cols
    if choice.kernel in ("packed_rows", "aligned_rows"):
        packed = choice.kernel == "packed_rows"
        body = n_cols if packed else n_cols // how.vector * how.vector
        check_tile(choice, max(1, body), how.block_rows)
        assert how.vector == (facts.divisor if packed else facts.vector)
        assert how.block_cols % how.vector == 0 and n_cols * facts.itemsize <= model.LONGEST
    elif choice.kernel == "split_rows":
        assert how.block * choice.n_chunks >= n_cols > how.block * (choice.n_chunks - 1)
        assert choice.chunk_cols * choice.n_chunks >= n_cols and choice.chunk_cols <= how.block
        assert how.words >= choice.n_chunks and how.words == how.polls * 32 * choice.num_warps
        resident = device.resident_programs(choice.max_registers, choice.num_warps)
        assert choice.two_launches != how.wait
        assert choice.two_launches or choice.n_chunks <= resident
        assert not how.edges or how.vector == 16 // facts.itemsize
    else:
        assert choice.kernel == "strided_loops"
        assert choice.chunk_cols * choice.n_chunks >= n_cols
    assert choice.programs(facts.n_rows) < 2**31


@on_every_device
@of_every_kind
@pytest.mark.parametrize("itemsize", [2, 4, 8])
def test_rows_at_every_border(itemsize, operation, device):
    traits = traits_of(OPERATIONS[operation])
    for n_cols, n_rows in itertools.product([*LENGTHS, *LONG], (1, 40, 5000)):
        for gap, address in ((0, 0), (1, 0), (0, itemsize)):
            facts = rows(n_rows, n_cols, itemsize, operation, gap, address)
            check_rows(model.choose_adjacent(facts, traits, device), facts, traits, device)


@on_every_device
@of_every_kind
@pytest.mark.parametrize("itemsize", [2, 4, 8])
def test_columns_at_every_border(itemsize, operation, device):
    traits = traits_of(OPERATIONS[operation])
    for n_cols in (*LENGTHS, 10**5, 10**6):
        for n_outer, n_inner in ((1, 1), (1, 7), (3, 64), (20, 5000)):
            for vector in (1, 16 // itemsize):
                columns = Columns(n_outer, n_cols, n_inner, itemsize, vector, vector, False)
                choice = model.choose_columns(columns, traits, device)
                how = choice.how
                assert how.vector == vector and is_power_of_2(how.block_inner)
                if choice.kernel == "strided":
                    check_tile(choice, n_cols, how.block_inner)
                elif choice.kernel == "split_strided":
                    assert how.block_cols * choice.n_chunks >= n_cols and itemsize < 8
                    assert how.polls * 32 * choice.num_warps == how.chunks * how.block_inner
                    resident = device.resident_programs(choice.max_registers, choice.num_warps)
                    assert choice.n_chunks <= min(resident, how.chunks)
                else:
                    assert choice.chunk_cols * choice.n_chunks >= n_cols


def test_the_model_is_asked_where_nobody_tuned_and_for_nothing_else():
    softmax = traits_of(OPERATIONS["softmax"])
    columns = Columns(2, 100, 64, 4, 4, 4, False)
    facts = rows(1000, 1000, 4, "softmax")
    strides = {"outer_strides": (6400, 6400), "col_strides": (64, 64), "inner_strides": (1, 1)}
    for device in (*DEVICES.values(), H200, Device(108)):
        common = {"addresses": (0, 0), "device": device}
        for any_order in (False, True):
            traits = softmax._replace(any_order=any_order)
            of_rows = choose_rows(1000, 1000, 4, strides=(1000, 1000), traits=traits, **common)
            of_columns = choose_strided(2, 100, 64, 4, traits=traits, **strides, **common)
            asked = device in DEVICES.values() and not any_order
            chosen = model.choose_adjacent if asked else choose_adjacent
            assert of_rows == chosen(facts, traits, device)
            chosen = model.choose_columns if asked else choose_columns
            wanted = chosen(columns._replace(stated_vector=1), traits, device)
            assert of_columns == wanted


def test_a_larger_device_gets_no_fewer_programs():
    softmax = traits_of(OPERATIONS["softmax"])
    for n_rows, n_cols in ((300, 1000), (16, 8192), (1, 2**20)):
        facts = rows(n_rows, n_cols, 2, "softmax")
        programs = []
        for n in (1, 20, 400):
            choice = model.choose_adjacent(facts, softmax, Device(n, nvidia=True))
            groups = math.ceil(n_rows / getattr(choice.how, "block_rows", 1))
            programs.append(choice.programs(groups))
        assert programs == sorted(programs), (n_rows, n_cols)


@quiet
@of_every_operation
@pytest.mark.parametrize("n_cols", [1, 5, 33, 300, 1025, 2500])
def test_what_it_chooses_computes_what_is_asked(operation, n_cols, monkeypatch):
    """Without waiting and assembly, which a CPU has not."""
    op = OPERATIONS[operation]
    seen = []

    def of_rows(n_rows, n_cols, itemsize, *, addresses, strides, held, traits, device, **_):
        facts = rows_of(n_rows, n_cols, itemsize, addresses, strides, held)
        seen.append(model.choose_adjacent(facts, traits, device))
        return seen[-1]

    monkeypatch.setattr(plan, "choose_rows", of_rows)
    inputs = operands(operation, 5, n_cols, torch.float32, gaps=(0, 0))
    got = plan.make_plan(operation, inputs, 1, None, None)(*inputs)
    assert seen
    torch.testing.assert_close(got.double(), expected(operation, inputs), atol=3e-6, rtol=3e-5)
    assert op.reduces or got.shape == inputs[0].shape


@quiet
@pytest.mark.parametrize("operation", ["softmax", "softmax_backward"])
@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 40, 17), (1, 700, 9)], ids=str)
def test_so_do_columns(operation, shape, monkeypatch):
    from triton_softmax.choose import columns

    seen = []

    def choose(*facts):
        seen.append(model.choose_columns(*facts))
        return seen[-1]

    monkeypatch.setattr(columns, "choose_columns", choose)
    generator = torch.Generator().manual_seed(3)
    inputs = tuple(
        torch.randn(shape, generator=generator) for _ in range(OPERATIONS[operation].inputs)
    )
    if len(inputs) > 1:
        inputs = (inputs[0].softmax(1), inputs[1])
    got = plan.make_plan(operation, inputs, 1, None, None)(*inputs)
    assert seen
    torch.testing.assert_close(got.double(), expected(operation, inputs), atol=3e-6, rtol=3e-5)
