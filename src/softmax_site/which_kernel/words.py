"""The planner's conditions, as a reader would ask them.

A condition is known by the function it stands in and its text, with every number written `#`, so
that tuning a number changes nothing here. A test finds each of them in the library. Conditions that
have no words are shown as code.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Words(NamedTuple):
    """A condition in words. `{name}` is the value of a name in it."""

    question: str
    yes: str = ""
    no: str = ""


def key(function: str, text: str) -> tuple[str, str]:
    """What a condition is known by.

    >>> key("fits", "2 * n_rows < limit_16")
    ('fits', '# * n_rows < limit_16')
    """
    return function, re.sub(r"(?<![\w.])\d+(?![\w.])", "#", text)


WORDS = {
    (
        "_plan_launches",
        "all((col_strides[i] == # for i in which)) and len(groups) <= # and "
        "(implementation != 'strided')",
    ): Words(
        "Do the elements of a row lie side by side, and the rows at equal distances?",
        "It is a matrix of rows.",
        "The elements of a softmax lie apart: it is a matrix of strands.",
    ),
    ("_plan_launches", "pair is None or implementation not in (None, 'strided')"): Words(
        "Do more than two other dimensions remain when those in step are joined?",
        "No kernel takes this layout, so the inputs are copied first.",
        "One dimension lies outside the strands, one inside.",
    ),
    ("vector_width", "aligned and in_step"): Words(
        "Do all tensors start on 16 bytes, and their rows keep in step?",
        "An access moves 16 bytes.",
        "Elements move one by one.",
    ),
    (
        "choose_rows",
        "vector == # or n_cols <= row_tiles.longest_without_edges(held, divisor, traits)",
    ): Words(
        "Is a row ({n_cols} elements) so short that it moves by what divides all rows?",
        "An access moves {divisor} of them at most, and no row has edges.",
        "An access moves a whole vector, and a row that it does not divide has edges.",
    ),
    ("choose_rows", "fits_one_program(n_rows, n_cols, held, edges, traits, device)"): Words(
        "Should a row of {n_cols} elements be one program’s, held in its registers?",
        "It is read once and written once, by one program.",
        "It is too long for that, or there are too few rows to keep the GPU busy.",
    ),
    ("fits_one_program", "# * n_rows < device.multiprocessors"): Words(
        "Are there fewer rows ({n_rows}) than half the {device.multiprocessors} multiprocessors?",
        "One program per row would leave most of the GPU idle, so the limit is lower.",
        "There are rows enough for every multiprocessor.",
    ),
    ("fits_one_program", "n_cols <= longest"): Words(
        "Is a row ({n_cols} elements) at most {longest} long, the measured limit?"
    ),
    ("choose_rows", "held == # or n_cols > split_rows.MAX_COLS or too_many_programs"): Words(
        "Is it float64, too long to be split, or in too many pieces to count?",
        "It is read twice.",
        "Several programs share a row.",
    ),
    ("choose_row_tile", "edges"): Words(
        "Do rows start or end between two vectors?",
        "aligned_rows: a body of whole vectors, and two edges.",
        "packed_rows: whole vectors only.",
    ),
    ("choose_row_tile", "body > #"): Words(
        "Are {body} elements enough to be a program’s only row?",
        "One row per program, in several tiles side by side.",
        "A program may take several rows.",
    ),
    ("choose_row_tile", "n_cols <= SHORT and (not edges)"): Words(
        "Is it one of the shortest rows, at most {SHORT} long, and without edges?",
        "A program takes many of them.",
    ),
    (
        "choose_row_tile",
        "body > longest_tile and enough_for_all > # and (itemsize == #) and (vector == #)",
    ): Words(
        "Would some 16-bit rows of {body} elements fill their tile badly?",
        "The tile is cut in quarters, of which three may do.",
    ),
    ("_row_in_tiles", "tiles * block_cols >= body"): Words(
        "Do {tiles} tiles of {block_cols} columns hold {body} elements?"
    ),
    ("_rows_in_tiles", "tiles * block_cols >= body"): Words(
        "Do {tiles} tiles of {block_cols} columns hold {body} elements?"
    ),
    ("candidates", "vector == #"): Words(
        "Do elements move one by one?", "Chunks are cut for that."
    ),
    ("candidates", "few"): Words(
        "Are the rows so few that only short chunks keep every multiprocessor busy?",
        "The chunks are cut for few rows.",
        "The chunks are cut for many rows.",
    ),
    ("choose_split_rows", "n_cols <= longest and runs_at_once(n_cols, candidate, device)"): Words(
        "Cut this way, is the row short enough, and do all its chunks run at once?",
        "The programs may wait for one another.",
        "The next way to cut is tried.",
    ),
    (
        "runs_at_once",
        "n_chunks <= (candidate.resident_programs(device) if device.nvidia else #)",
    ): Words("Has the GPU room for all {n_chunks} chunks of a row at the same time?"),
    ("choose_split_rows", "two_launches"): Words(
        "Is there no way to cut the row so that its chunks run at once?",
        "Two launches: the second reads again, and nobody waits.",
        "One launch, one read.",
    ),
    (
        "choose_columns",
        "(device.nvidia and itemsize <= # and (columns.vector > too_narrow)) and "
        "(block_cols > longest_tile and columns.n_cols <= longest_split) and "
        "(split := choose_split_strided(columns, traits, device))",
    ): Words(
        "Is the strand longer than a tile likes ({longest_tile}), at most {longest_split}, and "
        "wide enough to move more than {too_narrow} elements at a time?",
        "Several programs share the strands.",
    ),
    ("choose_columns", "block_cols <= (# if itemsize <= # else #)"): Words(
        "Does a tile take a strand whole, rounded up to {block_cols} elements?",
        "It is read once.",
        "It is walked twice, tile by tile.",
    ),
}
