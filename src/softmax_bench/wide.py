"""All ways to launch a kernel that may be worth a try, whatever the library would choose: what
`tune --wide` draws from.

`candidates` looks near the library's choice, and so finds what a constant is off by. This looks
everywhere, and so finds where the rule is wrong.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

from softmax_bench.candidates import Problem
from triton_softmax.choose import Choice, split_rows, strided
from triton_softmax.choose.constants import RowTile, StridedTile
from triton_softmax.choose.row_tiles import Rows
from triton_softmax.choose.strided import Columns
from triton_softmax.choose.vectors import ceil_div, next_power_of_2

PARTS = (1, 2, 4, 8, 16)
"""Into how many parts the next power of two is cut for a tile."""

LONGEST_TILED = 32768
"""Columns of the longest row that is tried as one program's."""

CHUNKS = ((1024, 1), (2048, 1), (2048, 2), (2048, 4), (4096, 1), (4096, 2), (4096, 4), (4096, 8))
CHUNKS += ((8192, 2), (8192, 4), (8192, 8), (16384, 8), (16384, 16), (32768, 16))
"""(columns, warps) of a chunk of a row."""

REGISTERS = (40, 64, 72, 80, 96, 112, 128, 168, 216, 248)
"""Registers per thread that a chunk of a row is given."""


def per_thread(lanes: int, warps: int, problem: Problem) -> float:
    """Registers of a thread for its share of so many lanes."""
    narrow = problem.facts.itemsize == 2 and problem.facts.vector > 1
    return lanes / (32 * warps) * problem.traits.inputs * (0.5 if narrow else 1.0)


def row_tiles(problem: Problem, rows: Rows) -> Iterator[Choice]:
    """Whole rows in one program."""
    n_cols, small = rows.n_cols, rows.n_rows * rows.n_cols < 2_000_000
    kinds = [("packed_rows", rows.divisor if rows.edges else rows.vector, n_cols)]
    if rows.edges and rows.vector > 1:
        kinds.append(("aligned_rows", rows.vector, n_cols // rows.vector * rows.vector))
    barriers = (False, True) if rows.itemsize == 2 and n_cols > 4096 else (False,)
    at_least, at_most = (1, 32) if small else (4, 96 if n_cols > 4096 else 64)
    for (kernel, vector, body), parts in itertools.product(kinds, PARTS):
        cols = next_power_of_2(body) // parts
        if cols < max(2, vector) or n_cols > LONGEST_TILED:
            continue
        tiles = ceil_div(body, cols)
        for height, warps, barrier in itertools.product(
            (1, 2, 4, 8, 16, 32, 64), (1, 2, 4, 8, 16, 32), barriers
        ):
            fits = at_least <= height * cols * tiles / (32 * warps) <= at_most
            if fits and (height == 1 or height * n_cols <= 16384):
                yield Choice(kernel, RowTile(height, cols, vector, barrier, tiles), warps)


def chunks_of_rows(problem: Problem, rows: Rows) -> Iterator[Choice]:
    """Chunks of rows on several programs."""
    if rows.n_cols < 4096 or rows.itemsize == 8:
        return
    edges = rows.edges and rows.vector > 1
    facts = rows.n_cols, rows.itemsize, rows.vector, edges, problem.traits, problem.device
    for (block, warps), registers, depth in itertools.product(CHUNKS, REGISTERS, (0, 1, 2)):
        held = per_thread(block, warps, problem)
        if not held + 16 <= registers <= held + 104 or (depth and 1.5 * held + 24 > registers):
            continue
        for keep_terms in {False, problem.traits.keeps_terms and not depth}:
            taken = split_rows.Candidate(block, registers, warps, keep_terms, depth)
            if split_rows.runs_at_once(rows.n_cols, taken, problem.device):
                yield split_rows.split_as(taken, *facts)


def chunks_of_strands(problem: Problem, columns: Columns) -> Iterator[Choice]:
    """Chunks of strands on several programs, and walked along in loops."""
    power = next_power_of_2(columns.n_inner)
    for cols, inner, warps in itertools.product(
        (64, 128, 256, 512, 1024, 2048), (4, 8, 16, 32, 64), (2, 4, 8, 16)
    ):
        held = per_thread(cols * inner, warps, problem)
        if inner <= power and cols < columns.n_cols and 8 <= held <= 72:
            found = strided.split_strided_as((cols, inner, warps), columns, problem.device)
            how: Any = found and found.how
            if found and how.polls <= 16:
                yield found
    own = strided.choose_strided_loops(columns, problem.traits, problem.device)
    for cols, wide, warps, programs in itertools.product(
        (8, 16, 32, 64, 128, 256), (16, 32, 64, 128), (2, 4, 8), (264, 528, 1056, 2112)
    ):
        inner = min(wide, power)
        if not 8 <= cols * inner / (32 * warps) * problem.traits.inputs <= 64:
            continue
        groups = columns.n_outer * ceil_div(columns.n_inner, inner)
        n_chunks = max(1, min(programs // groups, 1024, ceil_div(columns.n_cols, cols)))
        chunk_cols = ceil_div(columns.n_cols, n_chunks * cols) * cols
        n_chunks = ceil_div(columns.n_cols, chunk_cols)
        how = own.how._replace(block_cols=cols, block_inner=inner)
        cut = {"n_chunks": n_chunks, "chunk_cols": chunk_cols, "two_launches": n_chunks > 1}
        yield own._replace(how=how, num_warps=warps, **cut)


def tiles_of_strands(problem: Problem, columns: Columns) -> Iterator[Choice]:
    """Whole strands in one program."""
    if columns.n_cols > 2048:
        return
    power, sixteen = next_power_of_2(columns.n_cols), columns.itemsize == 2
    for parts, inner, warps in itertools.product(
        (1, 4, 8, 16), (2, 4, 8, 16, 32, 64, 128), (1, 2, 4, 8, 16)
    ):
        cols = max(1, power // parts)
        tiles = ceil_div(columns.n_cols, cols)
        if inner > next_power_of_2(columns.n_inner):
            continue
        if 2 <= cols * tiles * inner / (32 * warps) <= 96:
            barrier = problem.device.nvidia and sixteen and power >= 512
            rest = columns.stated_vector, barrier, columns.wide_index, tiles
            yield Choice("strided", StridedTile(cols, inner, *rest), warps)


def drawn(problem: Problem, most: int) -> list[Choice]:
    """At most so many of all, always the same ones of the same problem."""
    if isinstance(problem.facts, Rows):
        parts = [row_tiles(problem, problem.facts), chunks_of_rows(problem, problem.facts)]
    else:
        parts = [tiles_of_strands(problem, problem.facts)]
        parts += [chunks_of_strands(problem, problem.facts)]
    found = list(dict.fromkeys(itertools.chain(*parts)))
    return random.Random(1).sample(found, most) if len(found) > most else found
