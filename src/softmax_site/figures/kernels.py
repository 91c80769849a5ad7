"""Where rows lie, and which program takes what: the figures of the kernel pages and their map."""

from __future__ import annotations

from softmax_site.figures import ranks, timeline
from softmax_site.figures.drawing import Drawing, figure

SMALL = 132, 64
"""The size of a picture on the map."""


def _passes(reads: int, writes: int, alt: str) -> Drawing:
    """A strip for each time that the row is read or written."""
    drawing = Drawing(*SMALL, alt)
    height = min(10, (SMALL[1] - 4) / (reads + writes) - 2)
    y = (SMALL[1] - (reads + writes) * (height + 2)) / 2
    for number in range(reads + writes):
        drawing.box(
            4, y + number * (height + 2), 124, height, "reads" if number < reads else "writes"
        )
    return drawing


def _of_naive() -> Drawing:
    return _passes(5, 3, "Eight strips: five reads of the matrix and three writes.")


def _of_three_loops() -> Drawing:
    return _passes(3, 1, "Four strips: three reads of the matrix and one write.")


def _of_two_loops() -> Drawing:
    return _passes(2, 1, "Three strips: two reads of the matrix and one write.")


def _of_single_block() -> Drawing:
    return _passes(1, 1, "Two strips: one read of the matrix and one write.")


def _of_packed_rows() -> Drawing:
    drawing = Drawing(*SMALL, "Four short rows in one tile, with a few empty lanes at its end.")
    for row in range(4):
        drawing.box(4, 4 + row * 14, 96, 12, "p0", "p0" if row == 0 else "")
        drawing.box(102, 4 + row * 14, 26, 12, "none")
    return drawing


def _of_aligned_rows() -> Drawing:
    drawing = Drawing(*SMALL, "A row whose first and last elements lie outside whole vectors.")
    drawing.box(14, 22, 14, 20, "edge")
    for vector in range(5):
        drawing.box(29 + vector * 16, 22, 15, 20, "p0")
    drawing.box(109, 22, 8, 20, "edge")
    for mark in range(8):
        drawing.line(13 + mark * 16 - 0.5, 14, 13 + mark * 16 - 0.5, 50, "mark")
    return drawing


def _of_split_rows() -> Drawing:
    drawing = Drawing(*SMALL, "One row cut into four chunks, each with a word above it.")
    for chunk in range(4):
        drawing.box(4 + chunk * 31, 34, 30, 20, f"p{chunk}", f"p{chunk}")
        drawing.box(14 + chunk * 31, 6, 10, 8, "writes")
        drawing.line(19 + chunk * 31, 14, 19 + chunk * 31, 34, "mark")
    drawing.line(19, 10, 112, 10, "mark")
    return drawing


def _grid(alt: str, kind_of) -> Drawing:
    drawing = Drawing(*SMALL, alt)
    for down in range(5):
        for across in range(8):
            drawing.box(6 + across * 15, 3 + down * 12, 14, 11, kind_of(down, across))
    return drawing


def _of_strided() -> Drawing:
    return _grid(
        "A grid in which each program takes two neighbouring columns of cells over its whole "
        "height.",
        lambda down, across: f"p{across // 2}",
    )


def _of_split_strided() -> Drawing:
    return _grid(
        "The same grid, where two programs share a pair of columns of cells: one takes the upper "
        "part, one the lower.",
        lambda down, across: f"p{(across // 4) * 2 + (down > 2)}",
    )


def _of_strided_loops() -> Drawing:
    drawing = _grid(
        "The same grid, where each program walks down its columns of cells twice.",
        lambda down, across: f"p{across // 4}",
    )
    for x in (24, 44, 84, 104):
        drawing.arrow(x, 5, x, 58)
    return drawing


def _of_mapped_rows() -> Drawing:
    return _grid(
        "A grid of scores, of which only the cells on and below the diagonal are read.",
        lambda down, across: "p0" if across <= down else "none",
    )


def _of_flash_attention() -> Drawing:
    drawing = Drawing(*SMALL, "Tiles of keys and values that one program of queries walks along.")
    drawing.box(4, 8, 22, 48, "p0", "q")
    for tile in range(4):
        drawing.box(34 + tile * 24, 8, 22, 22, "reads", "k")
        drawing.box(34 + tile * 24, 34, 22, 22, "reads", "v")
    return drawing


PICTURES = {
    "naive": _of_naive,
    "three_loops": _of_three_loops,
    "two_loops": _of_two_loops,
    "single_block": _of_single_block,
    "packed_rows": _of_packed_rows,
    "aligned_rows": _of_aligned_rows,
    "split_rows": _of_split_rows,
    "split_rows_simple": _of_split_rows,
    "strided": _of_strided,
    "split_strided": _of_split_strided,
    "strided_loops": _of_strided_loops,
    "mapped_rows": _of_mapped_rows,
    "flash_attention": _of_flash_attention,
}
"""The picture of each module of kernels on the map."""


def memory(environment: dict) -> str:
    """From registers to memory, with the sizes of the GPU that was measured."""
    l2 = environment["l2_bytes"] / 2**20
    memory_gib = environment["gpu_memory_bytes"] / 2**30
    count = environment["multiprocessors"]
    drawing = Drawing(
        520,
        250,
        f"{count} multiprocessors, each with registers and an L1 cache of its own; one L2 cache of "
        f"{l2:.0f} MiB that all share; one memory of {memory_gib:.0f} GiB behind it.",
    )
    for at, name in enumerate(
        ("multiprocessor 0", "multiprocessor 1", f"multiprocessor {count - 1}")
    ):
        x = (0, 172, 348)[at]
        drawing.box(x, 0, 168, 122, "frame")
        drawing.text(x + 84, 14, name, "ink", "middle")
        for warp in range(4):
            drawing.box(x + 8 + warp * 38.5, 28, 37, 22, f"p{warp // 2}", "warp")
        drawing.box(x + 8, 54, 152, 26, "reads", "registers 256 KiB")
        drawing.box(x + 8, 86, 152, 28, "wash", "L1 and shared 256 KiB")
        drawing.arrow(x + 84, 124, x + 84, 142)
    drawing.text(344, 60, "…", "ink", "middle")
    drawing.box(0, 144, 516, 36, "wash", f"L2 cache, {l2:.0f} MiB, shared by all")
    drawing.arrow(258, 182, 258, 200)
    drawing.box(0, 202, 516, 42, "frame")
    drawing.text(258, 223, f"memory, {memory_gib:.0f} GiB", "ink", "middle")
    return figure(
        [drawing],
        f"The {environment['gpu']} on which this site measures. Each level is larger, further away "
        "and slower than the one above it. Here each multiprocessor runs two programs (two "
        "shades) of two warps each. The counts, and the sizes of L2 and memory, are what the "
        "device reported; the sizes within a multiprocessor are from "
        '<a href="https://docs.nvidia.com/cuda/hopper-tuning-guide/index.html">NVIDIA’s tuning '
        "guide for Hopper</a>.",
    )


def coalescing() -> str:
    """The same eight threads, reading neighbours and reading a stride apart."""
    near = Drawing(
        250, 150, "Eight threads read eight neighbouring elements: one sector of 32 bytes."
    )
    far = Drawing(
        250, 150, "Eight threads read elements that lie far apart: one element of eight sectors."
    )
    for drawing, title in ((near, "neighbours"), (far, "a stride apart")):
        drawing.text(0, 10, title)
        for thread in range(8):
            drawing.box(4 + thread * 30, 26, 26, 20, "p0", str(thread))
    near.box(3, 88, 238, 24, "frame")
    for thread in range(8):
        near.arrow(17 + thread * 30, 48, 17 + thread * 30, 84)
        near.box(5 + thread * 29.5, 91, 26, 18, "reads")
        far.arrow(17 + thread * 30, 48, 17 + thread * 30, 84)
        far.box(4 + thread * 30, 88, 27, 24, "frame")
        far.box(6 + thread * 30, 91, 4, 18, "reads")
    near.text(0, 134, "1 sector moved, all of it used", "quiet")
    far.text(0, 134, "8 sectors moved, an eighth of each used", "quiet")
    return figure(
        [near, far],
        "Eight of the 32 threads of a warp. If they ask for adjacent float32 numbers, these share "
        "a sector. If they ask for numbers far apart, each moves a sector of its own and uses "
        "four bytes of it.",
    )


def split_strands(along: int = 6, across: int = 8, chunks: int = 2) -> str:
    """The same tile, cut into chunks along the strands, and walked in loops."""
    cut = Drawing(
        256, 190, "Tiles cut in two along the strands; each part publishes a word a strand."
    )
    walk = Drawing(256, 190, "Each program walks along its strands twice, tile by tile.")
    for drawing, title in ((cut, "split: both parts in registers"), (walk, "loops: walked twice")):
        drawing.text(0, 10, title)
        for down in range(along):
            for at in range(across):
                if drawing is cut:
                    kind = (at // (across // 2)) * 2 + down // (along // chunks)
                else:
                    kind = at // (across // 2)
                drawing.box(at * 30, 26 + down * 22, 29, 21, f"p{kind}")
    for at in range(across):
        cut.box(at * 30 + 11, 164, 8, 8, "writes")
        cut.box(at * 30 + 11, 176, 8, 8, "writes")
    for x in (45, 75, 165, 195):
        walk.arrow(x, 30, x, 152)
    walk.text(0, 172, "first the sums, then the result", "quiet")
    return figure(
        [cut, walk],
        "Left: the strands are too long for one program, so two programs share them and exchange "
        "a word for each strand (small squares). Right: very long strands are walked twice, and "
        "nothing is kept in between but the maximum and the sum.",
    )


def three_ways() -> str:
    """How programs that share a row learn of the whole row."""
    words = Drawing(168, 196, "Chunks in registers; words go through the L2 cache.")
    clusters = Drawing(168, 196, "Chunks in a cluster; pairs go from one shared memory to another.")
    twice = Drawing(168, 196, "One program reads the whole row from memory twice.")
    for drawing, title in ((words, "words"), (clusters, "clusters"), (twice, "second read")):
        drawing.text(0, 10, title)
        drawing.box(0, 158, 164, 30, "frame")
        drawing.text(82, 173, "memory", "ink", "middle")
    for at in range(4):
        words.box(at * 42, 28, 38, 30, f"p{at}", f"p{at}")
        words.arrow(at * 42 + 14, 60, at * 42 + 14, 90)
        words.arrow(at * 42 + 26, 90, at * 42 + 26, 62)
        words.arrow(at * 42 + 19, 156, at * 42 + 19, 128)
        clusters.box(at * 42, 28, 38, 30, f"p{at}", f"p{at}")
        clusters.arrow(at * 42 + 19, 156, at * 42 + 19, 106)
    words.box(0, 94, 164, 30, "wash", "words in L2")
    clusters.box(0, 62, 164, 40, "wash")
    clusters.text(82, 74, "shared memories", "ink", "middle")
    clusters.arrow(24, 90, 58, 90)
    clusters.arrow(140, 90, 106, 90)
    twice.box(50, 28, 64, 30, "p0", "p0")
    twice.arrow(68, 156, 68, 62)
    twice.arrow(96, 156, 96, 62)
    twice.text(62, 110, "1", "ink", "end")
    twice.text(102, 110, "2", "ink")
    return figure(
        [words, clusters, twice],
        "Three ways to a denominator. Ours: any programs of the device exchange 64-bit words "
        "through the cache that all share. QuACK: the programs of a cluster, at most 16 and on "
        "neighbouring multiprocessors, write into each other’s shared memory. torch, Liger and "
        "our own two loops, for rows that fit no program: read the row again.",
    )


def fragments(environment: dict | None) -> dict[str, str]:
    """The figures by the name that a page includes them by."""
    drawn = {
        "figure-coalescing": coalescing(),
        "figure-depths": timeline.depths(),
        "figure-split-strided": split_strands(),
        "figure-three-ways": three_ways(),
        "figure-ranks": ranks.merges(),
    }
    if environment:
        drawn["figure-memory"] = memory(environment)
    return drawn
