"""Which kernel, and how: from shape, strides, dtype and device to a frozen `Config`.

Pure functions of numbers; nothing here needs a GPU, and the tests call them at every threshold.
Constants carry the measurement that chose them, as a share of the time of a copy that moves the
same bytes (H200, 2^27 elements, cold L2): 1.00 is as fast as copying.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

VECTOR_BYTES = 16
"""The widest access of one thread."""

MAX_POLLS = 1024
"""How often a program of the split-row kernels looks again for missing words before it does without
its partners: about a millisecond, many times what a row takes, so that it only ever happens when
    they are not running."""

MAX_CHUNKS = 16384
"""The most chunks of a row that the split-row kernels take; a row of 2^27 columns has so many."""

PACKED_MAX_COLS = 65536
"""The longest row that `packed_rows` and `aligned_rows` take when they are asked for by name; the
registers end before."""


@dataclass(frozen=True)
class Device:
    """What the choice depends on.

    Attributes:
        multiprocessors: number of multiprocessors (streaming multiprocessors, compute units).
        nvidia: whether kernels are compiled for an NVIDIA GPU; else no register limit is set, no
            assembly used, and no program waits for another.
    """

    multiprocessors: int = 132
    nvidia: bool = False


@dataclass(frozen=True)
class Config:
    """How to launch one kernel.

    Attributes:
        implementation: one of `triton_softmax.IMPLEMENTATIONS`.
        block_rows: rows (strided: elements along the inner dimension) per program.
        block_cols: columns per program; for split_rows per chunk, of which `chunk_cols` are used.
        num_warps: warps per program.
        vector: elements that one access moves, as the compiler is told.
        edges: rows do not all start and end on a vector.
        hold, pairs, keep_exp: what stays in registers, see `kernels.online.hold` and
            `kernels.split_rows`.
        n_chunks: chunks per row; for strided loops segments of the softmax dimension.
        chunk_cols: columns of a chunk, or of a segment.
        max_registers: registers per thread, None to let the compiler choose.
        max_programs: how many programs to launch at most, None for one per chunk.
        ahead, lag, nap: how split_rows fills the time while it waits, see `kernels.split_rows`.
        two_pass: two launches, one that publishes and one that reads again and writes.
        loops: strided: walked twice, tile by tile. Else a tile holds the whole dimension, or one of
            several chunks.
        wide_index: strided: offsets need 64 bits.
    """

    implementation: str
    block_rows: int = 1
    block_cols: int = 1
    num_warps: int = 4
    vector: int = 1
    edges: bool = False
    hold: bool = False
    pairs: bool = False
    keep_exp: bool = False
    n_chunks: int = 1
    chunk_cols: int = 0
    max_registers: int | None = None
    max_programs: int | None = None
    ahead: bool = False
    lag: bool = False
    nap: int = 0
    two_pass: bool = False
    loops: bool = False
    wide_index: bool = False


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is at least n.

    >>> [next_power_of_2(n) for n in (0, 1, 2, 3, 4097)]
    [1, 1, 2, 4, 8192]
    """
    return 1 << max(0, n - 1).bit_length()


def vector_width(itemsize: int, addresses: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Elements per access that rows of these tensors allow: a whole vector, or 1.

    Args:
        itemsize: bytes of the narrowest element.
        addresses: of the tensors' first elements, in bytes.
        strides: from row to row of each tensor, in elements.

    A vector works if every tensor starts on one and all rows with the same number start equally far
    from one.

    >>> vector_width(2, (0, 512), (50257, 50257)), vector_width(2, (0, 512), (50264, 50257)), vector_width(4, (4, 512), (8, 8))
    (8, 1, 1)
    """
    width = VECTOR_BYTES // itemsize
    aligned = all(address % VECTOR_BYTES == 0 for address in addresses)
    in_step = all((stride - strides[0]) % width == 0 for stride in strides)
    return width if aligned and in_step else 1


def vector_of_lines(itemsize: int, addresses: tuple[int, ...], counts: tuple[int, ...]) -> int:
    """Elements per access across the inner dimension of strided tensors: the largest power of two,
    up to a whole vector, that divides all counts.

    Args:
        itemsize: bytes of the narrowest element.
        addresses: of the tensors' first elements, in bytes.
        counts: the inner dimension's length and all strides but the inner ones, in elements.

    >>> vector_of_lines(2, (0, 512), (196, 4116)), vector_of_lines(4, (0, 512), (1024, 65536)), vector_of_lines(4, (4, 512), (1024, 65536))
    (4, 4, 1)
    """
    width = VECTOR_BYTES // itemsize
    if any(address % VECTOR_BYTES for address in addresses):
        return 1
    while any(count % width for count in counts):
        width //= 2
    return width


# --8<-- [start:fits]
def fits_one_program(
    n_rows: int, n_cols: int, itemsize: int, edges: bool, backward: bool, device: Device
) -> bool:
    """Whether a row should be one program's, held in its registers.

    A program that fills a multiprocessor alone cannot hide its waiting behind another one, and
    16-bit rows have to be
    twice as fast: 16-bit forward rows of 32,768 in one program reach 0.78, split 0.85 and more;
        float32 0.99.
    Backward holds two rows at a time.
    """
    if itemsize == 8:
        return n_cols <= 8192
    if backward:
        limit = 16384 if edges == (itemsize == 4) else 8192
    elif itemsize == 4:
        limit = 16384 if edges else 32768
    elif edges and 8200 <= n_cols <= 12288:
        return (
            False  # a body of more than 8,192 in a tile of 16,384: 0.77 to 0.93, split 0.93 to 0.97
        )
    else:
        limit = 16384
    if n_rows * 2 < device.multiprocessors:
        limit = min(
            limit, 8192
        )  # few long rows: more programs than rows, or most of the device idles
    return n_cols <= limit


# --8<-- [end:fits]


# --8<-- [start:tile]
def tile_config(
    n_rows: int,
    n_cols: int,
    itemsize: int,
    vector: int,
    edges: bool,
    backward: bool,
    device: Device,
) -> Config:
    """One program for one row or several.

    Enough rows that a program has 1,024 elements or more, but not so many that programs become
    fewer than the device can run. Rows with edges do best within one warp, where a reduction needs
    no barrier (16-bit, 781 columns: one warp 1.00, four 0.42).
    """
    body = n_cols // vector * vector if edges else n_cols  # 4,097 columns have a body of 4,096
    block_cols = max(16, next_power_of_2(body))
    sixteen = itemsize == 2
    if edges:
        rows = min(16, max(1, 1024 // block_cols))
        if block_cols <= 512:
            warps = (
                2 if rows >= 8 or (block_cols == 512 and not sixteen) else 1
            )  # 16-bit, 129: 0.89 and 0.98, 257: 1.00
        elif sixteen:
            warps = max(1, block_cols // (1024 if backward else 2048))
        else:
            warps = (
                block_cols // 512 if 1024 < block_cols <= 8192 else 4 if block_cols <= 1024 else 8
            )
        warps = min(16, warps)
    elif sixteen and vector == 4:  # see `choose_rows`
        block_cols = max(32, block_cols)
        rows, warps = max(1, 1024 // block_cols), 2 if block_cols <= 64 else 1
    elif backward or itemsize == 8:
        rows, warps = max(1, 1024 // block_cols), 4 if block_cols < 4096 else 16
    elif sixteen:
        rows, warps = (
            max(1, 2048 // block_cols),
            4 if block_cols < 4096 else 8 if block_cols == 16384 else 16,
        )
        if block_cols == 4096:
            rows = 2  # 1.00; one row: 0.97 to 0.99
    else:
        # 1.01 with 1,024 elements; with 2,048, or four warps for 2,048 and 4,096, 0.98
        rows, warps = (
            max(1, 1024 // block_cols),
            {2048: 1, 4096: 2}.get(block_cols, 4 if block_cols < 2048 else 16),
        )
    if block_cols > 32768:
        warps = 32
    rows = min(rows, max(1, next_power_of_2(n_rows // (2 * device.multiprocessors))))
    if backward:
        hold = not edges and block_cols == 16384  # 0.99; without 0.96
    else:
        hold = block_cols >= (2048 if edges else 8192)
    hold = hold and device.nvidia and sixteen
    return Config(
        "aligned_rows" if edges else "packed_rows",
        block_rows=rows,
        block_cols=block_cols,
        num_warps=warps,
        vector=vector,
        edges=edges,
        hold=hold,
    )


# --8<-- [end:tile]


# --8<-- [start:split]
class Way(NamedTuple):
    """One way to split rows: what a program takes, and what it does while it waits.

    Attributes:
        block: columns of a chunk.
        registers: per thread. The fewer, the more programs a multiprocessor holds; these are the
            smallest that need no spills.
        warps: per program.
        keep_exp, ahead, lag, nap: see `kernels.split_rows`; `ahead` asks for the next chunk before
            it waits, `lag` also writes one chunk later.
    """

    block: int
    registers: int
    warps: int = 4
    keep_exp: bool = False
    ahead: bool = False
    lag: bool = False
    nap: int = 0

    def resident_programs(self, device: Device) -> int:
        """How many programs run at once on a device whose multiprocessors have 65,536 registers and
        room for 48 warps, as from sm_80 on."""
        registers = -(-self.registers // 8) * 8  # as they are handed out
        per_multiprocessor = min(65536 // (registers * 32 * self.warps), 48 // self.warps, 16)
        return per_multiprocessor * device.multiprocessors


def ways_for_many_rows(
    itemsize: int, log: bool, edges: bool, backward: bool
) -> list[tuple[int, Way]]:
    """(longest row, way) in the order of preference.

    Up to 131,072 columns, programs that do one chunk each are enough, since others of the same
    multiprocessor are busy while one waits. Longer
    rows keep more programs waiting at once, and each has to use that time itself: by asking for its
        next chunk, then by writing one chunk later.
    """
    if itemsize == 4 and not backward:
        lagging = (2**31, Way(4096, 128, ahead=True, lag=True))  # 2^20: 0.90; 2^21: 0.85
        if log:
            return [(262_144, Way(8192, 128)), lagging]  # 0.98; 2^18: 0.94; 151,643: 0.95
        if edges:
            return [
                (524_288, Way(8192, 112, keep_exp=True)),
                lagging,
            ]  # 32,001: 0.98; 151,643: 0.96
        return [(1_048_576, Way(8192, 96, keep_exp=True)), lagging]  # 0.98; 2^18: 0.98; 2^20: 0.92
    if itemsize == 4:
        lagging = (2**31, Way(2048, 128, ahead=True, lag=True))  # 2^18: 0.99; 2^20: 0.91
        way = Way(8192, 168 if edges or log else 160)
        first = (262_144, way) if edges else (131_072, way)  # 0.99 to 0.96; 1.00
        return [first, lagging, (2**31, Way(4096, 168, ahead=True))]  # 3 · 2^19: 0.68
    if not backward:
        if edges:
            first = (
                114_688,
                Way(2048, 72, warps=1, nap=300),
            )  # 32,001: 0.95; 50,257: 0.93; 100,003: 0.90
        else:
            first = (131_072, Way(8192, 64))  # 0.97 to 0.94
        ahead = (
            1_310_720,
            Way(8192, 96, ahead=True, nap=500),
        )  # 2^18: 0.93; 2^20: 0.89; 151,643: 0.93
        return [
            first,
            ahead,
            (2**31, Way(8192, 128, ahead=True, lag=True)),
        ]  # 2^21: 0.83; 2^22: 0.77
    ways = (
        [(24_576, Way(4096, 128, warps=2))] if edges else []
    )  # 0.93 to 0.98, in chunks of 8,192 down to 0.81
    ways += [(262_144 if edges else 131_072, Way(8192, 128))]  # 0.98 to 0.95; 0.99 to 0.98
    lagging = (2**31, Way(4096, 128, ahead=True, lag=True))  # 2^18: 0.96; 2^20: 0.93; 2^21: 0.86
    return [*ways, lagging, (2**31, Way(8192, 168, ahead=True))]  # 3 · 2^20: 0.73


def way_for_few_rows(
    n_rows: int, n_cols: int, itemsize: int, log: bool, backward: bool, device: Device
) -> Way | None:
    """Smaller chunks, so that every multiprocessor has some, and several to keep it busy; None if
    there are plenty anyway.

    As long as all chunks fit on the device at once, each is a program of its own, and the finer the
    better. But every program reads the words of its whole row, so a row of more than a hundred
    chunks is cut more coarsely. In 286 cases from 1 × 32,768 to 128 × 524,288, these choices were
    on average 1.6 % slower than the fastest way that was tried.
    """

    def chunks(block: int) -> tuple[int, float]:
        """(of a row, per multiprocessor)"""
        n_chunks = -(-n_cols // block)
        return n_chunks, n_rows * n_chunks / device.multiprocessors

    registers = 168 if backward else 128
    keep_exp = not log and not backward
    wide = backward and itemsize == 4  # two tensors, an element to a register
    for way, most in (
        (Way(2048, registers, 2, keep_exp), 8),
        (Way(4096, registers, 4 if wide else 2, keep_exp), 8),
        (Way(8192, 128, 8) if wide else Way(8192, registers, 4, keep_exp), 4),
    ):
        n_chunks, per_multiprocessor = chunks(way.block)
        if per_multiprocessor <= most and (n_chunks <= 96 or way.block == 8192):
            return way
    if chunks(8192)[1] < 16 and chunks(4096)[0] <= 128:
        return Way(
            4096,
            168 if itemsize == 4 else registers,
            4 if wide else 2,
            keep_exp=keep_exp,
            ahead=True,
        )
    return None


def split_config(
    n_rows: int,
    n_cols: int,
    itemsize: int,
    log: bool,
    vector: int,
    edges: bool,
    backward: bool,
    device: Device,
) -> Config:
    """Several chunks for one row, held at the same time by as many programs.

    A way can be taken if the chunks of a row, and so all that wait for each other, run at once. If
    none can, or on a device whose waiting is not
    known, there are two launches: the first only publishes, and the second reads again, finds all
        words there and never waits.
    """
    few = way_for_few_rows(n_rows, n_cols, itemsize, log, backward, device)
    ways = [(2**31, few)] if few and vector > 1 else []
    if vector == 1:
        # An element to an access: 50,257 columns and a padded row stride, float32 0.83, bfloat16
        # 0.55.
        ways += [(2**31, Way(4096, 128) if backward or log else Way(2048, 40, keep_exp=True))]
    else:
        ways += ways_for_many_rows(itemsize, log, edges, backward)
    two_pass = False
    for longest, way in ways:
        n_chunks = -(-n_cols // way.block)
        if n_cols <= longest and (
            n_chunks <= way.resident_programs(device) if device.nvidia else n_chunks == 1
        ):
            break
    else:
        two_pass = True
        block = 2048 if not device.nvidia else 4096 if backward and itemsize == 4 else 8192
        way = Way(block if n_cols <= MAX_CHUNKS * block else 8192, 128)
        n_chunks = -(-n_cols // way.block)
    pairs = itemsize == 2 and vector > 1
    return Config(
        "split_rows",
        block_cols=way.block,
        num_warps=way.warps,
        vector=vector,
        edges=edges,
        hold=pairs and device.nvidia,
        pairs=pairs,
        keep_exp=way.keep_exp,
        n_chunks=n_chunks,
        chunk_cols=-(-(-(-n_cols // n_chunks)) // vector) * vector,
        max_registers=way.registers if device.nvidia else None,
        max_programs=way.resident_programs(device) if way.ahead else None,
        ahead=way.ahead,
        lag=way.lag,
        nap=way.nap,
        two_pass=two_pass,
    )


# --8<-- [end:split]


# --8<-- [start:strided]
def way_for_long_columns(n_cols: int, itemsize: int, backward: bool) -> tuple[Way, int]:
    """(way, inner): chunks of way.block × inner elements of a dimension that no tile holds.

    512 × 4,096 × 64, forward and backward: float32 0.89 and 0.93, bfloat16 0.72 and 0.82.
    """
    if backward and n_cols > 4096:
        return Way(2048 // itemsize, 128, 16), 32  # 8,192 × 16,384: 0.76 and 0.66
    if itemsize == 4:
        return (Way(256, 128, 8) if backward else Way(512, 128, 8)), 32
    if backward:
        return Way(256, 128, 8), 64
    return (Way(512, 128) if n_cols <= 2048 else Way(1024, 128, 8)), 32


def loops_config(
    n_outer: int,
    n_cols: int,
    n_inner: int,
    itemsize: int,
    device: Device,
    backward: bool,
    vector: int,
    wide_index: bool,
) -> Config:
    """A long dimension walked twice, in as many segments as keep the device busy.

    But every program of the second launch reads the summaries of all segments of its columns, which
    should be few beside the elements of its own segment.

    131,072 × 1,024, forward and backward: float32 0.62 and 0.56, bfloat16 0.46 and 0.55. Reading
    twice can reach 0.67 and 0.60.
    """
    inner, block_cols, warps = 64 if itemsize <= 4 else 32, 64, 4
    if itemsize == 4 and backward:
        block_cols = 32
    if itemsize == 2 and not backward:
        inner, warps = 32, 2
    elif itemsize == 2 and vector == 8:
        inner = 128
    block = inner * block_cols
    inner = min(inner, next_power_of_2(n_inner))
    block_cols = block // inner
    groups = n_outer * -(-n_inner // inner)
    few_summaries = min(math.isqrt(n_cols * itemsize // 16), max(256, 512 // groups))
    n_segments = max(
        1, min(few_summaries, 32 * device.multiprocessors // groups, -(-n_cols // block_cols))
    )
    segment_cols = -(-n_cols // (n_segments * block_cols)) * block_cols
    n_segments = -(-n_cols // segment_cols)
    return Config(
        "strided",
        block_rows=inner,
        block_cols=block_cols,
        num_warps=warps,
        vector=vector,
        n_chunks=n_segments,
        chunk_cols=segment_cols,
        two_pass=n_segments > 1,
        loops=True,
        wide_index=wide_index,
    )


def strided_config(
    n_outer: int,
    n_cols: int,
    n_inner: int,
    itemsize: int,
    largest_offset: int,
    device: Device,
    backward: bool = False,
    vector: int = 8,
) -> Config:
    """A tile across the inner dimension, of the whole softmax dimension if it is short.

    64 neighbours side by side and 64 elements per thread reach 0.94 and more up to 256 columns. A
    longer dimension is split into chunks. A very long one, for whose many chunks there would be too
    many words to read, is walked in loops. So is every long one where waiting is not known to work,
    or whose elements have to be accessed one by one or (16-bit, forward) two by two (`vector`).
    """
    wide_index = largest_offset >= 2**31
    block_cols = next_power_of_2(n_cols)
    sixteen = itemsize == 2
    split = device.nvidia and itemsize <= 4 and vector > (2 if sixteen and not backward else 1)
    if (
        split
        and block_cols > (512 if sixteen or backward else 1024)
        and n_cols <= (65536 if sixteen and not backward else 16384)
    ):
        way, inner = way_for_long_columns(n_cols, itemsize, backward)
        inner = min(inner, next_power_of_2(n_inner))
        n_chunks = -(-n_cols // way.block)
        if (
            n_chunks <= way.resident_programs(device)
            and n_outer * -(-n_inner // inner) * n_chunks < 2**31
        ):
            return Config(
                "strided",
                block_rows=inner,
                block_cols=way.block,
                num_warps=way.warps,
                vector=vector,
                hold=sixteen,
                n_chunks=n_chunks,
                max_registers=way.registers,
                wide_index=wide_index,
            )
    if block_cols > (2048 if itemsize <= 4 else 1024):
        return loops_config(
            n_outer, n_cols, n_inner, itemsize, device, backward, vector, wide_index
        )
    per_warp = 1024 if itemsize == 8 else 2048
    if sixteen and backward and 256 <= block_cols <= 512:
        inner, per_warp = 64, 4096  # 512 columns: 0.96, with 32 neighbours 0.87
    else:
        inner = (
            max(64, 1024 // block_cols) if block_cols <= 256 else 32 if block_cols <= 1024 else 16
        )
    inner = min(inner, next_power_of_2(n_inner))
    return Config(
        "strided",
        block_rows=inner,
        block_cols=block_cols,
        num_warps=max(1, min(16, block_cols * inner // per_warp)),
        vector=vector,
        hold=device.nvidia and sixteen and not backward and block_cols == 512,  # 0.95, against 0.84
        wide_index=wide_index,
    )


# --8<-- [end:strided]


def choose_rows(
    n_rows: int,
    n_cols: int,
    itemsize: int,
    *,
    log: bool,
    backward: bool,
    addresses: tuple[int, ...],
    strides: tuple[int, ...],
    device: Device,
    held: int | None = None,
    implementation: str | None = None,
) -> Config:
    """The configuration for softmax along rows of adjacent elements.

    Args:
        n_rows: number of rows.
        n_cols: number of columns.
        itemsize: bytes of the narrowest element of the tensors involved; 8 only if all are float64.
        log: log-softmax.
        backward: the vector-Jacobian product.
        addresses: of the tensors' first elements.
        strides: from row to row of each tensor, in elements.
        device: what the kernel will run on.
        held: bytes of the widest element that is read, which is what a program keeps in registers;
            by default `itemsize`.
        implementation: "packed_rows", "aligned_rows" or "split_rows" to insist, None to choose.

    Raises:
        ValueError: the implementation insisted on cannot take this shape.
    """
    held = held or itemsize
    vector = vector_width(itemsize, addresses, strides)
    edges = bool(n_cols % vector) or any(stride % vector for stride in strides)
    if (
        edges
        and held == 2
        and n_cols <= 128
        and vector > 4
        and not any(count % 4 for count in (n_cols, *strides))
        and implementation is None
    ):
        # Short rows are mostly edges. Half a vector, if it divides them, does without.
        # Forward and backward: 20 columns 0.77 and 0.99 (0.28 and 0.39 with edges), 100 columns
        # 0.84 and 0.98 (0.70 and 0.75).
        vector, edges = 4, False
    if implementation == "packed_rows":
        if n_cols > PACKED_MAX_COLS:
            raise ValueError(
                f"packed_rows holds rows of at most {PACKED_MAX_COLS:,} columns, not {n_cols:,}"
            )
        return tile_config(n_rows, n_cols, held, 1 if edges else vector, False, backward, device)
    if implementation == "aligned_rows":
        if n_cols > PACKED_MAX_COLS:
            raise ValueError(
                f"aligned_rows holds rows of at most {PACKED_MAX_COLS:,} columns, not {n_cols:,}"
            )
        if vector == 1:
            raise ValueError(
                "aligned_rows needs tensors that start on 16 bytes and row strides that agree modulo a vector"
            )
        return tile_config(n_rows, n_cols, held, vector, True, backward, device)
    if implementation == "split_rows":
        if held == 8:
            raise ValueError(
                "split_rows packs its summaries as two float32 numbers and does not take float64"
            )
        if n_cols > MAX_CHUNKS * 8192:
            raise ValueError(
                f"split_rows splits rows of at most {MAX_CHUNKS * 8192:,} columns, not {n_cols:,}"
            )
        return split_config(n_rows, n_cols, held, log, vector, edges, backward, device)
    if fits_one_program(n_rows, n_cols, held, edges, backward, device):
        return tile_config(n_rows, n_cols, held, vector, edges, backward, device)
    if held == 8 or n_cols > MAX_CHUNKS * 8192 or n_rows * -(-n_cols // 1024) >= 2**31:
        return Config("two_loops")
    return split_config(n_rows, n_cols, held, log, vector, edges, backward, device)
