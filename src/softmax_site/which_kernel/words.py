"""The planner's conditions, as a reader would ask them.

The ones that decide much have a question of their own in `WORDS`. They are known by the function
they stand in and their text, with every number written `#`, so that tuning a number changes nothing
here; a test finds each of them in the library. All others are read out, name by name (`read_out`).
"""

from __future__ import annotations

import ast
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


MEASURED_HERE = Words(
    "Were the constants measured on such a GPU, or must the bits be the same in every batch?",
    "So these constants decide.",
    "So a model decides: it gives every kernel that is possible a time.",
)

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
    ("choose_rows", "device.tuned or traits.any_order"): MEASURED_HERE,
    ("choose_strided", "device.tuned or traits.any_order"): MEASURED_HERE,
    (
        "choose_adjacent",
        "alone or vector == # or n_cols <= row_tiles.longest_without_edges(held, divisor, traits)",
    ): Words(
        "Is a row ({n_cols} elements) so short, or so much by itself, that it moves by what "
        "divides all rows?",
        "An access moves {divisor} of them at most, and no row has edges.",
        "An access moves a whole vector, and a row that it does not divide has edges.",
    ),
    ("choose_adjacent", "fits_one_program(n_rows, n_cols, held, edges, traits, device)"): Words(
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
    ("choose_adjacent", "held == # or n_cols > split_rows.MAX_COLS or too_many_programs"): Words(
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
        "n_chunks <= (at_once if device.nvidia else min(#, at_once))",
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

NAMES = {
    "CHUNK_REGISTERS": "registers of a thread",
    "MAX_CHUNKS": "the most chunks of a row",
    "SHORT": "the longest short row",
    "BATCH_INVARIANT": "the same bits in every batch",
    "all((lies_on_vectors(each) for each in inputs if each.dim() == x.dim()))": "all rows of the "
    "inputs start on vectors",
    "any((address % VECTOR_BYTES for address in addresses))": "a tensor starts between two vectors",
    "aligned": "aligned rows were asked for",
    "block": "columns of a chunk",
    "block_cols": "columns of a tile",
    "body": "elements between the edges",
    "both": "rows have edges and two tensors are read",
    "choice.kernel": "the kernel",
    "chosen.depth": "chunks are loaded ahead",
    "columns.n_cols": "elements of a strand",
    "columns.vector": "elements of an access",
    "device.multiprocessors": "multiprocessors",
    "device.nvidia": "it is a GPU of NVIDIA’s",
    "divisor": "elements that divide every row",
    "each": "tiles that a kernel may have",
    "enough": "each of 128 threads has an access",
    "each.dim()": "dimensions of the tensor",
    "edges": "rows have edges",
    "enough_for_all": "rows of a program if all are to be busy",
    "few": "few programs would run",
    "forward": "one tensor is read",
    "full": "16-bit elements fill the registers",
    "groups": "groups of rows or strands",
    "half_lines": "half a cache line side by side will do",
    "held": "bytes of the widest element",
    "how.vector": "elements of an access",
    "i in which": "the tensor has the dimension of the softmax",
    "implementation": "what is asked for",
    "itemsize": "bytes of an element",
    "longest": "the longest that was measured to pay",
    "longest_split": "the longest strand that is split",
    "longest_tile": "the longest that lies in one tile",
    "n_chunks": "chunks",
    "narrow": "eight strands side by side will do",
    "nearly_full": "two tensors, in whole vectors, nearly fill a tile",
    "n_cols": "columns",
    "n_rows": "rows",
    "op.any_order": "no order may change a sum",
    "power": "the next power of two",
    "several": "a program has several accesses for each thread",
    "sixteen": "elements have 16 bits",
    "tiles": "tiles",
    "traits.any_order": "no order may change a sum",
    "traits.exp_in_finish": "the result takes one more exponential",
    "traits.inputs": "tensors read",
    "traits.keeps_terms": "the terms are kept for the result",
    "traits.numbers": "numbers of the row go in or come out",
    "traits.reduces": "only numbers of the row are written",
    "triton_sees_it": "16 divides every stride, as Triton can see",
    "two_launches": "there are two launches",
    "vector": "elements of an access",
    "whole": "an access moves 16 bytes",
    "wide": "two tensors of 32-bit elements are read",
    "x.dim()": "those of the input",
    "chunks_of_row(candidate)": "chunks of a row, cut this way",
    "chunks_of_row(middle)": "chunks of a row, cut in between",
    "per_multiprocessor(candidate)": "chunks of a multiprocessor, cut this way",
    "per_multiprocessor(coarse)": "chunks of a multiprocessor, cut coarsely",
    "device.resident_programs(CHUNK_REGISTERS, num_warps)": "programs that run at once",
    "row_tiles.LONGEST_OF_FEW": "the longest row of few",
    "row_tiles.MAX_COLS": "the longest row of one program",
    "split_rows.MAX_COLS": "the longest row that is split",
    "columns.itemsize": "bytes of an element",
    "programs": "programs",
}
"""What the names in conditions mean."""

SIGNS = {
    ast.Eq: "=",
    ast.NotEq: "≠",
    ast.Is: "=",
    ast.IsNot: "≠",
    ast.Lt: "<",
    ast.LtE: "≤",
    ast.Gt: ">",
    ast.GtE: "≥",
    ast.Add: "+",
    ast.Sub: "−",
    ast.Mult: "×",
    ast.FloorDiv: "/",
    ast.Mod: "modulo",
}


def read_out(text: str) -> tuple[str, str]:
    """A condition in words, and with `{name}` in the place of every name that is a number; the
    second is empty where nothing is compared.

    >>> read_out("2 * n_rows < device.multiprocessors and edges")
    ('2 × rows < multiprocessors, and rows have edges', '2 × {n_rows} < {device.multiprocessors}')
    >>> read_out("not traits.reduces")
    ('not so: only numbers of the row are written', '')
    """
    numbers: list[str] = []

    def name(node: ast.expr) -> str:
        found = ast.unparse(node)
        return NAMES.get(found) or re.sub(r"[\W_]+", " ", found).strip()

    def value(node: ast.expr, named: bool) -> str:
        """A term, with names in words, or as places for their values."""
        if isinstance(node, ast.BinOp):
            if isinstance(node.op, ast.Pow):
                power = eval(compile(ast.Expression(node), "", "eval"))
                return f"{power:,}"
            sides = value(node.left, named), value(node.right, named)
            return f" {SIGNS[type(node.op)]} ".join(sides)
        if isinstance(node, ast.Constant):
            if isinstance(node.value, int):
                return f"{node.value:,}"
            return "none" if node.value is None else str(node.value).replace("_", " ")
        return name(node) if named else f"{{{ast.unparse(node)}}}"

    def says(node: ast.expr) -> str:
        if isinstance(node, ast.BoolOp):
            word = ", and " if isinstance(node.op, ast.And) else ", or "
            return word.join(map(says, node.values))
        if isinstance(node, ast.UnaryOp):
            return f"not so: {says(node.operand)}"
        if isinstance(node, ast.Compare) and type(node.ops[0]) in SIGNS:
            sign = SIGNS[type(node.ops[0])]
            sides = node.left, node.comparators[0]
            of_numbers = not any(isinstance(each, ast.Call) for each in ast.walk(node))
            if of_numbers and not isinstance(node.ops[0], ast.Is | ast.IsNot):
                numbers.append(f" {sign} ".join(value(side, False) for side in sides))
            return f" {sign} ".join(value(side, True) for side in sides)
        return name(node)

    words = says(ast.parse(text, mode="eval").body)
    return words, ", ".join(numbers)
