"""Which kernel and how, at every threshold and on both sides of it; numbers in, numbers out."""

import itertools
import math
import random
from dataclasses import replace

import pytest

from triton_softmax import heuristics, plan
from triton_softmax.heuristics import (
    MAX_CHUNKS,
    PACKED_MAX_COLS,
    Config,
    Device,
    choose_rows,
    fits_one_program,
    loops_config,
    next_power_of_2,
    split_config,
    strided_config,
    tile_config,
    vector_of_lines,
    vector_width,
    way_for_few_rows,
)

DEVICES = {"any": Device(), "nvidia": Device(132, nvidia=True)}
MANY = 4096  # rows enough for every device here

on_every_device = pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)


def choose(
    n_rows, n_cols, itemsize, *, log=False, backward=False, gap=0, addresses=None, **options
) -> Config:
    """The choice for contiguous results and inputs whose rows lie `gap` elements apart."""
    n_tensors = 3 if backward else 2
    strides = (n_cols + gap,) * (n_tensors - 1) + (n_cols,)
    options = {"device": DEVICES["nvidia"]} | options
    return choose_rows(
        n_rows,
        n_cols,
        itemsize,
        log=log,
        backward=backward,
        addresses=addresses or (0,) * n_tensors,
        strides=strides,
        **options,
    )


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


# The longest row that one program takes, by itemsize, whether rows have edges, and backward.
LONGEST = {
    (2, False, False): 16384,
    (2, True, False): 16384,
    (2, False, True): 16384,
    (2, True, True): 8192,
    (4, False, False): 32768,
    (4, True, False): 16384,
    (4, False, True): 8192,
    (4, True, True): 16384,
    (8, False, False): 8192,
    (8, True, False): 8192,
    (8, False, True): 8192,
    (8, True, True): 8192,
}


@on_every_device
@pytest.mark.parametrize("case", LONGEST, ids=str)
def test_fits_one_program(case, device):
    for n_rows, limit in (
        (MANY, LONGEST[case]),
        (66, LONGEST[case]),
        (65, min(8192, LONGEST[case])),
        (1, 8192),
    ):
        for n_cols in around(limit):
            assert fits_one_program(n_rows, n_cols, *case, device) == (n_cols <= limit), (
                n_rows,
                n_cols,
            )


def test_odd_rows_of_16_bits_do_not_half_fill_the_largest_tile():
    """8,199 elements have a body of 8,192 for certain, 8,200 need a tile of 16,384."""
    for n_cols, fits in ((8199, True), (8200, False), (12288, False), (12289, True)):
        assert fits_one_program(MANY, n_cols, 2, True, False, DEVICES["nvidia"]) == fits
        assert fits_one_program(MANY, n_cols, 2, False, False, DEVICES["nvidia"])
        assert fits_one_program(MANY, n_cols, 4, True, False, DEVICES["nvidia"])


@pytest.mark.parametrize("n_sm", [1, 2, 131, 132, 160])
def test_few_rows_are_half_a_row_per_multiprocessor(n_sm):
    few = (n_sm - 1) // 2
    assert fits_one_program(few + 1, 32768, 4, False, False, Device(n_sm))
    assert not few or not fits_one_program(few, 32768, 4, False, False, Device(n_sm))


@on_every_device
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("itemsize", [2, 4, 8])
def test_the_choice_follows_the_limit(itemsize, backward, device):
    width = 16 // itemsize
    for n_cols in (1, 2, 15, 16, 17, *around(512, 1024, 8192, 16384, 32768, 65536, 131072), 262144):
        for n_rows in (1, 65, 66, MANY):
            edges = bool(n_cols % width)
            config = choose(n_rows, n_cols, itemsize, backward=backward, device=device)
            if fits_one_program(n_rows, n_cols, itemsize, edges, backward, device):
                assert config.implementation == ("aligned_rows" if config.edges else "packed_rows")
                assert config.edges == edges or (config.vector == 4 and n_cols % 4 == 0)
            else:
                assert config.implementation == ("two_loops" if itemsize == 8 else "split_rows")


def test_rows_without_a_common_vector_are_packed_by_element():
    assert choose(MANY, 1024, 2, addresses=(2, 0)) == tile_config(
        MANY, 1024, 2, 1, False, False, DEVICES["nvidia"]
    )
    config = choose(MANY, 1024, 2, gap=1)
    assert (config.implementation, config.vector, config.edges) == ("packed_rows", 1, False)
    config = choose(MANY, 1024, 2, gap=8)
    assert (config.implementation, config.vector, config.edges) == ("packed_rows", 8, False)
    config = choose(MANY, 1001, 2, gap=8)
    assert (config.implementation, config.vector, config.edges) == ("aligned_rows", 8, True)
    config = choose(MANY, 65536, 4, gap=1)
    assert (config.implementation, config.vector, config.edges) == ("split_rows", 1, False)


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
def test_short_16_bit_rows_use_half_a_vector_that_divides_them(backward):
    for n_cols in (4, 20, 36, 100, 124):
        c = choose(MANY, n_cols, 2, backward=backward)
        assert (c.implementation, c.vector, c.edges) == ("packed_rows", 4, False)
        assert (
            c.block_cols >= 32
            and c.block_rows * c.block_cols <= 1024
            and c.num_warps == (2 if c.block_cols <= 64 else 1)
        )
    for n_cols in (33, 34, 126, 127, 130, 132):
        c = choose(MANY, n_cols, 2, backward=backward)
        assert (c.implementation, c.vector) == ("aligned_rows", 8)
    assert choose(MANY, 100, 2, backward=backward, gap=8).vector == 4
    assert choose(MANY, 100, 2, backward=backward, gap=2).vector == 1, "rows that are not in step"
    assert choose(MANY, 98, 2, backward=backward, implementation="aligned_rows").vector == 8
    assert choose(MANY, 18, 4, backward=backward).implementation == "aligned_rows"


@pytest.mark.parametrize("log", [False, True], ids=["softmax", "log"])
def test_what_is_held_decides_and_not_the_narrowest(log):
    """float32 in, float16 out: accesses as wide as float16 asks for, registers as float32 fills
    them."""
    for backward in (False, True):
        for n_cols in (1024, 1025, 8192, 16384, 32768, 32769, 131072, 131073):
            config = choose(MANY, n_cols, 2, log=log, backward=backward, held=4)
            assert config.vector == 8
            assert not config.pairs and not config.hold
            if n_cols % 8 == 0:
                alone = choose(MANY, n_cols, 4, log=log, backward=backward)
                assert (config.implementation, config.block_cols) == (
                    alone.implementation,
                    alone.block_cols,
                )


def test_rows_that_no_split_takes_are_read_twice():
    most = MAX_CHUNKS * 8192
    assert choose(1, most, 4).implementation == "split_rows"
    assert choose(1, most + 1, 4).implementation == "two_loops"
    n_rows = 2**31 // 16  # as many programs of 1,024 columns as 32 bits can count, and one fewer
    assert choose(n_rows, 16 * 1024 + 8, 2).implementation == "two_loops"
    assert choose(n_rows // 2, 16 * 1024 + 8, 2).implementation == "split_rows"


@on_every_device
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("edges", [False, True], ids=["whole", "edges"])
@pytest.mark.parametrize("itemsize", [2, 4, 8])
def test_tiles(itemsize, edges, backward, device):
    vector = 16 // itemsize
    for n_cols in (1, vector - 1, vector, *around(*(2**k for k in range(4, 17)))):
        if n_cols < 1 or (not edges and n_cols % vector):
            continue
        for n_rows in (1, 131, 132, 263, 264, 528, MANY):
            c = tile_config(n_rows, n_cols, itemsize, vector, edges, backward, device)
            assert c.implementation == ("aligned_rows" if edges else "packed_rows")
            for number in (c.block_rows, c.block_cols, c.num_warps):
                assert number & (number - 1) == 0 and number >= 1
            body = n_cols // vector * vector if edges else n_cols
            assert c.block_cols >= max(16, body) and (c.block_cols == 16 or c.block_cols < 2 * body)
            assert c.num_warps <= 32
            assert c.block_rows * c.block_cols <= max(16384 if edges else 8192, c.block_cols)
            assert c.vector == vector and c.edges == edges and c.max_registers is None
            if n_rows < 2 * device.multiprocessors * 2:
                assert c.block_rows == 1, "programs before rows per program"
            held = (
                not edges and c.block_cols == 16384
                if backward
                else c.block_cols >= (2048 if edges else 8192)
            )
            assert c.hold == (device.nvidia and itemsize == 2 and held)


def test_tiles_of_short_rows():
    nvidia = DEVICES["nvidia"]
    assert tile_config(2**20, 16, 2, 8, False, False, nvidia).block_rows == 128
    assert tile_config(2**20, 16, 2, 8, False, True, nvidia).block_rows == 64
    assert tile_config(2**20, 17, 2, 8, True, False, nvidia).block_rows == 16
    for block_cols, warps in ((512, 1), (1024, 1), (2048, 1), (4096, 2), (8192, 4), (16384, 8)):
        assert tile_config(MANY, block_cols + 1, 2, 8, True, False, nvidia).num_warps == warps
    for block_cols, warps in (
        (512, 2),
        (1024, 4),
        (2048, 4),
        (4096, 8),
        (8192, 16),
        (16384, 8),
        (65536, 32),
    ):
        assert tile_config(MANY, block_cols + 1, 4, 4, True, False, nvidia).num_warps == warps
    for block_cols, rows, warps in ((64, 16, 2), (128, 8, 2), (256, 4, 1)):
        for itemsize in (2, 4):
            c = tile_config(MANY, block_cols + 1, itemsize, 16 // itemsize, True, False, nvidia)
            assert (c.block_rows, c.num_warps) == (rows, warps)
    for block_cols, rows, warps in (
        (512, 4, 4),
        (2048, 1, 4),
        (4096, 2, 16),
        (8192, 1, 16),
        (16384, 1, 8),
        (32768, 1, 16),
        (65536, 1, 32),
    ):
        c = tile_config(2**20, block_cols, 2, 8, False, False, nvidia)
        assert (c.block_rows, c.num_warps) == (rows, warps)
    for block_cols, rows, warps in (
        (32, 32, 4),
        (1024, 1, 4),
        (2048, 1, 1),
        (4096, 1, 2),
        (8192, 1, 16),
        (32768, 1, 16),
    ):
        c = tile_config(2**20, block_cols, 4, 4, False, False, nvidia)
        assert (c.block_rows, c.num_warps) == (rows, warps)
    for itemsize in (2, 4):
        for block_cols, warps in ((1024, 4), (2048, 4), (4096, 16), (8192, 16)):
            c = tile_config(2**20, block_cols, itemsize, 16 // itemsize, False, True, nvidia)
            assert (c.block_rows, c.num_warps) == (1, warps)


SPLIT_COLS = (
    4096,
    *around(8192, 16384, 32768, 40960, 65536, 131072, 262144, 524288, 1 << 20, 1_310_720),
    1 << 22,
    1 << 25,
)


@on_every_device
@pytest.mark.parametrize("log", [False, True], ids=["softmax", "log"])
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("itemsize", [2, 4])
def test_split_rows_cover_the_row(itemsize, backward, log, device):
    for n_cols in SPLIT_COLS:
        for vector in (1, 16 // itemsize):
            edges = bool(n_cols % vector)
            for n_rows in (1, 16, 17, 132, MANY):
                c = split_config(n_rows, n_cols, itemsize, log, vector, edges, backward, device)
                assert c.implementation == "split_rows"
                assert c.n_chunks * c.chunk_cols >= n_cols > (c.n_chunks - 1) * c.chunk_cols, (
                    "no gap, no idle chunk"
                )
                assert c.chunk_cols <= c.block_cols and c.chunk_cols % vector == 0
                assert c.block_cols in (1024, 2048, 4096, 8192) and c.n_chunks <= MAX_CHUNKS
                assert c.hold <= (device.nvidia and itemsize == 2) and (
                    device.nvidia or c.max_registers is None
                )
                assert c.pairs == (itemsize == 2 and vector > 1)
                assert c.keep_exp <= (not log and not backward and not c.lag and not c.two_pass), (
                    "what the kernel can do"
                )
                assert c.lag <= c.ahead and (c.max_programs is None) != c.ahead
                assert (device.nvidia or c.two_pass or c.n_chunks == 1) and not (
                    c.two_pass and c.ahead
                )
                if c.block_cols > 2048 and device.nvidia and vector > 1:
                    finer = n_rows * c.n_chunks * c.block_cols // 2048
                    assert finer >= 8 * device.multiprocessors or c.n_chunks > 48, (
                        "work for all multiprocessors"
                    )


@pytest.mark.parametrize("n_sm", [1, 78, 132])
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("itemsize", [2, 4])
def test_split_rows_wait_only_for_chunks_that_run(itemsize, backward, n_sm):
    """65,536 registers and 48 warps in each multiprocessor hold all chunks of a row that is read
    once."""
    device = Device(n_sm, nvidia=True)
    passes = set()
    for n_rows in (1, 17, MANY):
        for n_cols in (
            *SPLIT_COLS,
            *(n_sm * per_sm * 8192 + more for per_sm in range(1, 9) for more in (0, 8)),
        ):
            c = split_config(
                n_rows, n_cols, itemsize, False, 16 // itemsize, False, backward, device
            )
            warps = min(65536 // (32 * -(-c.max_registers // 8) * 8), 48, 16 * c.num_warps)
            at_once = n_sm * (warps // c.num_warps)
            assert c.two_pass or c.n_chunks <= at_once
            assert not c.ahead or c.max_programs == at_once
            passes.add(c.two_pass)
    assert passes == {False, True}


WAYS = {
    # (itemsize, log, edges, backward): block, registers, ahead, lag on both sides of each length
    (4, False, False, False): {
        1_048_576: ((8192, 96, False, False), (4096, 128, True, True)),
        528 * 4096: ((4096, 128, True, True), None),
    },
    (4, False, True, False): {524_288: ((8192, 112, False, False), (4096, 128, True, True))},
    (4, True, False, False): {262_144: ((8192, 128, False, False), (4096, 128, True, True))},
    (4, False, False, True): {
        131_072: ((8192, 160, False, False), (2048, 128, True, True)),
        528 * 2048: ((2048, 128, True, True), (4096, 168, True, False)),
        396 * 4096: ((4096, 168, True, False), None),
    },
    (4, True, True, True): {262_144: ((8192, 168, False, False), (2048, 128, True, True))},
    (2, False, False, False): {
        131_072: ((8192, 64, False, False), (8192, 96, True, False)),
        1_310_720: ((8192, 96, True, False), (8192, 128, True, True)),
        528 * 8192: ((8192, 128, True, True), None),
    },
    (2, True, True, False): {114_688: ((2048, 72, False, False), (8192, 96, True, False))},
    (2, False, False, True): {
        131_072: ((8192, 128, False, False), (4096, 128, True, True)),
        528 * 4096: ((4096, 128, True, True), (8192, 168, True, False)),
        396 * 8192: ((8192, 168, True, False), None),
    },
    (2, False, True, True): {
        24_576: ((4096, 128, False, False), (8192, 128, False, False)),
        262_144: ((8192, 128, False, False), (4096, 128, True, True)),
    },
}


@pytest.mark.parametrize("case", WAYS, ids=str)
def test_ways_for_many_rows_change_at_their_thresholds(case):
    itemsize, log, edges, backward = case
    for longest, sides in WAYS[case].items():
        for n_cols, way in ((longest - 1, sides[0]), (longest, sides[0]), (longest + 1, sides[1])):
            c = split_config(
                10**5, n_cols, itemsize, log, 16 // itemsize, edges, backward, DEVICES["nvidia"]
            )
            assert c.two_pass == (way is None), n_cols
            if way is not None:
                assert (c.block_cols, c.max_registers, c.ahead, c.lag) == way, n_cols


FINE, MIDDLE, COARSE, AHEAD = 2048, 4096, 8192, "ahead"
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
    (133, 32_768): AHEAD,
    (33, 131_072): MIDDLE,
    (34, 131_072): AHEAD,
    (4, 1 << 20): COARSE,
    (
        5,
        1 << 20,
    ): None,  # more than four chunks of 8,192 for each multiprocessor, and rows of more than 128 chunks of 4,096
    (8, 1 << 19): COARSE,
    (9, 1 << 19): AHEAD,
    (131, 131_072): AHEAD,
    (132, 131_072): None,  # sixteen chunks of 8,192 for each multiprocessor
}


@pytest.mark.parametrize("shape", FEW, ids=str)
def test_few_rows_are_cut_finer(shape):
    for itemsize, backward, log in itertools.product((2, 4), (False, True), (False, True)):
        way = way_for_few_rows(*shape, itemsize, log, backward, DEVICES["nvidia"])
        c = split_config(*shape, itemsize, log, 16 // itemsize, False, backward, DEVICES["nvidia"])
        if FEW[shape] is None:
            assert way is None
            continue
        assert (c.block_cols, c.max_registers, c.num_warps, c.keep_exp, c.ahead, c.lag) == (
            *way[:4],
            way.ahead,
            False,
        )
        assert way.ahead == (FEW[shape] == AHEAD)
        assert way.block == (4096 if way.ahead else FEW[shape])
        assert way.keep_exp == (not log and not backward)
        wide = itemsize == 4 and backward
        assert way.warps == {2048: 2, 4096: 4 if wide else 2, 8192: 8 if wide else 4}[way.block]
        assert way.registers == (
            128
            if (way.block == 8192 and wide) or not (backward or (way.ahead and itemsize == 4))
            else 168
        )


def test_few_rows_are_counted_in_chunks_per_multiprocessor():
    for n_sm in (1, 78, 132):
        for per_multiprocessor, block in ((8, 2048), (9, 4096)):
            way = way_for_few_rows(
                per_multiprocessor * n_sm, 2048, 4, False, False, Device(n_sm, nvidia=True)
            )
            assert way.block == block


def test_rows_without_a_common_vector_hold_an_element_to_a_register():
    for backward, log, way in (
        (False, False, (2048, 40, True)),
        (True, False, (4096, 128, False)),
        (False, True, (4096, 128, False)),
    ):
        for n_rows in (1, MANY):
            c = split_config(n_rows, 1 << 17, 2, log, 1, False, backward, DEVICES["nvidia"])
            assert (c.block_cols, c.max_registers, c.keep_exp) == way and not c.pairs and not c.hold


def test_longest_rows_stay_within_the_most_chunks():
    for itemsize in (2, 4):
        for backward in (False, True):
            for n_cols in (MAX_CHUNKS * 8192, MAX_CHUNKS * 8192 - 1):
                assert choose(1, n_cols, itemsize, backward=backward).n_chunks <= MAX_CHUNKS


@pytest.mark.parametrize("num_chunks", [1, 128, 129, 255, 256, 257, 511, 512, 513])
@pytest.mark.parametrize("num_warps", [1, 2, 4])
def test_words_give_every_thread_lanes_of_its_own(num_chunks, num_warps):
    config = Config(
        "split_rows", block_cols=1024, chunk_cols=1024, n_chunks=num_chunks, num_warps=num_warps
    )
    (launch,), workspace = plan.split_launches(
        False, config, 3, num_chunks * 1024, (num_chunks * 1024,) * 2, False, True
    )
    assert workspace.n_words == 3 * num_chunks and workspace.zeroed
    words, looks = launch.constants["WORDS"], launch.constants["LOOKS"]
    assert words & (words - 1) == 0
    assert words == max(32 * num_warps, next_power_of_2(num_chunks)) == looks * 32 * num_warps
    assert launch.grid == 3 * num_chunks
    assert [launch.constants[name] for name in ("WAIT", "PUBLISH", "WRITE")] == [True, True, True]


def test_no_more_programs_than_the_device_holds():
    config = Config(
        "split_rows", block_cols=1024, chunk_cols=1024, n_chunks=10, max_programs=25, ahead=True
    )
    grids = [
        plan.split_launches(False, config, n, 10240, (0, 0), False, True)[0][0].grid
        for n in (2, 3, 1000)
    ]
    assert grids == [20, 25, 25]


def test_two_passes_publish_before_they_write_and_nobody_waits():
    config = Config("split_rows", block_cols=1024, chunk_cols=1024, n_chunks=400, two_pass=True)
    (publish, write), workspace = plan.split_launches(
        False, config, 1, 400 * 1024, (0, 0), False, True
    )
    assert workspace.n_words == 400 and not workspace.zeroed, "the first launch writes every word"
    assert [publish.constants[name] for name in ("PUBLISH", "WRITE", "WAIT")] == [
        True,
        False,
        False,
    ]
    assert [write.constants[name] for name in ("PUBLISH", "WRITE", "WAIT")] == [False, True, False]
    assert {**publish.constants, "PUBLISH": False, "WRITE": True} == write.constants


def test_nobody_waits_where_waiting_is_not_known():
    config = split_config(1, 4096, 4, False, 4, False, False, DEVICES["any"])
    for launch in plan.split_launches(False, config, 1, 4096, (0, 0), False, False)[0]:
        assert launch.constants["WAIT"] is False


@on_every_device
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("itemsize", [2, 4, 8])
def test_strided(itemsize, backward, device):
    for n_cols in (1, 2, *around(256, 512, 1024, 2048), 50000):
        for n_inner in (1, 2, 15, 16, 17, 63, 64, 65, 5000):
            for n_outer in (1, 264, 4224):
                c = strided_config(n_outer, n_cols, n_inner, itemsize, 0, device, backward)
                assert c.implementation == "strided"
                assert c.block_rows <= next_power_of_2(n_inner)
                for number in (c.block_rows, c.block_cols, c.num_warps):
                    assert number & (number - 1) == 0
                assert n_inner < 16 or c.block_rows >= 16, "32 bytes or more side by side"
                assert 1 <= c.num_warps <= 16
                whole = not c.loops and c.n_chunks == 1
                assert not whole or c.block_cols >= n_cols
                if itemsize == 8 or not device.nvidia:
                    assert whole == (n_cols <= (2048 if itemsize <= 4 else 1024)) != c.loops
                    assert (c.hold, c.max_registers) == (False, None)
                else:
                    assert whole == (n_cols <= (512 if backward or itemsize == 2 else 1024))
                    assert c.loops == (
                        n_cols > (65536 if itemsize == 2 and not backward else 16384)
                    )
    assert not strided_config(1, 8, 8, itemsize, 2**31 - 1, device).wide_index
    assert strided_config(1, 8, 8, itemsize, 2**31, device).wide_index


@pytest.mark.parametrize("itemsize, backward, tiles", [
    (4, False, {4: (256, 1), 21: (64, 1), 64: (64, 2), 128: (64, 4), 256: (64, 8), 512: (32, 8), 1024: (32, 16)}),
    (4, True, {4: (256, 1), 21: (64, 1), 64: (64, 2), 128: (64, 4), 256: (64, 8), 512: (32, 8)}),
    (2, False, {4: (256, 1), 21: (64, 1), 64: (64, 2), 128: (64, 4), 256: (64, 8), 512: (32, 8)}),
    (2, True, {4: (256, 1), 21: (64, 1), 64: (64, 2), 128: (64, 4), 256: (64, 4), 512: (64, 8)}),
], ids=["float32-forward", "float32-backward", "16-bit-forward", "16-bit-backward"])  # fmt: skip
def test_tiles_of_whole_dimensions(itemsize, backward, tiles):
    for n_cols, tile in tiles.items():
        c = strided_config(3, n_cols, 5000, itemsize, 0, DEVICES["nvidia"], backward)
        assert (c.block_rows, c.num_warps, c.n_chunks, c.loops) == (*tile, 1, False)
        assert c.hold == (itemsize == 2 and not backward and n_cols == 512)


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("itemsize", [2, 4])
def test_long_dimensions_are_split(itemsize, backward):
    nvidia = DEVICES["nvidia"]
    longest = 65536 if itemsize == 2 and not backward else 16384
    for n_cols in around(1024, 4096, longest):
        for n_inner in (1, 7, 16, 33, 5000):
            c = strided_config(3, n_cols, n_inner, itemsize, 0, nvidia, backward)
            assert c.loops == (n_cols > longest)
            if 1024 < n_cols <= longest:
                assert c.n_chunks * c.block_cols >= n_cols > (c.n_chunks - 1) * c.block_cols
                assert c.block_rows <= next_power_of_2(n_inner) and not c.two_pass
                assert c.hold == (itemsize == 2) and c.vector == 8
            for vector in (1, 2, 4):
                narrow = strided_config(3, n_cols, n_inner, itemsize, 0, nvidia, backward, vector)
                assert narrow.vector == vector
                assert (narrow.n_chunks > 1 and not narrow.loops) <= (
                    vector > (2 if itemsize == 2 and not backward else 1)
                )
    small = Device(8, nvidia=True)  # 16 programs of 8 warps and 128 registers at once
    for n_cols, loops in ((16 * 512, False), (16 * 512 + 1, True)):
        assert strided_config(3, n_cols, 64, 4, 0, small).loops == loops


@pytest.mark.parametrize("itemsize, backward, n_cols, tile", [
    (4, False, 16384, (512, 32, 8)),
    (4, True, 4096, (256, 32, 8)),
    (4, True, 4097, (512, 32, 16)),
    (2, False, 2048, (512, 32, 4)),
    (2, False, 2049, (1024, 32, 8)),
    (2, True, 4096, (256, 64, 8)),
    (2, True, 4097, (1024, 32, 16)),
])  # fmt: skip
def test_tiles_of_long_dimensions(itemsize, backward, n_cols, tile):
    c = strided_config(3, n_cols, 64, itemsize, 0, DEVICES["nvidia"], backward)
    assert (c.block_cols, c.block_rows, c.num_warps) == tile


@on_every_device
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("itemsize", [2, 4, 8])
def test_loops_have_segments_enough_and_not_too_many(itemsize, backward, device):
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
                c = loops_config(
                    n_outer, n_cols, n_inner, itemsize, device, backward, vector, False
                )
                assert c.loops and (c.n_chunks > 1) == c.two_pass
                assert c.n_chunks * c.chunk_cols >= n_cols > (c.n_chunks - 1) * c.chunk_cols, (
                    "no gap, no idle segment"
                )
                assert c.chunk_cols % c.block_cols == 0, "tiles do not reach into the next segment"
                groups = n_outer * -(-n_inner // c.block_rows)
                assert (
                    groups * c.n_chunks <= max(groups, 32 * device.multiprocessors)
                    and c.n_chunks <= 512
                )
                most = min(math.isqrt(n_cols * itemsize // 16), max(256, 512 // groups))
                wanted = min(most, max(1, 32 * device.multiprocessors // groups))
                assert c.n_chunks <= most
                words = c.n_chunks * c.block_rows * 8
                assert c.n_chunks == 1 or words <= c.chunk_cols * c.block_rows * itemsize, (
                    "fewer summaries than elements"
                )
                assert c.n_chunks > wanted // 2 or c.chunk_cols == c.block_cols, (
                    "segments are whole tiles; they lose less than half by that"
                )


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
def test_loops_publish_before_they_write(backward):
    n_tensors = 3 if backward else 2
    groups = [(3, *(0,) * n_tensors), (100, *(1,) * n_tensors)]
    config = Config(
        "strided",
        block_rows=32,
        block_cols=64,
        n_chunks=5,
        chunk_cols=128,
        two_pass=True,
        loops=True,
        vector=4,
    )
    (publish, write), workspace = plan.strided_launches(
        backward, config, groups, (100,) * n_tensors, 600, False
    )
    assert [publish.constants[name] for name in ("PUBLISH", "WRITE", "VECTOR")] == [True, False, 4]
    assert {**publish.constants, "PUBLISH": False, "WRITE": True} == write.constants
    assert publish.grid == write.grid == 3 * 4 * 5
    assert workspace.n_words == 2 * 32 * publish.grid and not workspace.zeroed
    (both,), workspace = plan.strided_launches(
        backward,
        replace(config, n_chunks=1, two_pass=False),
        groups,
        (100,) * n_tensors,
        600,
        False,
    )
    assert (
        [both.constants[name] for name in ("PUBLISH", "WRITE")] == [True, True]
        and both.grid == 3 * 4
        and workspace.n_words == 1
        and not workspace.zeroed
    )


@pytest.mark.parametrize(
    "num_chunks, inner, warps", [(2, 32, 8), (9, 32, 4), (256, 16, 8), (3, 1, 8), (64, 64, 8)]
)
def test_words_of_columns_give_every_thread_lanes_of_its_own(num_chunks, inner, warps):
    config = Config(
        "strided",
        block_rows=inner,
        block_cols=256,
        num_warps=warps,
        n_chunks=num_chunks,
        max_registers=128,
    )
    groups = [(3, 0, 0), (100, 1, 1)]
    (launch,), workspace = plan.strided_launches(
        False, config, groups, (100, 100), num_chunks * 256, False
    )
    chunks, looks = launch.constants["CHUNKS"], launch.constants["LOOKS"]
    assert chunks & (chunks - 1) == 0 and chunks >= num_chunks
    assert looks * 32 * warps == chunks * inner
    assert launch.grid == 3 * -(-100 // inner) * num_chunks
    assert workspace.n_words == launch.grid * inner and workspace.zeroed
    assert launch.constants["WAIT"] is True


def test_what_is_insisted_on():
    assert choose(MANY, 64, 4, implementation="split_rows").implementation == "split_rows"
    assert choose(MANY, 64, 4, implementation="aligned_rows").implementation == "aligned_rows"
    assert choose(MANY, 65, 4, implementation="packed_rows").vector == 1
    assert (
        choose(MANY, PACKED_MAX_COLS, 4, implementation="packed_rows").block_cols == PACKED_MAX_COLS
    )
    assert (
        choose(MANY, PACKED_MAX_COLS, 4, implementation="aligned_rows").block_cols
        == PACKED_MAX_COLS
    )


@pytest.mark.parametrize(
    "implementation, n_cols, itemsize, options, message",
    [
        ("packed_rows", PACKED_MAX_COLS + 1, 4, {}, "at most 65,536 columns, not 65,537"),
        ("aligned_rows", PACKED_MAX_COLS + 1, 4, {}, "at most 65,536 columns, not 65,537"),
        ("aligned_rows", 64, 4, {"gap": 1}, "agree modulo a vector"),
        ("aligned_rows", 64, 4, {"addresses": (4, 0)}, "start on 16 bytes"),
        ("split_rows", 64, 8, {}, "does not take float64"),
        ("split_rows", MAX_CHUNKS * 8192 + 1, 4, {}, "at most 134,217,728 columns"),
    ],
)
def test_what_is_refused(implementation, n_cols, itemsize, options, message):
    with pytest.raises(ValueError, match=message):
        choose(MANY, n_cols, itemsize, implementation=implementation, **options)


def distinct_kernels(columns, n_rows, itemsize, *, backward, log, device) -> int:
    """How many kernels are compiled for these row lengths: what Triton counts as different
    constants and options."""
    kernels = set()
    for n_cols in columns:
        config = choose(n_rows, n_cols, itemsize, backward=backward, log=log, device=device)
        strides = (n_cols,) * (3 if backward else 2)
        if config.implementation == "two_loops":
            launches = []
            kernels.add("two_loops")
        elif config.implementation == "split_rows":
            launches, _ = plan.split_launches(
                backward, config, n_rows, n_cols, strides, log, device.nvidia
            )
        else:
            launches = [plan.tile_launch(backward, config, n_rows, n_cols, strides, log)]
        for launch in launches:
            kernels.add((config.implementation, *launch.constants.items(), *launch.options.items()))
    return len(kernels)


def most_kernels(columns, device) -> int:
    return max(
        distinct_kernels(columns, n_rows, itemsize, backward=backward, log=log, device=device)
        for n_rows in (1, 32, 128, MANY)
        for itemsize in (2, 4, 8)
        for backward in (False, True)
        for log in (False, True)
    )


@on_every_device
def test_few_kernels_for_a_thousand_row_lengths(device):
    """1,000 lengths up to 262,144, at any number of rows, dtype and direction: no more than 20
    kernels."""
    lengths = random.Random(0).sample(range(1, 262145), 998)
    assert most_kernels([1, *lengths, 262144], device) <= 20


@on_every_device
def test_few_kernels_for_the_first_thousand_row_lengths(device):
    assert most_kernels(range(1, 1001), device) <= 18


@on_every_device
def test_few_kernels_for_lengths_of_every_magnitude(device):
    """Lengths spread over the magnitudes meet every power of two, with edges and without: no more
    than 32 kernels."""
    lengths = {round(2 ** (18 * i / 998)) for i in range(999)}
    assert most_kernels(sorted(lengths), device) <= 32


def test_constants_are_what_the_documentation_says():
    assert heuristics.VECTOR_BYTES == 16
    assert MAX_CHUNKS * 8192 == 2**27
