"""Which kernel and how, at every threshold and on both sides of it; numbers in, numbers out."""

import ast
import itertools
import math
import random
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

from triton_softmax import choose as package
from triton_softmax import plan
from triton_softmax.choose import (
    Choice,
    Device,
    Traits,
    choose_rows,
    choose_strided,
    polling,
    row_tiles,
    vectors,
)
from triton_softmax.choose.constants import SplitRows, SplitStrided, StridedLoops
from triton_softmax.choose.row_tiles import (
    LONGEST_ODD,
    SHORT,
    TILES,
    choose_row_tile,
    fits_one_program,
)
from triton_softmax.choose.split_rows import MAX_CHUNKS, candidate_for_few_rows, choose_split_rows
from triton_softmax.choose.strided import (
    Columns,
    choose_columns,
    choose_loops,
    choose_strided_loops,
)
from triton_softmax.choose.vectors import next_power_of_2, vector_of_lines, vector_width

DEVICES = {"any": Device(), "nvidia": Device(132, nvidia=True)}
NVIDIA = DEVICES["nvidia"]
MANY = 4096  # rows enough for every device here

SOFTMAX = Traits(inputs=1, keeps_terms=True)
LOG_SOFTMAX = Traits(inputs=1)
SOFTMAX_VJP = Traits(inputs=2)
LOG_SOFTMAX_VJP = Traits(inputs=2, exp_in_finish=True)
LOGSUMEXP = Traits(inputs=1, reduces=True)
OPERATIONS = {
    "softmax": SOFTMAX,
    "log_softmax": LOG_SOFTMAX,
    "softmax_backward": SOFTMAX_VJP,
    "log_softmax_backward": LOG_SOFTMAX_VJP,
    "logsumexp": LOGSUMEXP,
    "logsumexp_backward": LOG_SOFTMAX,
}

on_every_device = pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
of_every_operation = pytest.mark.parametrize("traits", OPERATIONS.values(), ids=OPERATIONS)
forward_and_backward = pytest.mark.parametrize(
    "traits", [SOFTMAX, SOFTMAX_VJP], ids=["forward", "backward"]
)


def choose(n_rows, n_cols, itemsize, *, traits=SOFTMAX, gap=0, addresses=None, **options) -> Choice:
    """The choice for contiguous results and inputs whose rows lie `gap` elements apart."""
    strides = (n_cols + gap,) * traits.inputs + (n_cols,) * (not traits.reduces)
    options = {"device": NVIDIA} | options
    return choose_rows(
        n_rows,
        n_cols,
        itemsize,
        traits=traits,
        addresses=addresses or (0,) * len(strides),
        strides=strides,
        **options,
    )


def split(n_rows, n_cols, itemsize, *, traits=SOFTMAX, vector=None, edges=False, device=NVIDIA):
    """The choice for rows that are split, in whole vectors and without edges."""
    vector = vector or 16 // itemsize
    return choose_split_rows(n_rows, n_cols, itemsize, vector, edges, traits, device)


def strided(
    n_outer, n_cols, n_inner, itemsize, *, traits=SOFTMAX, device=NVIDIA, vector=8
) -> Choice:
    """The choice for columns of which an access moves `vector` elements."""
    columns = Columns(n_outer, n_cols, n_inner, itemsize, vector, vector, wide_index=False)
    return choose_columns(columns, traits, device)


def block_cols(choice: Choice) -> int:
    """Columns of a tile or of a chunk."""
    return choice.how.block if choice.kernel == "split_rows" else choice.how.block_cols


def test_the_traits_are_those_of_the_operations():
    assert {name: plan.traits_of(op) for name, op in plan.OPERATIONS.items()} == OPERATIONS


def around(*thresholds):
    return sorted({n + step for n in thresholds for step in (-1, 0, 1)})


def test_next_power_of_2_around_all_of_them():
    assert next_power_of_2(0) == next_power_of_2(1) == 1
    for exponent in range(1, 40):
        n = 2**exponent
        assert [next_power_of_2(n + step) for step in (-1, 0, 1)] == [n if n > 2 else 1, n, 2 * n]


@pytest.mark.parametrize("itemsize, width", [(2, 8), (4, 4), (8, 2)])
def test_vector_width(itemsize, width):
    assert vector_width(itemsize, (0, 512), (width * 5, width * 7)) == width
    assert vector_width(itemsize, (0, 512), (width + 1, 1)) == width, (
        "rows in step need not start on a vector"
    )
    assert vector_width(itemsize, (0, 512), (0, width * 5)) == width, "an expanded row"
    assert vector_width(itemsize, (0, 512), (width, width + 1)) == 1
    assert vector_width(itemsize, (0, 512, 16), (3, 3 + width, 4)) == 1
    for offset in range(itemsize, 16, itemsize):
        assert vector_width(itemsize, (0, 512 + offset), (width, width)) == 1
        assert vector_width(itemsize, (offset, offset), (width, width)) == 1


@pytest.mark.parametrize("itemsize, width", [(2, 8), (4, 4), (8, 2)])
def test_vector_of_lines(itemsize, width):
    assert vector_of_lines(itemsize, (0, 512), (width * 5, width * 7, 0)) == width
    for narrow in (1, 2, 4):
        assert vector_of_lines(itemsize, (0, 512), (width * 5, narrow * 7)) == min(narrow, width)
    for offset in range(itemsize, 16, itemsize):
        assert vector_of_lines(itemsize, (0, 512 + offset), (width, width)) == 1


# --- rows that one program takes

# The longest row that one program takes, by itemsize, whether rows have edges, and inputs; 0 inputs
# for an operation that reduces one.
LONGEST = {
    (2, False, 0): 32768,
    (2, True, 0): 32768,
    (4, False, 0): 16384,
    (4, True, 0): 16384,
    (8, False, 0): 8192,
    (8, True, 0): 8192,
    (2, False, 1): 20480,
    (2, True, 1): 16384,
    (2, False, 2): 16384,
    (2, True, 2): 16384,
    (4, False, 1): 32768,
    (4, True, 1): 16384,
    (4, False, 2): 12288,
    (4, True, 2): 16384,
    (8, False, 1): 8192,
    (8, True, 1): 8192,
    (8, False, 2): 8192,
    (8, True, 2): 8192,
}


@on_every_device
@pytest.mark.parametrize("case", LONGEST, ids=str)
def test_fits_one_program(case, device):
    itemsize, edges, inputs = case
    for n_rows, limit in (
        (MANY, LONGEST[case]),
        (66, LONGEST[case]),
        (65, min(8192, LONGEST[case])),
        (1, 8192),
    ):
        for n_cols in around(limit):
            for traits in OPERATIONS.values():
                if inputs != (0 if traits.reduces else traits.inputs):
                    continue
                fits = fits_one_program(n_rows, n_cols, itemsize, edges, traits, device)
                assert fits == (n_cols <= limit), (n_rows, n_cols)


@pytest.mark.parametrize("n_sm", [1, 2, 131, 132, 160])
def test_few_rows_are_half_a_row_per_multiprocessor(n_sm):
    few = (n_sm - 1) // 2
    assert fits_one_program(few + 1, 32768, 4, False, SOFTMAX, Device(n_sm))
    assert not few or not fits_one_program(few, 32768, 4, False, SOFTMAX, Device(n_sm))


@on_every_device
@forward_and_backward
@pytest.mark.parametrize("itemsize", [2, 4, 8])
def test_the_choice_follows_the_limit(itemsize, traits, device):
    width = 16 // itemsize
    for n_cols in (
        1,
        2,
        15,
        16,
        17,
        *around(512, 1024, 8192, 12288, 16384, 20480, 32768, 65536, 131072),
        262144,
    ):
        for n_rows in (1, 65, 66, MANY):
            edges = bool(n_cols % width)
            c = choose(n_rows, n_cols, itemsize, traits=traits, device=device)
            if fits_one_program(n_rows, n_cols, itemsize, edges, traits, device):
                short = n_cols <= SHORT and c.kernel == "packed_rows"
                alone = n_rows < device.multiprocessors and 1024 < n_cols <= 8192 and itemsize < 8
                edges = edges and not alone
                assert c.kernel == ("aligned_rows" if edges else "packed_rows") or short
            else:
                assert c.kernel == ("strided_loops" if itemsize == 8 else "split_rows")


def test_rows_without_a_common_vector_are_packed_by_element():
    assert choose(MANY, 1024, 2, addresses=(2, 0)) == choose_row_tile(
        MANY, 1024, 2, 1, False, SOFTMAX, NVIDIA
    )
    c = choose(MANY, 1024, 2, gap=1)
    assert (c.kernel, c.how.vector) == ("packed_rows", 1)
    c = choose(MANY, 1024, 2, gap=8)
    assert (c.kernel, c.how.vector) == ("packed_rows", 8)
    c = choose(MANY, 1001, 2, gap=8)
    assert (c.kernel, c.how.vector) == ("aligned_rows", 8)
    c = choose(MANY, 65536, 4, gap=1)
    assert (c.kernel, c.how.vector, c.how.edges) == ("split_rows", 1, False)


@pytest.mark.parametrize("itemsize, width", [(2, 8), (4, 4)])
def test_a_row_that_has_a_multiprocessor_for_itself_has_no_edges(itemsize, width):
    """Moved by what divides it, in one tile; but not where the number of rows must decide
    nothing."""
    for n_cols in (1025, 1030, 5004, 8191):
        alone = choose(131, n_cols, itemsize)
        assert (alone.kernel, alone.how.tiles) == ("packed_rows", 1)
        assert alone.how.vector == min(n_cols & -n_cols, width)
        assert choose(132, n_cols, itemsize).kernel == "aligned_rows" or n_cols % width == 0
        for n_rows in (1, 131, 132):
            same = choose(n_rows, n_cols, itemsize, traits=SOFTMAX._replace(any_order=True))
            assert same.kernel == ("packed_rows" if n_cols % width == 0 else "aligned_rows")
    for n_cols in (1023, 8193):
        assert choose(131, n_cols, itemsize).kernel == "aligned_rows"


@of_every_operation
@pytest.mark.parametrize("itemsize", [2, 4, 8])
def test_short_rows_lie_in_narrow_tiles(itemsize, traits):
    """By elements if their length is odd, and by whatever divides it if not."""
    width = 16 // itemsize
    for n_cols in range(1, SHORT + 1):
        divisor = min(n_cols & -n_cols, width)
        for n_rows in (1, 1000, 10**7):
            c = choose(n_rows, n_cols, itemsize, traits=traits)
            if c.kernel == "aligned_rows":
                assert n_cols % 2 and n_cols > LONGEST_ODD[itemsize][traits.inputs - 1]
                assert not traits.reduces
                continue
            how = c.how
            assert (c.kernel, how.vector) == ("packed_rows", divisor)
            room = how.tiles * how.block_cols
            assert n_cols <= room and (room - how.block_cols < n_cols or how.tiles == 8)
            assert how.block_cols % how.vector == 0
            whole = divisor == width
            widest = 32 if whole and not traits.reduces else 16
            nearly_full = whole and traits.inputs == 2 and room <= 4 / 3 * n_cols
            assert how.block_cols <= widest or how.tiles == 1 and (n_cols == room or nearly_full)
            held = how.block_rows * next_power_of_2(n_cols) * itemsize
            assert held <= (4096 if traits.reduces else 2048)
            assert held == (4096 if traits.reduces else 2048) or n_rows <= 1000
    for n_cols in (130, 132, 129):
        assert choose(MANY, n_cols, itemsize, traits=traits).kernel == (
            "packed_rows" if n_cols % width == 0 else "aligned_rows"
        )


SHORT_ROWS = {
    # (itemsize, traits): {n_cols: (columns of a tile, tiles)}, on both sides of each change
    (4, SOFTMAX): {31: (8, 4), 32: (32, 1), 33: (16, 3), 64: (64, 1), 65: (16, 5), 100: (32, 4),
                   102: (16, 8), 124: (32, 4), 127: (16, 8), 128: (128, 1)},
    (4, SOFTMAX_VJP): {44: (16, 3), 48: (16, 3), 52: (64, 1), 60: (64, 1), 66: (16, 5),
                       96: (32, 3), 98: (16, 8), 100: (128, 1), 124: (128, 1), 126: (16, 8)},
    (2, SOFTMAX): {3: (4, 1), 4: (4, 1), 5: (2, 3), 104: (32, 4), 108: (16, 8)},
    (2, SOFTMAX_VJP): {96: (32, 3), 104: (128, 1), 108: (16, 8), 120: (128, 1)},
    (8, SOFTMAX_VJP): {24: (8, 3), 26: (32, 1), 98: (128, 1)},
    (4, LOGSUMEXP): {100: (16, 8), 124: (16, 8), 128: (128, 1)},
}  # fmt: skip


@pytest.mark.parametrize("itemsize, traits", SHORT_ROWS, ids=str)
def test_tiles_that_short_rows_lie_in(itemsize, traits):
    """A quarter of the next power of two, at most 16 columns, or 32 in whole vectors; two tensors
    in whole vectors, that fill more than three quarters of a tile, in one."""
    for n_cols, tile in SHORT_ROWS[itemsize, traits].items():
        divisor = min(n_cols & -n_cols, 16 // itemsize)
        how = choose_row_tile(MANY, n_cols, itemsize, divisor, False, traits, NVIDIA).how
        assert (how.block_cols, how.tiles) == tile, n_cols


def warps_of_short_rows(itemsize, traits, columns, n_rows=2**20):
    return {
        choose_row_tile(
            n_rows, n, itemsize, min(n & -n, 16 // itemsize), False, traits, NVIDIA
        ).num_warps
        for n in columns
    }


def test_warps_of_short_rows():
    """Two. One for whole vectors of two tensors, if rows are not very short; four for accesses of
    at most four bytes, with more exceptions the fewer of them there are."""

    def rows_of(itemsize, n_elements, last=SHORT):
        """Lengths in which an access is of so many elements."""
        width = 16 // itemsize
        return [n for n in range(1, last + 1) if min(n & -n, width) == n_elements]

    for itemsize, width in ((2, 8), (4, 4), (8, 2)):
        whole = rows_of(itemsize, width)
        for traits in (SOFTMAX, LOG_SOFTMAX, LOGSUMEXP):
            assert warps_of_short_rows(itemsize, traits, whole) == {2}
        for traits in (SOFTMAX_VJP, LOG_SOFTMAX_VJP):
            assert warps_of_short_rows(itemsize, traits, [n for n in whole if n <= 32]) == {2}
            assert warps_of_short_rows(itemsize, traits, [n for n in whole if n > 32]) == {1}
        assert warps_of_short_rows(itemsize, LOGSUMEXP, range(1, SHORT + 1)) == {2}
    for itemsize, n_elements in ((2, 4), (4, 2), (8, 1)):  # eight bytes, but no whole vector
        for traits in (SOFTMAX, SOFTMAX_VJP):
            assert warps_of_short_rows(itemsize, traits, rows_of(itemsize, n_elements)) == {2}
    for itemsize, longest in ((2, 127), (4, 63)):  # one by one
        for traits in (SOFTMAX, SOFTMAX_VJP):
            some = [n for n in rows_of(itemsize, 1, longest) if n != 3]
            assert warps_of_short_rows(itemsize, traits, some) == {4}
            assert warps_of_short_rows(itemsize, traits, [3]) == {2}
    # In twos: two tensors, or rows of one that are neither very short nor short of accesses.
    assert warps_of_short_rows(2, SOFTMAX, [6, 10, 30]) == {2}
    assert warps_of_short_rows(2, SOFTMAX, [2, 34, 62]) == {4}
    for n_cols, warps in ((2, 4), (4, 2), (32, 2), (34, 4)):  # and where only strides ask for it
        assert choose_row_tile(2**20, n_cols, 2, 2, False, SOFTMAX, NVIDIA).num_warps == warps
    assert warps_of_short_rows(2, SOFTMAX_VJP, [2, 6, 30, 34, 62]) == {4}
    # A tile without an access for each of 128 threads, because rows are long or few.
    assert warps_of_short_rows(4, SOFTMAX, [65, 127]) == {2}
    assert warps_of_short_rows(2, SOFTMAX, [35], n_rows=10) == {2}


@forward_and_backward
def test_rows_out_of_step_move_by_what_divides_them(traits):
    for n_cols in (100, 1000, 50_000):
        for gap, vector in ((8, 8 if n_cols % 8 == 0 else 4), (4, 4), (2, 2), (1, 1)):
            c = choose(MANY, n_cols, 2, traits=traits, gap=gap)
            assert c.how.vector == vector and c.kernel != "aligned_rows"
    assert choose(MANY, 98, 2, traits=traits, implementation="aligned_rows").how.vector == 8


@of_every_operation
def test_what_is_held_decides_and_not_the_narrowest(traits):
    """float32 in, float16 out: accesses as wide as float16 asks for, registers as float32 fills
    them."""
    for n_cols in (1024, 1025, 8192, 16384, 32768, 32769, 131072, 131073):
        c = choose(MANY, n_cols, 2, traits=traits, held=4)
        assert c.how.vector == 8
        assert not c.how.barrier and not (c.kernel == "split_rows" and c.how.pairs)
        if n_cols % 8 == 0:
            alone = choose(MANY, n_cols, 4, traits=traits)
            assert (c.kernel, block_cols(c)) == (alone.kernel, block_cols(alone))


@of_every_operation
def test_rows_that_no_split_takes_are_walked_in_loops(traits):
    most = MAX_CHUNKS * 8192
    for n_rows, itemsize in itertools.product((1, 66, 132), (2, 4)):
        assert choose(n_rows, most, itemsize, traits=traits).kernel == "split_rows"
        c = choose(n_rows, most + 1, itemsize, traits=traits)
        assert c == choose_loops(n_rows, most + 1, itemsize, traits, NVIDIA)
    n_rows = 2**31 // 33  # more programs of 1,024 columns than 32 bits can count, and fewer
    n_cols = 32 * 1024 + 8
    assert choose(n_rows + 1, n_cols, 2, traits=traits).kernel == "strided_loops"
    assert choose(n_rows - 1, n_cols, 2, traits=traits).kernel == "split_rows"


@of_every_operation
@pytest.mark.parametrize("n_sm", [2, 132])
def test_long_float64_rows(n_sm, traits):
    """They are walked in loops, few or many: their summaries do not fit a word."""
    device = Device(n_sm, nvidia=True)
    for n_rows in (1, n_sm, 10 * n_sm):
        c = choose(n_rows, 8194, 8, traits=traits, device=device)
        assert c == choose_loops(n_rows, 8194, 8, traits, device)


@on_every_device
@of_every_operation
@pytest.mark.parametrize("itemsize", [2, 4, 8])
def test_no_row_is_too_long(itemsize, traits, device):
    """Up to what memory holds, one row or many, at any place: some kernel takes it, in programs
    enough for the device, and none of its constants are measured when it is first called."""
    for n_cols in (2**25 + 3, 2**26, 2**31, 2**33 // itemsize):
        for n_rows in (1, 8, 300):
            if n_rows * n_cols * itemsize > 2**40:
                continue
            for address in (0, itemsize):
                c = choose(
                    n_rows, n_cols, itemsize, traits=traits, device=device, addresses=(address, 0)
                )
                assert c.kernel == "strided_loops" and c.how.wide_index == (n_cols >= 2**31)
                programs = c.programs(n_rows)
                assert min(200, n_rows * 200) <= programs < 2**31
                assert c.chunk_cols * c.n_chunks >= n_cols


@on_every_device
@of_every_operation
@pytest.mark.parametrize("edges", [False, True], ids=["whole", "edges"])
@pytest.mark.parametrize("itemsize", [2, 4, 8])
def test_tiles(itemsize, edges, traits, device):
    vector = 16 // itemsize
    for n_cols in (1, vector - 1, vector, *around(*(2**k for k in range(4, 17)))):
        if n_cols < 1 or (not edges and (n_cols % vector or n_cols <= SHORT)):
            continue
        for n_rows in (1, 131, 132, 263, 264, 528, MANY):
            c = choose_row_tile(n_rows, n_cols, itemsize, vector, edges, traits, device)
            rows, cols, tiles = c.how.block_rows, c.how.block_cols, c.how.tiles
            assert c.kernel == ("aligned_rows" if edges else "packed_rows")
            for number in (rows, cols, c.num_warps):
                assert number & (number - 1) == 0 and number >= 1
            body = n_cols // vector * vector if edges else n_cols
            parts = next((n for n in TILES if n * cols == next_power_of_2(body)), 1)
            few = n_rows < 4 * device.multiprocessors and 1024 < body <= 8192 and itemsize <= 4
            if edges and itemsize == 4 and 32 < body < 64:
                assert cols == 16 and tiles == -(-body // 16) and not c.how.barrier
            elif few:
                assert (rows, cols, tiles) == (1, next_power_of_2(body), 1)
                assert not c.how.barrier
            elif parts == 1:
                assert (
                    body <= 1024
                    and tiles == 1
                    and cols >= max(16, body)
                    and (cols == 16 or cols < 2 * body)
                )
                assert rows * cols <= (16384 if edges else 8192)
                assert not c.how.barrier
            else:
                assert (parts == 8) == (body > 1024) == (rows == 1)
                assert tiles == next(n for n in TILES[parts] if n * cols >= body)
                full = parts * cols >= 16384
                barrier = itemsize == 2 and (full or traits.reduces)
                assert c.how.barrier == (device.nvidia and barrier)
            assert c.num_warps <= 32
            assert c.how.vector == vector and c.max_registers is None
            assert c.programs(7) == 7 and c.launches == (c.how,)
            if n_rows < 2 * device.multiprocessors * 2:
                assert rows == 1, "programs before rows per program"


def test_tiles_of_short_rows():
    def tile(n_rows, n_cols, itemsize, edges, traits=SOFTMAX):
        c = choose_row_tile(n_rows, n_cols, itemsize, 16 // itemsize, edges, traits, NVIDIA)
        return c.how.block_rows, c.num_warps

    assert tile(2**20, 17, 2, True)[0] == 16
    # float32 with edges: in tiles of 16 if a tile of 64 would have empty lanes.
    how = {}
    for cols in (35, 36, 48, 52, 60, 63, 64):
        c = choose_row_tile(MANY, cols, 4, 4, True, SOFTMAX, NVIDIA)
        how[cols] = (c.how.block_rows, c.how.block_cols, c.how.tiles, c.num_warps)
    assert how == {
        35: (16, 32, 1, 2), 36: (16, 16, 3, 4), 48: (16, 16, 3, 4), 52: (16, 16, 4, 4),
        60: (16, 16, 4, 4), 63: (16, 16, 4, 4), 64: (16, 64, 1, 2),
    }  # fmt: skip
    few = choose_row_tile(300, 41, 4, 4, True, SOFTMAX, NVIDIA)
    assert (few.how.block_rows, few.how.tiles, few.num_warps) == (1, 3, 1)
    for cols, warps in ((512, 2), (1024, 4)):
        assert tile(MANY, cols + 1, 4, True)[1] == warps
    for cols, rows, warps in ((64, 16, 2), (128, 8, 2), (256, 4, 1)):
        for itemsize in (2, 4):
            assert tile(MANY, cols + 1, itemsize, True) == (rows, warps)
    assert tile(2**20, 256, 2, False) == (8, 4)
    assert tile(2**20, 32, 4, False) == (16, 2)
    assert tile(2**20, 1024, 4, False) == (1, 4)
    assert tile(2**20, 1024, 4, False, SOFTMAX_VJP) == (1, 4)


@of_every_operation
def test_rows_of_some_hundred_16_bit_elements_lie_in_tiles(traits):
    def tile(n_cols, edges, itemsize=2, n_rows=2**20):
        c = choose_row_tile(n_rows, n_cols, itemsize, 8, edges, traits, NVIDIA)
        return c.how.block_rows, c.how.block_cols, c.how.tiles, c.num_warps

    warps = 1 if traits.reduces else 2
    for n_cols, expected in (
        (264, (4, 128, 3, warps)),
        (384, (4, 128, 3, warps)),
        (392, (4, 128, 4, warps)),
        (512, (4, 128, 4, warps)),
        (520, (2, 256, 3, warps)),
        (1024, (2, 256, 4, warps)),
    ):
        assert tile(n_cols, False) == expected
    if traits.inputs == 2:
        assert tile(77, True) == (8, 32, 3, 2)
        assert tile(301, True) == (8, 128, 3, 4)
    else:
        assert tile(519, True)[2] == 1
    edges = (4, 256, 3, 4) if traits.inputs == 2 else (2, 256, 3, 1)
    assert tile(520 + 1, True) == edges
    assert tile(1031, True) == (*edges[:2], 4, edges[3])
    assert tile(1024, False, itemsize=4)[2] == 1
    assert tile(1024, False, n_rows=263)[2] == 1, "programs before rows per program"


@of_every_operation
@pytest.mark.parametrize("edges", [False, True], ids=["whole", "edges"])
def test_long_rows_lie_in_tiles(edges, traits):
    """The tiles are those of the length alone, for every operation and layout, and so are the
    warps, but for the longest 16-bit rows: up to six tiles of two tensors have twice as many."""

    def tile(n_cols, itemsize):
        n_cols += edges  # a body of n_cols
        c = choose_row_tile(MANY, n_cols, itemsize, 16 // itemsize, edges, traits, NVIDIA)
        return c.how.block_cols, c.how.tiles, c.num_warps

    for itemsize in (2, 4, 8):
        vector = 16 // itemsize
        for cols in (256, 512, 1024, 2048):
            for tiles in TILES[8]:
                assert tile(tiles * cols, itemsize)[:2] == (cols, tiles)
            assert tile(4 * cols + vector, itemsize)[:2] == (cols, 5)
            assert tile(5 * cols + vector, itemsize)[:2] == (cols, 6)
            assert tile(6 * cols + vector, itemsize)[:2] == (cols, 8)
    steps = ((2048, 1), (4096, 2), (8192, 4))
    for itemsize, longer in ((2, ((16384, 4), (65536, 16))), (4, ((16384, 8), (65536, 32)))):
        for cols, warps in (*steps, *longer):
            assert tile(cols, itemsize)[2] == warps
    assert [tile(cols, 8)[2] for cols in (2048, 8192)] == [4, 16]
    for cols in (8200, 10240, 12288, 12296, 20480):
        power = next_power_of_2(cols)
        many = traits.inputs == 2 and cols <= 3 * power // 4
        assert tile(cols, 2)[2] == power // (2048 if many else 4096)
        assert tile(cols, 4)[2] == power // 2048


def test_tiles_of_rows_that_are_reduced():
    def tile(n_cols, itemsize, edges):
        vector = 16 // itemsize
        c = choose_row_tile(2**20, n_cols, itemsize, vector, edges, LOGSUMEXP, NVIDIA)
        return c.how.block_rows, c.num_warps

    for itemsize in (2, 4, 8):
        for cols, warps in ((16, 2), (64, 2), (128, 2), (512, 1), (1024, 1)):
            assert tile(cols, itemsize, False)[1] == warps
    for cols, rows in ((16, 128), (128, 16), (256, 16)):
        assert tile(cols, 2, False)[0] == rows
        assert tile(cols, 4, False)[0] == 1024 // cols
        assert tile(cols, 2, True)[0] == min(16, 1024 // cols)


# --- rows that are split

SPLIT_COLS = (
    4096,
    *around(8192, 16384, 32768, 40960, 65536, 131072, 262144, 524288, 1 << 20, 1_310_720),
    1 << 22,
    1 << 25,
)


@on_every_device
@of_every_operation
@pytest.mark.parametrize("itemsize", [2, 4])
def test_split_rows_cover_the_row(itemsize, traits, device):
    for n_cols in SPLIT_COLS:
        for vector in (1, 16 // itemsize):
            edges = bool(n_cols % vector)
            for n_rows in (1, 16, 17, 132, MANY):
                c = choose_split_rows(n_rows, n_cols, itemsize, vector, edges, traits, device)
                some = choose_split_rows(
                    n_rows, n_cols, itemsize, vector, edges, traits._replace(any_order=True), device
                )
                assert some.programs(n_rows) >= n_rows or some.max_programs >= 132, "with integers"
                how = c.how
                assert c.kernel == "split_rows"
                assert c.n_chunks * c.chunk_cols >= n_cols > (c.n_chunks - 1) * c.chunk_cols, (
                    "no gap, no idle chunk"
                )
                assert c.chunk_cols <= how.block and c.chunk_cols % vector == 0
                assert how.block in (1024, 2048, 4096, 8192, 16384) and c.n_chunks <= MAX_CHUNKS
                assert how.barrier <= (device.nvidia and itemsize == 2)
                assert device.nvidia or c.max_registers is None
                assert (how.vector, how.edges) == (vector, edges)
                assert how.pairs == (itemsize == 2 and vector > 1)
                assert how.keep_terms <= (
                    traits.keeps_terms and how.depth < 2 and not c.two_launches
                ), "what the kernel can do"
                assert how.depth in (0, 1, 2) and (c.max_programs is None) == (how.depth == 0)
                assert c.max_programs is None or c.max_programs >= device.multiprocessors
                assert how.wait == (device.nvidia and not c.two_launches)
                assert how.publish and how.write
                assert how.words == how.polls * 32 * c.num_warps >= c.n_chunks
                assert device.nvidia or c.two_launches or c.n_chunks == 1
                assert not (c.two_launches and how.depth)
                if how.block > 2048 and device.nvidia and vector > 1:
                    finer = n_rows * c.n_chunks * how.block // 2048
                    assert finer >= 8 * device.multiprocessors or c.n_chunks > 48, (
                        "work for all multiprocessors"
                    )


@pytest.mark.parametrize("n_sm", [1, 78, 132])
@forward_and_backward
@pytest.mark.parametrize("itemsize", [2, 4])
def test_split_rows_wait_only_for_chunks_that_run(itemsize, traits, n_sm):
    """65,536 registers and 48 warps in each multiprocessor hold all chunks of a row that is read
    once."""
    launches = set()
    for n_rows in (1, 17, MANY):
        for n_cols in (
            *SPLIT_COLS,
            *(n_sm * per_sm * 8192 + more for per_sm in range(1, 9) for more in (0, 8)),
        ):
            c = split(n_rows, n_cols, itemsize, traits=traits, device=Device(n_sm, nvidia=True))
            warps = min(65536 // (32 * -(-c.max_registers // 8) * 8), 48, 16 * c.num_warps)
            at_once = n_sm * (warps // c.num_warps)
            assert c.two_launches or c.n_chunks <= at_once
            assert c.how.depth == 0 or c.max_programs == at_once
            launches.add(len(c.launches))
    assert launches == {1, 2}


LOSS = Traits(inputs=1, numbers=True)
"""A cross-entropy with its gradient."""

CANDIDATES = {
    # (itemsize, edges, traits): (block, registers, depth) on both sides of each length, None for
    # two launches
    (4, False, SOFTMAX): {
        1_048_576: ((8192, 96, 0), (4096, 128, 2)),
        528 * 4096: ((4096, 128, 2), None),
    },
    (4, True, SOFTMAX): {524_288: ((8192, 112, 0), (4096, 128, 2))},
    (4, False, LOG_SOFTMAX): {262_144: ((8192, 128, 0), (4096, 128, 2))},
    (4, False, SOFTMAX_VJP): {
        131_072: ((8192, 160, 0), (2048, 128, 2)),
        528 * 2048: ((2048, 128, 2), (8192, 168, 0)),
        1_622_016: ((8192, 168, 0), (16384, 128, 1)),
        132 * 16384: ((16384, 128, 1), None),
    },
    (4, False, LOG_SOFTMAX_VJP): {131_072: ((8192, 168, 0), (2048, 128, 2))},
    (4, True, SOFTMAX_VJP): {
        262_144: ((8192, 168, 0), (2048, 128, 2)),
        1_622_016: ((8192, 168, 0), (16384, 128, 1)),
    },
    (4, True, LOG_SOFTMAX_VJP): {262_144: ((8192, 168, 0), (2048, 128, 2))},
    (2, False, SOFTMAX): {
        196_608: ((8192, 64, 0), (8192, 80, 1)),
        1_310_720: ((8192, 80, 1), (16384, 80, 1)),
        3_145_728: ((16384, 80, 1), (16384, 128, 2)),
        264 * 16384: ((16384, 128, 2), None),
    },
    (2, False, LOG_SOFTMAX): {
        196_608: ((8192, 64, 0), (8192, 96, 1)),
        2_097_152: ((8192, 96, 1), (16384, 128, 2)),
    },
    (2, True, SOFTMAX): {
        114_688: ((2048, 72, 0), (8192, 96, 1)),
        2_097_152: ((8192, 96, 1), (16384, 128, 2)),
    },
    (2, True, LOG_SOFTMAX): {114_688: ((2048, 72, 0), (8192, 96, 1))},
    (2, False, LOSS): {655_360: ((8192, 64, 0), (8192, 96, 1))},
    (2, True, LOSS): {262_144: ((2048, 72, 0), (8192, 96, 1))},
    (2, False, SOFTMAX_VJP): {
        131_072: ((8192, 128, 0), (4096, 128, 2)),
        528 * 4096: ((4096, 128, 2), (16384, 128, 1)),
        264 * 16384: ((16384, 128, 1), None),
    },
    (4, False, LOGSUMEXP): {660 * 8192: ((8192, 96, 0), None)},
    (4, True, LOGSUMEXP): {660 * 8192: ((8192, 96, 0), None)},
    (2, False, LOGSUMEXP): {
        262_144: ((2048, 96, 0), (4096, 96, 0)),
        1_048_576: ((4096, 96, 0), (8192, 128, 0)),
        528 * 8192: ((8192, 128, 0), None),
    },
    (2, True, LOGSUMEXP): {262_144: ((2048, 96, 0), (4096, 96, 0))},
    (2, True, SOFTMAX_VJP): {
        24_576: ((4096, 128, 0), (8192, 128, 0)),
        262_144: ((8192, 128, 0), (4096, 128, 2)),
        528 * 4096: ((4096, 128, 2), (8192, 168, 1)),
        396 * 8192: ((8192, 168, 1), (16384, 128, 0)),
        264 * 16384: ((16384, 128, 0), None),
    },
}

BY_FEWER = {
    # The same for accesses of fewer elements than a whole vector.
    (2, 4, SOFTMAX): {1_310_720: ((8192, 80, 1), (16384, 128, 2))},
    (2, 4, SOFTMAX_VJP): {
        528 * 4096: ((4096, 128, 2), (8192, 168, 1)),
        396 * 8192: ((8192, 168, 1), (16384, 128, 0)),
    },
    (4, 2, SOFTMAX_VJP): {
        528 * 2048: ((2048, 128, 2), (4096, 168, 1)),
        396 * 4096: ((4096, 168, 1), (16384, 128, 1)),
    },
    **{
        (itemsize, 1, SOFTMAX): {
            524_288: ((4096, 40, 0), (4096, 80, 2)),
            396 * 4096: ((4096, 80, 2), None),
        }
        for itemsize in (2, 4)
    },
    (2, 1, LOG_SOFTMAX): {524_288: ((4096, 128, 0), (4096, 80, 2))},
    (2, 1, LOGSUMEXP): {524_288: ((4096, 128, 0), None)},
    **{
        (itemsize, 1, traits): {
            65_536: ((2048, 96, 1), (4096, 80, 1)),
            396 * 4096: ((4096, 80, 1), None),
        }
        for itemsize in (2, 4)
        for traits in (SOFTMAX_VJP, LOG_SOFTMAX_VJP)
    },
}


@pytest.mark.parametrize("case", CANDIDATES, ids=str)
def test_candidates_for_many_rows_change_at_their_thresholds(case):
    itemsize, edges, traits = case
    for longest, (before, after) in CANDIDATES[case].items():
        for n_cols, expected in ((longest - 1, before), (longest, before), (longest + 1, after)):
            c = split(10**5, n_cols, itemsize, traits=traits, edges=edges)
            assert c.two_launches == (expected is None), n_cols
            if expected is not None:
                assert (c.how.block, c.max_registers, c.how.depth) == expected, n_cols


@pytest.mark.parametrize("case", BY_FEWER, ids=str)
def test_so_do_candidates_for_narrower_accesses(case):
    itemsize, vector, traits = case
    for longest, (before, after) in BY_FEWER[case].items():
        for n_cols, expected in ((longest - 1, before), (longest, before), (longest + 1, after)):
            c = split(10**5, n_cols, itemsize, traits=traits, vector=vector)
            assert c.two_launches == (expected is None), n_cols
            if expected is not None:
                assert (c.how.block, c.max_registers, c.how.depth) == expected, n_cols


def test_a_longer_chunk_has_more_warps():
    """32 or 64 elements of a tensor to a thread; the longest of float32 has 32 of two."""
    warps = {
        (itemsize, traits.inputs, vector, n_cols): split(
            10**5, n_cols, itemsize, traits=traits, vector=vector
        ).num_warps
        for itemsize, traits, vector, n_cols in (
            (2, SOFTMAX, 8, 2_000_000), (2, SOFTMAX_VJP, 8, 3_000_000),
            (4, SOFTMAX_VJP, 4, 1_500_000), (4, SOFTMAX_VJP, 4, 2_000_000),
            (2, SOFTMAX_VJP, 1, 60_000), (2, SOFTMAX_VJP, 1, 100_000), (4, SOFTMAX, 1, 600_000),
        )
    }  # fmt: skip
    assert list(warps.values()) == [8, 8, 4, 16, 4, 8, 8]


def test_programs_back_off_before_they_poll_only_where_16_bit_rows_are_read_alone():
    backoffs = {
        (itemsize, traits.inputs, traits.reduces, traits.keeps_terms, edges, c.how.depth): (
            c.how.backoff
        )
        for itemsize, traits, edges in itertools.product((2, 4), OPERATIONS.values(), (False, True))
        for c in (
            split(10**5, n_cols, itemsize, traits=traits, edges=edges)
            for n_cols in (40_000, 200_000, 2**20, 2**21)
        )
    }
    assert {case: ns for case, ns in backoffs.items() if ns} == {
        (2, 1, False, True, True, 0): 300,
        (2, 1, False, True, True, 1): 500,
        (2, 1, False, False, True, 0): 300,
        (2, 1, False, False, True, 1): 500,
        (2, 1, False, False, False, 1): 500,
    }


FINE, MIDDLE, COARSE, DEEP = 2048, 4096, 8192, "depth 1"
FEW = {
    # rows × columns: the chunks of few rows, None where each multiprocessor has enough of them
    # anyway
    (1, 32_768): FINE,
    (66, 32_768): FINE,  # 1,056 chunks of 2,048: eight for each multiprocessor
    (67, 32_768): MIDDLE,
    (1, 96 * 2048): FINE,
    (1, 96 * 2048 + 8): MIDDLE,  # 97 chunks
    (1, 96 * 4096): MIDDLE,
    (1, 96 * 4096 + 8): COARSE,
    (132, 32_768): MIDDLE,  # 1,056 chunks of 4,096
    (133, 32_768): DEEP,
    (33, 131_072): MIDDLE,
    (34, 131_072): DEEP,
    (4, 1 << 20): COARSE,
    # more than four chunks of 8,192 for each multiprocessor, and rows of more than 128 of 4,096
    (5, 1 << 20): None,
    (8, 1 << 19): COARSE,
    (9, 1 << 19): DEEP,
    (131, 131_072): DEEP,
    (132, 131_072): None,  # sixteen chunks of 8,192 for each multiprocessor
}


@pytest.mark.parametrize("shape", FEW, ids=str)
def test_few_rows_are_cut_finer(shape):
    for itemsize, traits in itertools.product((2, 4), OPERATIONS.values()):
        candidate = candidate_for_few_rows(*shape, itemsize, traits, NVIDIA)
        if FEW[shape] is None:
            assert candidate is None
            continue
        c = split(*shape, itemsize, traits=traits)
        taken = (c.how.block, c.max_registers, c.num_warps, c.how.keep_terms, c.how.depth)
        assert taken == candidate[:5]
        assert candidate.depth == (1 if FEW[shape] == DEEP else 0)
        assert candidate.block == (4096 if candidate.depth else FEW[shape])
        assert candidate.keep_terms == traits.keeps_terms
        backward = traits.inputs > 1
        wide = itemsize == 4 and backward
        warps = {2048: 2, 4096: 4 if wide else 2, 8192: 8 if wide else 4}
        assert candidate.num_warps == warps[candidate.block]
        many_warps = candidate.block == 8192 and wide
        little_held = not backward and not (candidate.depth and itemsize == 4)
        assert candidate.registers == (128 if many_warps or little_held else 168)


def test_few_rows_are_counted_in_chunks_per_multiprocessor():
    for n_sm in (1, 78, 132):
        for per_multiprocessor, block in ((8, 2048), (9, 4096)):
            device = Device(n_sm, nvidia=True)
            c = candidate_for_few_rows(per_multiprocessor * n_sm, 2048, 4, SOFTMAX, device)
            assert c.block == block


def test_rows_without_a_common_vector_hold_an_element_to_a_register():
    for traits, expected in (
        (SOFTMAX, (4096, 40, True)),
        (SOFTMAX_VJP, (4096, 80, False)),
        (LOG_SOFTMAX, (4096, 128, False)),
    ):
        for n_rows in (1, MANY):
            c = split(n_rows, 1 << 17, 2, traits=traits, vector=1)
            assert (c.how.block, c.max_registers, c.how.keep_terms) == expected
            assert not c.how.pairs and not c.how.barrier


def test_longest_rows_stay_within_the_most_chunks():
    for itemsize in (2, 4):
        for traits in (SOFTMAX, SOFTMAX_VJP):
            for n_cols in (MAX_CHUNKS * 8192, MAX_CHUNKS * 8192 - 1):
                assert choose(1, n_cols, itemsize, traits=traits).n_chunks <= MAX_CHUNKS


def test_two_launches_publish_before_they_write_and_nobody_waits():
    c = split(10**5, 528 * 8192 + 8, 2)
    publish, write = c.launches
    assert (publish.publish, publish.write, publish.wait) == (True, False, False)
    assert (write.publish, write.write, write.wait) == (False, True, False)
    assert publish._replace(publish=False, write=True) == write
    launches, workspace = plan.row_launches(plan.SOFTMAX, c, 10**5, 528 * 8192 + 8, (0, 0))
    assert [launch.constants["HOW"] for launch in launches] == [publish, write]
    assert [launch.grid for launch in launches] == [10**5 * 529] * 2
    assert workspace.n_words == 10**5 * 529 and not workspace.zeroed, "the first writes every word"


def test_nobody_waits_where_waiting_is_not_known():
    for n_cols, two_launches in ((4096, False), (40_000, True)):
        c = split(1, n_cols, 4, device=DEVICES["any"])
        assert c.two_launches == two_launches
        for how in c.launches:
            assert how.wait is False


# --- words

SPLIT = SplitRows(
    block=1024,
    vector=1,
    edges=False,
    pairs=False,
    barrier=False,
    keep_terms=False,
    depth=0,
    wait=True,
    backoff=0,
    publish=True,
    write=True,
    words=128,
    polls=1,
)


@pytest.mark.parametrize("num_chunks", [1, 128, 129, 255, 256, 257, 511, 512, 513])
@pytest.mark.parametrize("num_warps", [1, 2, 4])
def test_words_give_every_thread_lanes_of_its_own(num_chunks, num_warps):
    words, polls = polling.lanes_and_polls(num_chunks, num_warps)
    assert words & (words - 1) == 0
    assert words == max(32 * num_warps, next_power_of_2(num_chunks)) == polls * 32 * num_warps
    how = SPLIT._replace(words=words, polls=polls)
    c = Choice("split_rows", how, num_warps, n_chunks=num_chunks, chunk_cols=1024)
    n_cols = num_chunks * 1024
    (launch,), workspace = plan.row_launches(plan.SOFTMAX, c, 3, n_cols, (n_cols, n_cols))
    assert workspace.n_words == 3 * num_chunks and workspace.zeroed
    assert launch.grid == c.programs(3) == 3 * num_chunks
    assert launch.constants == {"OP": plan.SOFTMAX, "HOW": how}
    assert launch.numbers == (
        (n_cols,), (n_cols,), 3, n_cols, num_chunks, 1024, polling.MAX_POLLS,
    )  # fmt: skip
    assert launch.options == {"num_warps": num_warps}


def test_no_more_programs_than_the_device_holds():
    how = SPLIT._replace(depth=1)
    c = Choice("split_rows", how, 4, n_chunks=10, chunk_cols=1024, max_programs=25)
    for op in plan.OPERATIONS.values():
        strides = (0,) * (op.inputs + 1)
        launches = [plan.row_launches(op, c, n_rows, 10240, strides)[0] for n_rows in (2, 3, 1000)]
        assert [launch.grid for (launch,) in launches] == [20, 25, 25]
    assert [c.programs(n_rows) for n_rows in (2, 3, 1000)] == [20, 25, 25]


@pytest.mark.parametrize(
    "num_chunks, inner, warps", [(2, 32, 8), (9, 32, 4), (256, 16, 8), (3, 1, 8), (64, 64, 8)]
)
def test_words_of_columns_give_every_thread_lanes_of_its_own(num_chunks, inner, warps):
    chunks, polls = polling.lanes_and_polls(num_chunks, warps, width=inner)
    assert chunks & (chunks - 1) == 0 and chunks >= num_chunks
    assert polls * 32 * warps == chunks * inner
    how = SplitStrided(256, inner, 1, False, False, wait=True, chunks=chunks, polls=polls)
    c = Choice("split_strided", how, warps, max_registers=128, n_chunks=num_chunks)
    n_cols = num_chunks * 256
    (launch,), workspace = plan.strided_launches(
        plan.SOFTMAX, c, (3, 700, 500), (100, 1, 2), (10, 20), n_cols
    )
    assert launch.grid == 3 * -(-100 // inner) * num_chunks
    assert workspace.n_words == launch.grid * inner and workspace.zeroed
    assert launch.constants == {"OP": plan.SOFTMAX, "HOW": how} and how.wait is True
    triples = ((700, 10, 1),), ((500, 20, 2),)
    assert launch.numbers == (*triples, n_cols, 100, num_chunks, polling.MAX_POLLS)
    assert launch.options == {"num_warps": warps, "maxnreg": 128}


# --- columns


@on_every_device
@forward_and_backward
@pytest.mark.parametrize("itemsize", [2, 4, 8])
def test_strided(itemsize, traits, device):
    backward = traits.inputs > 1
    for n_cols in (1, 2, *around(256, 512, 1024, 2048), 50000):
        for n_inner in (1, 2, 15, 16, 17, 63, 64, 65, 5000):
            for n_outer in (1, 264, 4224):
                c = strided(n_outer, n_cols, n_inner, itemsize, traits=traits, device=device)
                how = c.how
                assert c.kernel in ("strided", "split_strided", "strided_loops")
                assert how.block_inner <= next_power_of_2(n_inner)
                for number in (how.block_inner, how.block_cols, c.num_warps):
                    assert number & (number - 1) == 0
                assert n_inner < 8 or how.block_inner >= 8, "16 bytes or more side by side"
                assert 1 <= c.num_warps <= 16
                whole, loops = c.kernel == "strided", c.kernel == "strided_loops"
                assert (c.kernel == "split_strided") <= (c.n_chunks > 1)
                assert not whole or (c.n_chunks == 1 and how.tiles * how.block_cols >= n_cols)
                if itemsize == 8 or not device.nvidia:
                    assert whole == (n_cols <= (2048 if itemsize <= 4 else 1024)) != loops
                    assert c.max_registers is None and not (whole and how.barrier)
                else:
                    assert whole == (n_cols <= (512 if backward or itemsize == 2 else 1024))
                    assert loops == (n_cols > 65536)


def columns_of(shape, itemsize, *, col_stride, inner_stride=1, outer_stride=0, address=0, **more):
    """The choice for x and y of this shape that lie alike, but for the address of y."""
    return choose_strided(
        *shape,
        itemsize,
        traits=SOFTMAX,
        addresses=(0, address),
        outer_strides=(outer_stride,) * 2,
        col_strides=(col_stride,) * 2,
        inner_strides=(inner_stride,) * 2,
        device=NVIDIA,
        **more,
    )


@pytest.mark.parametrize("itemsize", [2, 4, 8])
def test_offsets_beyond_31_bits_are_wide(itemsize):
    for largest, wide in ((2**31 - 1, False), (2**31, True)):
        along_cols = columns_of((1, 2, 1), itemsize, col_stride=largest)
        along_inner = columns_of((1, 1, 2), itemsize, col_stride=1, inner_stride=largest)
        both = columns_of((1, 2, 2), itemsize, col_stride=largest - 8, inner_stride=8)
        for c in (along_cols, along_inner, both):
            assert c.how.wide_index == wide
        outer = columns_of((2, 2, 1), itemsize, col_stride=1, outer_stride=largest)
        assert not outer.how.wide_index, "offsets within one outer slice"


@pytest.mark.parametrize("n_cols, kernel", [
    (21, "strided"), (4096, "split_strided"), (100_000, "strided_loops")
])  # fmt: skip
def test_a_kernel_is_told_of_vectors_that_triton_does_not_see(n_cols, kernel):
    """Triton sees of an integer whether 16 divides it."""
    for pixels, vector in ((256, 1), (16 * 17, 1), (264, 8), (196, 4)):
        c = columns_of((3, n_cols, pixels), 2, col_stride=pixels, outer_stride=n_cols * pixels)
        assert (c.kernel, c.how.vector) == (kernel, vector)
    odd = columns_of((3, n_cols, 256), 2, col_stride=256, outer_stride=n_cols * 256 + 8)
    assert (odd.kernel, odd.how.vector) == (kernel, 8)
    odd = columns_of((3, n_cols, 196), 2, col_stride=196, address=8)
    assert odd.how.vector == 1
    # What Triton sees decides nothing else.
    assert choose_columns(
        Columns(3, n_cols, 256, 2, vector=8, stated_vector=1, wide_index=False), SOFTMAX, NVIDIA
    ) == columns_of((3, n_cols, 256), 2, col_stride=256, outer_stride=n_cols * 256)


def test_what_is_held_decides_of_columns_too():
    """float32 in, float16 out."""
    for n_cols in (1024, 4096):
        c = columns_of((3, n_cols, 200), 2, col_stride=200, held=4)
        assert c == strided(3, n_cols, 200, 4, vector=8) != strided(3, n_cols, 200, 2, vector=8)


WHOLE = {
    # n_cols: (tiles, block_cols, block_inner, warps)
    (4, SOFTMAX): {
        5: (5, 1, 128, 1),
        21: (6, 4, 64, 1),
        64: (1, 64, 64, 4),
        150: (5, 32, 32, 4),
        256: (1, 256, 32, 8),
        512: (1, 512, 32, 16),
        1000: (8, 128, 16, 16),
    },
    (4, SOFTMAX_VJP): {150: (5, 32, 32, 4), 512: (1, 512, 32, 16)},
    (2, SOFTMAX): {
        21: (6, 4, 64, 1),
        80: (5, 16, 64, 2),
        150: (5, 32, 64, 4),
        300: (5, 64, 32, 4),
        512: (1, 512, 32, 8),
    },
    (2, SOFTMAX_VJP): {150: (5, 32, 64, 4), 300: (5, 64, 64, 8), 512: (1, 512, 64, 16)},
}


@pytest.mark.parametrize("itemsize, traits", WHOLE, ids=str)
def test_tiles_of_whole_strands(itemsize, traits):
    for n_cols, tile in WHOLE[itemsize, traits].items():
        c = strided(30, n_cols, 5000, itemsize, traits=traits)
        how = c.how
        assert (c.kernel, c.n_chunks) == ("strided", 1)
        assert (how.tiles, how.block_cols, how.block_inner, c.num_warps) == tile
        large = next_power_of_2(n_cols) >= (512 if traits.inputs == 1 else 256)
        assert how.barrier == (itemsize == 2 and large)


@on_every_device
@forward_and_backward
@pytest.mark.parametrize("itemsize", [2, 4, 8])
def test_tiles_hold_whole_strands(itemsize, traits, device):
    for n_cols in (1, *around(*(2**k for k in range(1, 11)))):
        for n_outer, n_inner in ((1, 1), (1, 8), (1, 300), (3, 5000), (10**5, 64)):
            c = strided(n_outer, n_cols, n_inner, itemsize, traits=traits, device=device)
            if c.kernel != "strided":
                continue
            how = c.how
            room = how.tiles * how.block_cols
            assert room - how.block_cols < n_cols <= room, "no tile is empty"
            assert how.block_inner <= next_power_of_2(n_inner)
            for number in (how.block_cols, how.block_inner, c.num_warps):
                assert number & (number - 1) == 0 and number >= 1


@forward_and_backward
@pytest.mark.parametrize("itemsize", [2, 4])
def test_long_dimensions_are_split(itemsize, traits):
    narrow_forward = itemsize == 2 and traits.inputs == 1
    longest = 65536
    for n_cols in around(1024, 4096, 16384, longest):
        for n_inner in (1, 7, 16, 33, 5000):
            c = strided(3, n_cols, n_inner, itemsize, traits=traits)
            assert (c.kernel == "strided_loops") == (n_cols > longest)
            if 1024 < n_cols <= longest:
                how = c.how
                assert c.kernel == "split_strided" and how.wait is True
                assert c.n_chunks * how.block_cols >= n_cols > (c.n_chunks - 1) * how.block_cols
                assert how.block_inner <= next_power_of_2(n_inner) and not c.two_launches
                assert how.barrier == (itemsize == 2) and how.vector == 8
                assert how.chunks >= c.n_chunks
                assert how.polls * 32 * c.num_warps == how.chunks * how.block_inner
            for vector in (1, 2, 4):
                narrow = strided(500, n_cols, n_inner, itemsize, traits=traits, vector=vector)
                assert narrow.how.vector == vector
                assert (narrow.kernel == "split_strided") <= (vector > (2 if narrow_forward else 1))
                # Two by two, long strands are walked along; one by one as well, unless programs
                # are few.
                few = strided(3, n_cols, n_inner, itemsize, traits=traits, vector=vector)
                most = longest if vector > 2 else 16384
                long = 1024 < n_cols <= most and (n_inner < 5000 or vector == 4)
                assert not long or few.kernel == "split_strided"
                assert n_cols <= most or few.kernel == "strided_loops"
    small = Device(8, nvidia=True)  # 16 programs of 8 warps and 128 registers at once
    for n_cols, kernel in ((16 * 512, "split_strided"), (16 * 512 + 1, "strided_loops")):
        assert strided(3, n_cols, 64, 4, device=small).kernel == kernel


@pytest.mark.parametrize("itemsize, traits, n_cols, tile", [
    (4, SOFTMAX, 16384, (512, 32, 8)),
    (4, SOFTMAX, 16385, (1024, 16, 8)),
    (4, SOFTMAX_VJP, 4096, (256, 32, 8)),
    (4, SOFTMAX_VJP, 4097, (512, 32, 16)),
    (4, SOFTMAX_VJP, 16384, (512, 32, 16)),
    (4, SOFTMAX_VJP, 16385, (1024, 16, 16)),
    (2, SOFTMAX, 8192, (512, 32, 4)),
    (2, SOFTMAX, 8193, (1024, 32, 8)),
    (2, SOFTMAX, 32769, (2048, 16, 8)),
    (2, SOFTMAX_VJP, 8192, (512, 32, 8)),
    (2, SOFTMAX_VJP, 8193, (1024, 32, 16)),
])  # fmt: skip
def test_tiles_of_long_strands(itemsize, traits, n_cols, tile):
    c = strided(300, n_cols, 64, itemsize, traits=traits)
    assert (c.how.block_cols, c.how.block_inner, c.num_warps) == tile


@forward_and_backward
@pytest.mark.parametrize("itemsize", [2, 4])
def test_few_strands_are_cut_finer(itemsize, traits):
    """Counted in chunks of 512 by 32: under two for each multiprocessor they are of 256, 32 bytes
    across; under a quarter, of eight strands, whatever their bytes."""

    def tile(chunks, n_outer=1):
        c = strided(n_outer, 512 * chunks, 32, itemsize, traits=traits)
        return c.how.block_cols, c.how.block_inner, c.num_warps

    narrow, wide = (256, 8, 4), (256, 32 // itemsize, 4)
    assert [tile(chunks) for chunks in (4, 32, 33, 128)] == [narrow, narrow, wide, wide]
    assert tile(8, 4) == narrow and tile(11, 3) == wide and tile(8, 32) == wide
    assert tile(8, 33)[0] > 256 or itemsize == 4 and traits.inputs == 2
    assert tile(8, 33)[1] == 32


@on_every_device
@forward_and_backward
@pytest.mark.parametrize("itemsize", [2, 4, 8])
def test_loops_have_chunks_enough_and_not_too_many(itemsize, traits, device):
    for n_cols in (2049, 4096, 65537, 10**6, 2**24):
        for n_outer, n_inner in (
            (1, 1),
            (1, 8),
            (1, 33),
            (1, 128),
            (7, 300),
            (1, 10**5),
            (10**5, 64),
        ):
            for vector in (1, 8):
                columns = Columns(n_outer, n_cols, n_inner, itemsize, vector, vector, False)
                c = choose_strided_loops(columns, traits, device)
                how = c.how
                assert c.kernel == "strided_loops" and (c.n_chunks > 1) == c.two_launches
                assert how.vector == vector
                assert c.n_chunks * c.chunk_cols >= n_cols > (c.n_chunks - 1) * c.chunk_cols, (
                    "no gap, no idle chunk"
                )
                assert c.chunk_cols % how.block_cols == 0, "tiles do not reach into the next chunk"
                groups = n_outer * -(-n_inner // how.block_inner)
                assert groups * c.n_chunks <= max(groups, 32 * device.multiprocessors)
                assert c.n_chunks <= 512
                balanced = math.isqrt(n_cols * itemsize * traits.inputs // 8)
                most = min(balanced, max(256, 512 // groups))
                wanted = min(most, max(1, 32 * device.multiprocessors // groups))
                assert c.n_chunks <= most
                words = c.n_chunks * how.block_inner * 8
                held = c.chunk_cols * how.block_inner * itemsize * traits.inputs
                assert c.n_chunks == 1 or words <= held, "no more summaries than elements"
                assert c.n_chunks > wanted // 2 or c.chunk_cols == how.block_cols, (
                    "chunks are whole tiles; they lose less than half by that"
                )


@pytest.mark.parametrize("itemsize, traits, vector, tile", [
    (8, SOFTMAX, 2, (64, 32, 4)),
    (8, SOFTMAX_VJP, 2, (64, 32, 4)),
    (4, SOFTMAX, 4, (64, 64, 4)),
    (4, SOFTMAX_VJP, 4, (64, 64, 8)),
    (2, SOFTMAX, 8, (256, 32, 4)),
    (2, SOFTMAX_VJP, 4, (64, 32, 4)),
    (2, SOFTMAX_VJP, 8, (64, 128, 4)),
])  # fmt: skip
def test_tiles_of_loops(itemsize, traits, vector, tile):
    columns = Columns(3, 16385, 5000, itemsize, vector, vector, wide_index=False)
    c = choose_strided_loops(columns, traits, NVIDIA)
    assert (c.how.block_cols, c.how.block_inner, c.num_warps) == tile
    c = choose_strided_loops(columns._replace(n_cols=16384), traits, NVIDIA)
    shorter = (64, 32, 2) if (itemsize, traits) == (2, SOFTMAX) else tile
    assert (c.how.block_cols, c.how.block_inner, c.num_warps) == shorter


@pytest.mark.parametrize("op", plan.OPERATIONS.values(), ids=plan.OPERATIONS)
def test_loops_publish_before_they_write(op):
    n_tensors = op.inputs + 1
    outer, inner = (3, *(0,) * n_tensors), (100, *(1,) * n_tensors)
    how = StridedLoops(64, 32, vector=4, wide_index=False, publish=True, write=True)
    c = Choice("strided_loops", how, 4, n_chunks=5, chunk_cols=128, two_launches=True)
    first, second = c.launches
    assert (first.publish, first.write) == (True, False)
    assert first._replace(publish=False, write=True) == second
    col_strides = (100,) * n_tensors
    (publish, write), workspace = plan.strided_launches(op, c, outer, inner, col_strides, 600)
    assert publish.constants == {"OP": op, "HOW": first}
    assert write.constants == {"OP": op, "HOW": second}
    assert publish.numbers == write.numbers and publish.options == write.options
    assert publish.grid == write.grid == 3 * 4 * 5
    assert workspace.n_words == 2 * 32 * publish.grid and not workspace.zeroed
    once = c._replace(n_chunks=1, two_launches=False)
    (both,), workspace = plan.strided_launches(op, once, outer, inner, col_strides, 600)
    assert both.constants == {"OP": op, "HOW": how} and how.publish and how.write
    assert both.grid == 3 * 4 and workspace.n_words == 1 and not workspace.zeroed


def test_launches_without_words_have_no_workspace():
    c = choose(MANY, 100, 2)
    (launch,), workspace = plan.row_launches(plan.SOFTMAX, c, MANY, 100, (100, 100))
    assert workspace is None and launch.grid == -(-MANY // c.how.block_rows)
    assert launch.numbers == ((100,), (100,), MANY, 100)
    c = strided(3, 40, 100, 4)
    (launch,), workspace = plan.strided_launches(
        plan.SOFTMAX_VJP, c, (3, 1, 2, 3), (100, 4, 5, 6), (7, 8, 9), 40
    )
    assert workspace is None and launch.grid == 3 * -(-100 // c.how.block_inner)
    assert launch.numbers == (((1, 7, 4), (2, 8, 5)), ((3, 9, 6),), 40, 100)


@on_every_device
@pytest.mark.parametrize("itemsize", [2, 4, 8])
def test_rows_in_loops(itemsize, device):
    """What is left for rows that no geometry of rows takes, as a single column each."""
    for n_rows, n_cols in itertools.product((1, 5, MANY), (8193, 10**6, MAX_CHUNKS * 8192 + 1)):
        c = choose_loops(n_rows, n_cols, itemsize, LOGSUMEXP, device)
        columns = Columns(n_rows, n_cols, 1, itemsize, 1, 1, wide_index=False)
        assert c == choose_strided_loops(columns, LOGSUMEXP, device)
        assert c.kernel == "strided_loops" and c.how.block_inner == c.how.vector == 1
        long_16_bit = itemsize == 2 and n_cols > 16384
        assert c.how.block_cols == (8192 if long_16_bit else 4096 if itemsize == 4 else 2048)
        assert c.n_chunks * c.chunk_cols >= n_cols > (c.n_chunks - 1) * c.chunk_cols
        assert c.programs(n_rows) <= max(n_rows, 32 * device.multiprocessors)
        assert (c.n_chunks == 1) == (n_rows == MANY)
    for n_cols, wide in ((2**31 - 1, False), (2**31, True)):
        assert choose_loops(1, n_cols, itemsize, LOGSUMEXP, device).how.wide_index == wide


# --- what is asked for by name


def test_what_is_insisted_on():
    most = row_tiles.MAX_COLS
    assert choose(MANY, 64, 4, implementation="split_rows").kernel == "split_rows"
    assert choose(MANY, 64, 4, implementation="aligned_rows").kernel == "aligned_rows"
    assert choose(MANY, 65, 4, implementation="packed_rows").how.vector == 1
    assert choose(MANY, most, 4, implementation="packed_rows").how.block_cols == most // 8
    assert choose(MANY, most, 4, implementation="aligned_rows").how.tiles == 8


@pytest.mark.parametrize(
    "implementation, n_cols, itemsize, options, message",
    [
        ("packed_rows", 65_537, 4, {}, "packed_rows .* at most 65,536 columns, not 65,537"),
        ("aligned_rows", 65_537, 4, {}, "aligned_rows .* at most 65,536 columns, not 65,537"),
        ("aligned_rows", 64, 4, {"gap": 1}, "agree modulo a vector"),
        ("aligned_rows", 64, 4, {"addresses": (4, 0)}, "start on 16 bytes"),
        ("split_rows", 64, 8, {}, "does not take float64"),
        ("split_rows", MAX_CHUNKS * 8192 + 1, 4, {}, "at most 33,554,432 columns"),
    ],
)
def test_what_is_refused(implementation, n_cols, itemsize, options, message):
    with pytest.raises(ValueError, match=message):
        choose(MANY, n_cols, itemsize, implementation=implementation, **options)


# --- how many kernels are compiled


def distinct_kernels(columns, n_rows, itemsize, *, name, device) -> int:
    """How many kernels are compiled for these row lengths: what Triton counts as different
    constants and options."""
    op, kernels = plan.OPERATIONS[name], set()
    for n_cols in columns:
        c = choose(n_rows, n_cols, itemsize, traits=OPERATIONS[name], device=device)
        if c.kernel == "strided_loops":
            ones = (1,) * (op.inputs + 1)
            launches, _ = plan.strided_launches(op, c, (n_rows, *ones), (1, *ones), ones, n_cols)
        else:
            strides = (n_cols,) * (op.inputs + 1)
            launches, _ = plan.row_launches(op, c, n_rows, n_cols, strides)
        for launch in launches:
            constants = launch.constants["OP"].name, launch.constants["HOW"]
            kernels.add((launch.kernel.__name__, *constants, *launch.options.items()))
    return len(kernels)


def most_kernels(columns, device) -> int:
    return max(
        distinct_kernels(columns, n_rows, itemsize, name=name, device=device)
        for n_rows in (1, 32, 128, MANY)
        for itemsize in (2, 4, 8)
        for name in OPERATIONS
    )


@on_every_device
def test_few_kernels_for_a_thousand_row_lengths(device):
    """1,000 lengths up to 262,144, at any number of rows, dtype and direction: no more than 32
    kernels."""
    lengths = random.Random(0).sample(range(1, 262145), 998)
    assert most_kernels([1, *lengths, 262144], device) <= 32


@on_every_device
def test_few_kernels_for_the_first_thousand_row_lengths(device):
    """Short rows have kernels for what divides them, and for tiles that leave few lanes empty."""
    assert most_kernels(range(1, 1001), device) <= 56


@on_every_device
def test_few_kernels_for_lengths_of_every_magnitude(device):
    """Lengths spread over the magnitudes meet every power of two, with edges and without: no more
    than 88 kernels."""
    lengths = {round(2 ** (18 * i / 998)) for i in range(999)}
    assert most_kernels(sorted(lengths), device) <= 88


# --- the package


def test_constants_are_what_the_documentation_says():
    assert vectors.VECTOR_BYTES == 16
    assert MAX_CHUNKS * 8192 == 2**25


def test_constants_are_plain_numbers():
    """A kernel takes them as one compile-time constant."""
    choices = [
        choose(n_rows, n_cols, itemsize, traits=traits, device=device)
        for n_rows, n_cols, itemsize, traits, device in itertools.product(
            (1, MANY), (64, 781, 40_000, 2**23), (2, 4), OPERATIONS.values(), DEVICES.values()
        )
    ]
    choices += [
        strided(3, n_cols, 200, 4, traits=traits)
        for n_cols, traits in itertools.product((21, 5000, 10**6), OPERATIONS.values())
    ]
    assert {c.kernel for c in choices} == {
        "packed_rows",
        "aligned_rows",
        "split_rows",
        "strided",
        "split_strided",
        "strided_loops",
    }
    for how in (how for c in choices for how in c.launches):
        kinds = {name: type(value) for name, value in how._asdict().items()}
        assert kinds == get_type_hints(type(how))


def test_the_choice_needs_the_standard_library_only():
    own = Path(package.__file__).parent
    for file in own.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf8"))):
            if isinstance(node, ast.Import):
                outside = {name.name.split(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                outside = {node.module.split(".")[0]}
            else:
                assert not isinstance(node, ast.ImportFrom) or node.level == 1, file
                continue
            assert outside <= set(sys.stdlib_module_names), file
