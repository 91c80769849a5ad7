"""Which kernel and how, at every threshold and on both sides of it; numbers in, numbers out."""

import random
from dataclasses import replace

import pytest

from triton_softmax import dispatch, heuristics
from triton_softmax.heuristics import (
    MAX_CHUNKS,
    PACKED_MAX_COLS,
    Config,
    Device,
    choose_rows,
    fits_one_program,
    next_power_of_2,
    split_config,
    strided_config,
    tile_config,
    vector_width,
)

DEVICES = {"any": Device(), "nvidia": Device(132, nvidia=True)}
MANY = 4096  # rows enough for every device here

on_every_device = pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)


def choose(n_rows, n_cols, itemsize, *, log=False, backward=False, gap=0, addresses=None, **options) -> Config:
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
    assert vector_width(itemsize, (0, 512), (width + 1, 1)) == width, "rows in step need not start on a vector"
    assert vector_width(itemsize, (0, 512), (0, width * 5)) == width, "an expanded row"
    assert vector_width(itemsize, (0, 512), (width, width + 1)) == 1
    assert vector_width(itemsize, (0, 512, 16), (3, 3 + width, 4)) == 1
    for offset in range(itemsize, 16, itemsize):
        assert vector_width(itemsize, (0, 512 + offset), (width, width)) == 1
        assert vector_width(itemsize, (offset, offset), (width, width)) == 1


# The longest row that one program takes, by itemsize, whether rows have edges, and backward.
LONGEST = {
    (2, False, False): 16384,
    (2, True, False): 16384,
    (2, False, True): 8192,
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
    for n_rows, limit in ((MANY, LONGEST[case]), (66, LONGEST[case]), (65, min(8192, LONGEST[case])), (1, 8192)):
        for n_cols in around(limit):
            assert fits_one_program(n_rows, n_cols, *case, device) == (n_cols <= limit), (n_rows, n_cols)


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
                assert config.implementation == ("aligned_rows" if edges else "packed_rows")
            else:
                assert config.implementation == ("two_loops" if itemsize == 8 else "split_rows")


def test_rows_without_a_common_vector_are_packed_by_element():
    assert choose(MANY, 1024, 2, addresses=(2, 0)) == tile_config(MANY, 1024, 2, 1, False, False, DEVICES["nvidia"])
    config = choose(MANY, 1024, 2, gap=1)
    assert (config.implementation, config.vector, config.edges) == ("packed_rows", 1, False)
    config = choose(MANY, 1024, 2, gap=8)
    assert (config.implementation, config.vector, config.edges) == ("packed_rows", 8, False)
    config = choose(MANY, 1001, 2, gap=8)
    assert (config.implementation, config.vector, config.edges) == ("aligned_rows", 8, True)
    config = choose(MANY, 65536, 4, gap=1)
    assert (config.implementation, config.vector, config.edges) == ("split_rows", 1, False)


@pytest.mark.parametrize("log", [False, True], ids=["softmax", "log"])
def test_what_is_held_decides_and_not_the_narrowest(log):
    """float32 in, float16 out: accesses as wide as float16 asks for, registers as float32 fills them."""
    for backward in (False, True):
        for n_cols in (1024, 1025, 8192, 16384, 32768, 32769, 131072, 131073):
            config = choose(MANY, n_cols, 2, log=log, backward=backward, held=4)
            assert config.vector == 8
            assert not config.pairs and not config.hold
            if n_cols % 8 == 0:
                alone = choose(MANY, n_cols, 4, log=log, backward=backward)
                assert (config.implementation, config.block_cols) == (alone.implementation, alone.block_cols)


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
            assert c.block_rows * c.block_cols <= max(16384 if edges else 4096, c.block_cols)
            assert c.vector == vector and c.edges == edges and c.max_registers is None
            if n_rows < 2 * device.multiprocessors * 2:
                assert c.block_rows == 1, "programs before rows per program"
            assert c.hold == (device.nvidia and itemsize == 2 and not backward and c.block_cols >= (2048 if edges else 16384))


def test_tiles_of_short_rows():
    nvidia = DEVICES["nvidia"]
    assert tile_config(2**20, 16, 2, 8, False, False, nvidia).block_rows == 128
    assert tile_config(2**20, 16, 2, 8, False, True, nvidia).block_rows == 64
    assert tile_config(2**20, 17, 2, 8, True, False, nvidia).block_rows == 16
    for block_cols, warps in ((512, 1), (1024, 1), (2048, 1), (4096, 2), (8192, 4), (16384, 8)):
        assert tile_config(MANY, block_cols + 1, 2, 8, True, False, nvidia).num_warps == warps
    for block_cols, warps in ((512, 1), (1024, 4), (2048, 4), (4096, 8), (8192, 16), (16384, 16), (65536, 32)):
        assert tile_config(MANY, block_cols + 1, 4, 4, True, False, nvidia).num_warps == warps
    for block_cols, warps in ((512, 4), (4096, 4), (8192, 16), (16384, 8), (32768, 16), (65536, 32)):
        assert tile_config(MANY, block_cols, 2, 8, False, False, nvidia).num_warps == warps
    assert tile_config(MANY, 4096, 2, 8, False, True, nvidia).num_warps == 8


SPLIT_COLS = (4096, *around(8192, 16384, 32768, 40960, 65536, 131072, 262144, 524288, 1 << 20, 1_310_720), 1 << 22, 1 << 25)


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
                assert c.n_chunks * c.chunk_cols >= n_cols > (c.n_chunks - 1) * c.chunk_cols, "no gap, no idle chunk"
                assert c.chunk_cols <= c.block_cols and c.chunk_cols % vector == 0
                assert c.block_cols in (1024, 2048, 4096, 8192) and c.n_chunks <= MAX_CHUNKS
                assert c.hold <= (device.nvidia and itemsize == 2) and (device.nvidia or c.max_registers is None)
                assert c.pairs == (itemsize == 2 and vector > 1)
                assert c.keep_exp <= (not log and not backward and not c.lag and not c.two_pass), "what the kernel can do"
                assert c.lag <= c.ahead and (c.max_programs is None) != c.ahead
                assert (device.nvidia or c.two_pass or c.n_chunks == 1) and not (c.two_pass and c.ahead)
                if c.block_cols > 2048 and device.nvidia and vector > 1:
                    assert n_rows * c.n_chunks >= 0.75 * device.multiprocessors, "work for most of the multiprocessors"


@pytest.mark.parametrize("n_sm", [1, 78, 132])
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("itemsize", [2, 4])
def test_split_rows_wait_only_for_chunks_that_run(itemsize, backward, n_sm):
    """65,536 registers and 48 warps in each multiprocessor hold all chunks of a row that is read once."""
    device = Device(n_sm, nvidia=True)
    passes = set()
    for n_rows in (1, 17, MANY):
        for n_cols in (*SPLIT_COLS, *(n_sm * per_sm * 8192 + more for per_sm in range(1, 9) for more in (0, 8))):
            c = split_config(n_rows, n_cols, itemsize, False, 16 // itemsize, False, backward, device)
            warps = min(65536 // (32 * -(-c.max_registers // 8) * 8), 48, 16 * c.num_warps)
            at_once = n_sm * (warps // c.num_warps)
            assert c.two_pass or c.n_chunks <= at_once
            assert not c.ahead or c.max_programs == at_once
            passes.add(c.two_pass)
    assert passes == {False, True}


WAYS = {
    # (itemsize, log, edges, backward): block, registers, ahead, lag on both sides of each length
    (4, False, False, False): {1_048_576: ((8192, 96, False, False), (4096, 128, True, True)), 528 * 4096: ((4096, 128, True, True), None)},
    (4, False, True, False): {524_288: ((8192, 112, False, False), (4096, 128, True, True))},
    (4, True, False, False): {262_144: ((8192, 128, False, False), (4096, 128, True, True))},
    (4, False, False, True): {
        131_072: ((8192, 160, False, False), (2048, 128, True, True)),
        528 * 2048: ((2048, 128, True, True), (4096, 168, True, False)),
        396 * 4096: ((4096, 168, True, False), None),
    },
    (4, True, True, True): {262_144: ((8192, 168, False, False), (2048, 128, True, True))},
    (2, False, False, False): {
        131_072: ((8192, 72, False, False), (8192, 96, True, False)),
        1_310_720: ((8192, 96, True, False), (8192, 128, True, True)),
        528 * 8192: ((8192, 128, True, True), None),
    },
    (2, True, True, False): {65_536: ((2048, 72, False, False), (8192, 96, True, False))},
    (2, False, False, True): {
        131_072: ((8192, 128, False, False), (4096, 128, True, True)),
        528 * 4096: ((4096, 128, True, True), (8192, 168, True, False)),
        396 * 8192: ((8192, 168, True, False), None),
    },
    (2, False, True, True): {
        40_960: ((8192, 128, False, False), (8192, 168, True, False)),
        262_144: ((8192, 168, True, False), (4096, 128, True, True)),
    },
}


@pytest.mark.parametrize("case", WAYS, ids=str)
def test_ways_for_many_rows_change_at_their_thresholds(case):
    itemsize, log, edges, backward = case
    for longest, sides in WAYS[case].items():
        for n_cols, way in ((longest - 1, sides[0]), (longest, sides[0]), (longest + 1, sides[1])):
            c = split_config(10**5, n_cols, itemsize, log, 16 // itemsize, edges, backward, DEVICES["nvidia"])
            assert c.two_pass == (way is None), n_cols
            if way is not None:
                assert (c.block_cols, c.max_registers, c.ahead, c.lag) == way, n_cols


FEW = {
    # rows × columns: blocks forward (bfloat16, float32) and backward (bfloat16, float32)
    (1, 32_768): (2048, 2048, 2048, 2048),
    (1, 131_072): (2048, 2048, 2048, 2048),
    (1, 811_008): (8192, 8192, 8192, 4096),  # 99 chunks: three quarters of 132
    (1, 802_816): (4096, 4096, 4096, 4096),
    (8, 131_072): (4096, 4096, 4096, 4096),
    (8, 1 << 20): (8192, 8192, 8192, 4096),
    (64, 32_768): (2048, 2048, 4096, 4096),
    (66, 32_768): (4096, 4096, 4096, 4096),
    (64, 131_072): (4096, 4096, 4096, 4096),
    (16, 253_952): (4096, 4096, 4096, 4096),  # 31 chunks
    (16, 253_960): (8192, 8192, 8192, 4096),
}


@pytest.mark.parametrize("shape", FEW, ids=str)
def test_few_rows_are_cut_finer(shape):
    for (itemsize, backward), block in zip(((2, False), (4, False), (2, True), (4, True)), FEW[shape], strict=True):
        c = split_config(*shape, itemsize, False, 16 // itemsize, False, backward, DEVICES["nvidia"])
        wide = itemsize == 4 and backward
        assert (c.block_cols, c.keep_exp, c.lag) == (block, not backward, False)
        assert c.max_registers == (168 if backward else 128)
        assert c.num_warps == (2 if block == 4096 and not wide else 4)
        assert c.ahead == (block > 2048 and (backward or itemsize == 2))


def test_few_rows_end_where_every_multiprocessor_has_sixteen_chunks():
    for n_rows in (131, 132, 133):
        c = split_config(n_rows, 16 * 8192, 4, False, 4, False, False, DEVICES["nvidia"])
        assert (c.max_registers == 96) == (n_rows >= 132)
        c = split_config(n_rows, 16 * 8192, 4, False, 4, False, True, DEVICES["nvidia"])
        assert (c.block_cols, c.max_registers) == ((8192, 160) if n_rows >= 132 else (4096, 168)), n_rows


def test_rows_without_a_common_vector_hold_an_element_to_a_register():
    for backward, log, way in ((False, False, (2048, 40, True)), (True, False, (4096, 128, False)), (False, True, (4096, 128, False))):
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
    config = Config("split_rows", block_cols=1024, chunk_cols=1024, n_chunks=num_chunks, num_warps=num_warps)
    (launch,) = dispatch._split_launches(None, config, 3, num_chunks * 1024, (num_chunks * 1024,) * 2, False, True, True)
    words, looks = launch.constants["WORDS"], launch.constants["LOOKS"]
    assert words & (words - 1) == 0
    assert words == max(32 * num_warps, next_power_of_2(num_chunks)) == looks * 32 * num_warps
    assert launch.grid == 3 * num_chunks
    assert [launch.constants[name] for name in ("WAIT", "PUBLISH", "WRITE")] == [True, True, True]


def test_no_more_programs_than_the_device_holds():
    config = Config("split_rows", block_cols=1024, chunk_cols=1024, n_chunks=10, max_programs=25, ahead=True)
    grids = [dispatch._split_launches(None, config, n, 10240, (0, 0), False, True, True)[0].grid for n in (2, 3, 1000)]
    assert grids == [20, 25, 25]


def test_two_passes_publish_before_they_write_and_nobody_waits():
    config = Config("split_rows", block_cols=1024, chunk_cols=1024, n_chunks=400, two_pass=True)
    publish, write = dispatch._split_launches(None, config, 1, 400 * 1024, (0, 0), False, True, True)
    assert [publish.constants[name] for name in ("PUBLISH", "WRITE", "WAIT")] == [True, False, False]
    assert [write.constants[name] for name in ("PUBLISH", "WRITE", "WAIT")] == [False, True, False]
    assert {**publish.constants, "PUBLISH": False, "WRITE": True} == write.constants


def test_nobody_waits_where_waiting_is_not_known():
    config = split_config(1, 4096, 4, False, 4, False, False, DEVICES["any"])
    for launch in dispatch._split_launches(None, config, 1, 4096, (0, 0), False, True, False):
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
                assert not c.whole or (c.n_chunks == 1 and c.block_cols >= n_cols)
                assert c.block_rows <= next_power_of_2(n_inner)
                for number in (c.block_rows, c.block_cols, c.num_warps):
                    assert number & (number - 1) == 0
                assert n_inner < 16 or c.block_rows >= 16, "32 bytes or more side by side"
                assert 1 <= c.num_warps <= 16
                if itemsize == 8 or not device.nvidia:
                    assert c.whole == (n_cols <= (2048 if itemsize <= 4 else 1024))
                    assert (c.n_chunks, c.hold, c.max_registers) == (1, False, None)
                elif n_cols <= 65536:
                    assert c.whole == (n_cols <= (512 if backward or itemsize == 2 else 1024))
                    assert (c.n_chunks > 1) == (not c.whole)
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
        assert (c.block_rows, c.num_warps, c.whole) == (*tile, True)
        assert c.hold == (itemsize == 2 and not backward and n_cols == 512)


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("itemsize", [2, 4])
def test_long_dimensions_are_split(itemsize, backward):
    nvidia = DEVICES["nvidia"]
    for n_cols in around(1024, 4096, 16384, 32768):
        for n_inner in (1, 7, 16, 33, 5000):
            c = strided_config(3, n_cols, n_inner, itemsize, 0, nvidia, backward)
            if n_cols > 1024:
                assert c.n_chunks * c.block_cols >= n_cols > (c.n_chunks - 1) * c.block_cols
                assert c.block_rows <= next_power_of_2(n_inner) and not c.whole and not c.two_pass
                assert c.hold == (itemsize == 2)
            unaligned = strided_config(3, n_cols, n_inner, itemsize, 0, nvidia, backward, aligned=False)
            assert unaligned == c if itemsize == 4 else unaligned.n_chunks == 1
    for n_cols in (512 * 128, 512 * 128 + 1):
        c = strided_config(3, n_cols, 64, 4, 0, nvidia)
        assert (c.n_chunks == 1) == (n_cols > 512 * 128), "beyond, in loops"
    small = Device(8, nvidia=True)  # 16 programs of 8 warps and 128 registers at once
    for n_cols, two_pass in ((16 * 512, False), (16 * 512 + 1, True)):
        assert strided_config(3, n_cols, 64, 4, 0, small).two_pass == two_pass


@pytest.mark.parametrize("itemsize, backward, n_cols, tile", [
    (4, False, 65536, (512, 32, 8)),
    (4, True, 16384, (256, 32, 8)),
    (4, True, 16385, (512, 32, 16)),
    (2, False, 16384, (512, 32, 4)),
    (2, False, 16385, (1024, 32, 8)),
    (2, True, 16384, (256, 64, 8)),
    (2, True, 16385, (1024, 32, 16)),
])  # fmt: skip
def test_tiles_of_long_dimensions(itemsize, backward, n_cols, tile):
    c = strided_config(3, n_cols, 64, itemsize, 0, DEVICES["nvidia"], backward)
    assert (c.block_cols, c.block_rows, c.num_warps) == tile


@pytest.mark.parametrize("num_chunks, inner, warps", [(2, 32, 8), (9, 32, 4), (256, 16, 8), (3, 1, 8), (64, 64, 8)])
def test_words_of_columns_give_every_thread_lanes_of_its_own(num_chunks, inner, warps):
    config = Config("strided", block_rows=inner, block_cols=256, num_warps=warps, n_chunks=num_chunks, max_registers=128, whole=False)
    groups = [(3, 0, 0), (100, 1, 1)]
    (launch,), words = dispatch._strided_launches(False, config, groups, (100, 100), num_chunks * 256, False)
    chunks, looks = launch.constants["CHUNKS"], launch.constants["LOOKS"]
    assert chunks & (chunks - 1) == 0 and chunks >= num_chunks
    assert looks * 32 * warps == chunks * inner
    assert launch.grid == 3 * -(-100 // inner) * num_chunks and words == launch.grid * inner
    groups = [(3, 0, 0, 0), (100, 1, 1, 1)]
    (publish, write), words = dispatch._strided_launches(True, replace(config, two_pass=True), groups, (100, 100, 100), num_chunks * 256, False)
    assert [launch.constants[name] for name in ("WAIT", "PUBLISH", "WRITE")] == [True, True, True]
    assert [publish.constants[name] for name in ("WAIT", "PUBLISH", "WRITE")] == [False, True, False]
    assert [write.constants[name] for name in ("WAIT", "PUBLISH", "WRITE")] == [False, False, True]


@pytest.mark.parametrize("n_outer, tile", [(264, (64, 64)), (263, (128, 32)), (132, (128, 32)), (131, (256, 16)), (1, (256, 16))])
def test_tall_strided_tiles_until_there_are_programs_enough(n_outer, tile):
    c = strided_config(n_outer, 50000, 64, 4, 0, DEVICES["any"])
    assert (c.block_cols, c.block_rows) == tile


def test_what_is_insisted_on():
    assert choose(MANY, 64, 4, implementation="split_rows").implementation == "split_rows"
    assert choose(MANY, 64, 4, implementation="aligned_rows").implementation == "aligned_rows"
    assert choose(MANY, 65, 4, implementation="packed_rows").vector == 1
    assert choose(MANY, PACKED_MAX_COLS, 4, implementation="packed_rows").block_cols == PACKED_MAX_COLS
    assert choose(MANY, PACKED_MAX_COLS, 4, implementation="aligned_rows").block_cols == PACKED_MAX_COLS


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
    """How many kernels are compiled for these row lengths: what Triton counts as different constants and options."""
    kernels = set()
    for n_cols in columns:
        config = choose(n_rows, n_cols, itemsize, backward=backward, log=log, device=device)
        strides = (n_cols,) * (3 if backward else 2)
        if config.implementation == "two_loops":
            launches = []
            kernels.add("two_loops")
        elif config.implementation == "split_rows":
            launches = dispatch._split_launches(None, config, n_rows, n_cols, strides, log, not backward, device.nvidia)
        else:
            launches = [dispatch._tile_launch(None, config, n_rows, n_cols, strides, log)]
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
    """1,000 lengths up to 262,144, at any number of rows, dtype and direction: no more than 20 kernels."""
    lengths = random.Random(0).sample(range(1, 262145), 998)
    assert most_kernels([1, *lengths, 262144], device) <= 20


@on_every_device
def test_few_kernels_for_lengths_of_every_magnitude(device):
    """Lengths spread over the magnitudes meet every power of two, with edges and without: no more than 27 kernels."""
    lengths = {round(2 ** (18 * i / 998)) for i in range(999)}
    assert most_kernels(sorted(lengths), device) <= 27


def test_constants_are_what_the_documentation_says():
    assert heuristics.VECTOR_BYTES == 16
    assert MAX_CHUNKS * 8192 == 2**27
