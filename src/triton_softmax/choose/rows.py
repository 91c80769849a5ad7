"""Rows of adjacent elements: which row geometry takes them."""

from __future__ import annotations

from . import model, row_tiles, split_rows
from .constants import Choice
from .device import Device
from .row_tiles import Rows, choose_row_tile, fits_one_program
from .split_rows import choose_split_rows
from .strided import choose_loops
from .traits import Traits
from .vectors import ceil_div, vector_of_lines, vector_width

MANY_ROWS = 2**20
"""Rows enough for any device: their number, where a choice must not depend on it."""


def rows_of(
    n_rows: int,
    n_cols: int,
    itemsize: int,
    addresses: tuple[int, ...],
    strides: tuple[int, ...],
    held: int | None = None,
) -> Rows:
    """Rows as a choice sees them; the arguments as in `choose_rows`."""
    vector = vector_width(itemsize, addresses, strides)
    edges = bool(n_cols % vector) or any(stride % vector for stride in strides)
    # What divides everything is seldom a whole vector, but then rows have no edges.
    divisor = vector_of_lines(itemsize, addresses, (n_cols, *strides))
    return Rows(n_rows, n_cols, held or itemsize, vector, edges, divisor)


def choose_rows(
    n_rows: int,
    n_cols: int,
    itemsize: int,
    *,
    traits: Traits,
    addresses: tuple[int, ...],
    strides: tuple[int, ...],
    device: Device,
    held: int | None = None,
    implementation: str | None = None,
) -> Choice:
    """The choice for an operation along rows of adjacent elements.

    Args:
        n_rows: number of rows.
        n_cols: number of columns.
        itemsize: bytes of the narrowest element of the tensors involved; 8 only if all are float64.
        traits: of the operation.
        addresses: of the tensors' first elements.
        strides: from row to row of each tensor, in elements.
        device: what the kernel will run on.
        held: bytes of the widest element that is read, which is what a program keeps in registers;
            by default `itemsize`.
        implementation: "packed_rows", "aligned_rows" or "split_rows" to insist, None to choose.

    Raises:
        ValueError: the implementation insisted on cannot take this shape.
    """
    rows = rows_of(n_rows, n_cols, itemsize, addresses, strides, held)
    if implementation is None:
        if device.tuned or traits.any_order:
            return choose_adjacent(rows, traits, device)
        return model.choose_adjacent(rows, traits, device)
    _, _, held, vector, edges, divisor = rows
    refuse(implementation, n_cols, held, vector)
    if implementation == "split_rows":
        return choose_split_rows(n_rows, n_cols, held, vector, edges, traits, device)
    aligned = implementation == "aligned_rows"
    vector = vector if aligned else divisor
    return choose_row_tile(n_rows, n_cols, held, vector, aligned, traits, device)


def choose_adjacent(rows: Rows, traits: Traits, device: Device) -> Choice:
    """One program's if they fit its registers, else chunks on several programs, else loops."""
    n_rows, n_cols, held, vector, edges, divisor = rows
    if traits.any_order and n_cols > row_tiles.LONGEST_OF_FEW:
        # Chunks, whose sums are added in floating point: the same for every number of rows.
        if held == 8 or n_cols > split_rows.MAX_COLS:
            return choose_loops(1, n_cols, held, traits, device)
        return choose_split_rows(MANY_ROWS, n_cols, held, vector, edges, traits, device)
    # A row that has a multiprocessor for itself is a matter of instructions, and edges take many.
    alone = n_rows < device.multiprocessors and 1024 < n_cols <= row_tiles.LONGEST_OF_FEW
    alone = alone and held <= 4 and not traits.any_order
    if alone or vector == 1 or n_cols <= row_tiles.longest_without_edges(held, divisor, traits):
        vector, edges = divisor, False
    if fits_one_program(n_rows, n_cols, held, edges, traits, device):
        return choose_row_tile(n_rows, n_cols, held, vector, edges, traits, device)
    # Summaries of float64 do not fit a word, and programs are counted in 31 bits.
    too_many_programs = n_rows * ceil_div(n_cols, 1024) >= 2**31
    if held == 8 or n_cols > split_rows.MAX_COLS or too_many_programs:
        return choose_loops(n_rows, n_cols, held, traits, device)
    return choose_split_rows(n_rows, n_cols, held, vector, edges, traits, device)


def refuse(implementation: str, n_cols: int, itemsize: int, vector: int) -> None:
    """Raise ValueError if the implementation insisted on cannot take these rows."""
    if implementation == "split_rows":
        if itemsize == 8:
            raise ValueError(
                "split_rows packs its summaries as two float32 numbers and does not take float64"
            )
        if n_cols > split_rows.MAX_COLS:
            raise ValueError(
                f"split_rows splits rows of at most {split_rows.MAX_COLS:,} columns, not {n_cols:,}"
            )
        return
    if n_cols > row_tiles.MAX_COLS:
        raise ValueError(
            f"{implementation} holds rows of at most {row_tiles.MAX_COLS:,} columns, not {n_cols:,}"
        )
    if implementation == "aligned_rows" and vector == 1:
        raise ValueError(
            "aligned_rows needs tensors that start on 16 bytes and row strides that agree modulo a "
            "vector"
        )
