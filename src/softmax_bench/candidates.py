"""Choices near the library's own, for `softmax_bench.tune` to time.

For a cell they are what the library would choose if one named constant of `triton_softmax.choose`
were another one, what its model for other GPUs chooses, and what a change of warps, rows, tiles or
registers gives.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from softmax_bench.case import ITEM_SIZE, Case
from softmax_bench.random_shapes import draw, pitch
from triton_softmax.choose import (
    Choice,
    Device,
    Traits,
    columns,
    model,
    row_tiles,
    split_rows,
    strided,
)
from triton_softmax.choose.constants import (
    RowTile,
    SplitRows,
    SplitStrided,
    StridedLoops,
    StridedTile,
)
from triton_softmax.choose.row_tiles import Rows
from triton_softmax.choose.rows import choose_adjacent, rows_of
from triton_softmax.choose.strided import Columns, choose_columns
from triton_softmax.choose.vectors import ceil_div, next_power_of_2

CONSTANTS = {
    "packed_rows": RowTile,
    "aligned_rows": RowTile,
    "split_rows": SplitRows,
    "strided": StridedTile,
    "split_strided": SplitStrided,
    "strided_loops": StridedLoops,
}
"""The class of a kernel's constants."""

TUNED = (row_tiles, split_rows, strided)
"""Modules whose named constants are tried with other values."""

LIMITS = ("MAX_CHUNKS", "MAX_COLS", "LONGEST_BLOCK", "FOR_INTEGERS", "ANY_LENGTH")
"""Names in them that follow from what kernels can do, and are no matter of speed."""

SMALL_BYTES = 24 * 2**20
"""Tensors that are copied within 10 µs, about."""

MOST_REGISTERS = 160
"""Registers per thread that elements may take in a choice that is tried."""


class Problem(NamedTuple):
    """All that a choice depends on."""

    facts: Rows | Columns
    traits: Traits
    device: Device

    def library(self) -> Choice:
        """What the library chooses."""
        if isinstance(self.facts, Rows):
            return choose_adjacent(self.facts, self.traits, self.device)
        return choose_columns(self.facts, self.traits, self.device)

    def modelled(self) -> Choice:
        """What it would choose if it had no constants for this device."""
        return min(self.possible(), key=lambda each: each[0])[1]

    def possible(self) -> list[tuple[float, Choice]]:
        """(time, choice) of all between which the model chooses."""
        if isinstance(self.facts, Rows):
            return model.adjacent(self.facts, self.traits, self.device)
        return model.apart(self.facts, self.traits, self.device)


def problem_of(case: Case, device: Device) -> Problem:
    """The problem that a case puts, found by asking the planner with tensors that have no data."""
    import torch

    from triton_softmax import plan

    dtype, seen = getattr(torch, case.dtype), []
    plain = torch.empty(case.shape, dtype=dtype, device="meta")
    x = plain
    if case.layout == "padded":
        step = pitch(case.n_cols)
        x = torch.empty_strided(case.shape, (step, 1), dtype=dtype, device="meta")
    inputs = (plain, x) if case.direction == "backward" else (x,)
    name = f"{case.op}_backward" if case.direction == "backward" else case.op
    dim = case.dim % len(case.shape)
    shape = case.shape if case.op != "logsumexp" else case.shape[:dim] + case.shape[dim + 1 :]
    outs = (torch.empty(shape, dtype=dtype, device="meta"),)

    def of_rows(n_rows, n_cols, itemsize, *, addresses, strides, held, traits, **_):
        seen.append(
            Problem(rows_of(n_rows, n_cols, itemsize, addresses, strides, held), traits, device)
        )
        return seen[0].library()

    def of_columns(columns, traits, _):
        seen.append(Problem(columns, traits, device))
        return choose_columns(columns, traits, device)

    with replaced(plan, "choose_rows", of_rows), replaced(columns, "choose_columns", of_columns):
        plan._plan_launches(name, inputs, outs, dim, None)
    return seen[0]


@contextlib.contextmanager
def replaced(module: Any, name: str, value: Any) -> Iterator[None]:
    """For a while, a module has another value of this name."""
    original = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, original)


# --- what is tried


def others(value: Any) -> Iterator[tuple[str, Any]]:
    """(where, the whole with one number in it doubled or halved).

    >>> list(others((3, {"a": 4})))  # doctest: +NORMALIZE_WHITESPACE
    [('[0]=6', (6, {'a': 4})), ('[0]=1', (1, {'a': 4})),
     ("[1]['a']=8", (3, {'a': 8})), ("[1]['a']=2", (3, {'a': 2}))]
    """
    if isinstance(value, int):
        yield from ((f"={other}", other) for other in (2 * value, value // 2) if other > 0)
    elif isinstance(value, tuple):
        for i, each in enumerate(value):
            for where, other in others(each):
                yield f"[{i}]{where}", (*value[:i], other, *value[i + 1 :])
    elif isinstance(value, dict):
        for key, each in value.items():
            for where, other in others(each):
                yield f"[{key!r}]{where}", {**value, key: other}


def constants() -> Iterator[tuple[str, Any, str, Any]]:
    """(label, module, name, another value) of every named constant."""
    for module in TUNED:
        for name, value in vars(module).items():
            if name.isupper() and name not in LIMITS:
                short = module.__name__.rpartition(".")[2]
                for where, other in others(value):
                    yield f"{short}.{name}{where}", module, name, other


def by_constants(problem: Problem) -> dict[str, Choice]:
    """What the library would choose if a named constant were another one, where that differs."""
    chosen, found = problem.library(), {}
    for label, module, name, other in constants():
        with replaced(module, name, other), contextlib.suppress(Exception):
            if (choice := problem.library()) != chosen:
                found[label] = choice
    return found


def halved_and_doubled(label: str, choice: Choice, *names: str) -> Iterator[tuple[str, Choice]]:
    """The choice with fields of it, or of its constants, doubled together or halved."""
    for sign, of in (("×2", lambda n: 2 * n), ("÷2", lambda n: n // 2)):
        inner = {
            name: of(getattr(choice.how, name)) for name in names if name in choice.how._fields
        }
        outer = {name: of(getattr(choice, name)) for name in names if name not in inner}
        if all(value > 0 for value in (inner | outer).values()):
            yield f"{label} {sign}", choice._replace(how=choice.how._replace(**inner), **outer)


def tilings(length: int, how: RowTile | StridedTile) -> Iterator[tuple[str, Any]]:
    """The same rows or strands in one tile, or in tiles of a quarter or an eighth."""
    power = next_power_of_2(length)
    for parts in (1, 4, 8):
        cols = power // parts
        if cols >= max(2, how.vector if isinstance(how, RowTile) else 1):
            tiles = ceil_div(length, cols)
            yield f"tiles of 1/{parts}", how._replace(block_cols=cols, tiles=tiles)


def near_row_tile(choice: Choice, rows: Rows, problem: Problem) -> Iterator[tuple[str, Choice]]:
    """Other tiles of whole rows, in registers or split."""
    how: Any = choice.how
    yield from halved_and_doubled("warps", choice, "num_warps")
    yield from halved_and_doubled("rows", choice, "block_rows")
    yield from halved_and_doubled("rows and warps", choice, "block_rows", "num_warps")
    body = rows.n_cols
    if choice.kernel == "aligned_rows":
        body = max(1, body // how.vector * how.vector)
    for label, tile in tilings(body, how):
        yield label, choice._replace(how=tile)
    if rows.itemsize == 2 and problem.device.nvidia:
        yield "barrier turned", choice._replace(how=how._replace(barrier=not how.barrier))
    if rows.edges and rows.vector > 1 and rows.n_cols >= 2 * rows.vector:
        other = choice.kernel == "packed_rows"
        vector = rows.vector if other else rows.divisor
        tile = row_tiles.choose_row_tile(
            rows.n_rows, rows.n_cols, rows.itemsize, vector, other, problem.traits, problem.device
        )
        yield "edges turned", tile
    if rows.n_cols >= 4096 and rows.itemsize < 8:
        edges = rows.edges and rows.vector > 1
        facts = rows.n_rows, rows.n_cols, rows.itemsize, rows.vector, edges
        chosen = split_rows.choose_split_rows(*facts, problem.traits, problem.device)
        yield "split", chosen


def near_split_rows(choice: Choice, rows: Rows, problem: Problem) -> Iterator[tuple[str, Choice]]:
    """Other chunks on other programs."""
    how: Any = choice.how
    registers = choice.max_registers or 128
    taken = split_rows.Candidate(
        how.block, registers, choice.num_warps, how.keep_terms, how.depth, how.backoff
    )
    warps = choice.num_warps
    changes: dict[str, dict[str, Any]] = {
        "chunk and warps ×2": {"block": 2 * how.block, "num_warps": 2 * warps},
        "chunk and warps ÷2": {"block": how.block // 2, "num_warps": warps // 2},
        "chunk ÷2": {"block": how.block // 2},
        "warps ×2, registers ×5/8": {"num_warps": 2 * warps, "registers": registers * 5 // 64 * 8},
        "registers +16": {"registers": registers + 16},
        "registers −16": {"registers": registers - 16},
        "pause 0" if how.backoff else "pause 300": {"backoff": 0 if how.backoff else 300},
        "depth 0": {"depth": 0},
        "depth 1": {"depth": 1, "registers": min(168, registers + 40), "keep_terms": False},
        "depth 2": {"depth": 2, "block": how.block // 2, "keep_terms": False, "registers": 128},
    }
    for label, change in changes.items():
        other = taken._replace(**change)
        if other != taken and other.num_warps and other.block >= 1024:
            facts = rows.n_cols, rows.itemsize, rows.vector, how.edges
            if split_rows.runs_at_once(rows.n_cols, other, problem.device):
                yield label, split_rows.split_as(other, *facts, problem.traits, problem.device)
    if rows.n_cols <= row_tiles.MAX_COLS // 2:
        vector = rows.vector if how.edges else rows.divisor
        facts = rows.n_rows, rows.n_cols, rows.itemsize, vector, how.edges
        yield "one program", row_tiles.choose_row_tile(*facts, problem.traits, problem.device)


def near_strided(
    choice: Choice, columns: Columns, problem: Problem
) -> Iterator[tuple[str, Choice]]:
    """Other tiles of strands."""
    how: Any = choice.how
    yield from halved_and_doubled("warps", choice, "num_warps")
    if choice.kernel == "strided":
        yield from halved_and_doubled("strands", choice, "block_inner")
        yield from halved_and_doubled("strands and warps", choice, "block_inner", "num_warps")
        for label, tile in tilings(columns.n_cols, how):
            yield label, choice._replace(how=tile)
        if columns.itemsize == 2 and problem.device.nvidia:
            turned = how._replace(barrier=not how.barrier)
            yield "barrier turned", choice._replace(how=turned)
    elif choice.kernel == "split_strided":
        cols, inner, warps = how.block_cols, how.block_inner, choice.num_warps
        for label, tile in {
            "chunk ×2": (2 * cols, inner, 2 * warps),
            "chunk ÷2": (cols // 2, inner, max(1, warps // 2)),
            "strands ×2": (cols, 2 * inner, 2 * warps),
            "strands ÷2": (cols, inner // 2, max(1, warps // 2)),
            "warps ×2": (cols, inner, 2 * warps),
            "warps ÷2": (cols, inner, max(1, warps // 2)),
        }.items():
            if tile[1] and (found := strided.split_strided_as(tile, columns, problem.device)):
                yield label, found
        yield "loops", strided.choose_strided_loops(columns, *problem[1:])


def near(problem: Problem) -> dict[str, Choice]:
    """Choices that differ from the library's in one respect, by what it is."""
    choice = problem.library()
    around = near_strided
    if isinstance(choice.how, RowTile):
        around = near_row_tile
    elif isinstance(choice.how, SplitRows):
        around = near_split_rows
    found = around(choice, problem.facts, problem)  # type: ignore[arg-type]
    return {label: each for label, each in found if is_possible(each, problem)}


def is_possible(choice: Choice, problem: Problem) -> bool:
    """Whether a choice is worth compiling: its elements fit the registers and each thread has
    some."""
    how: Any = choice.how
    itemsize = problem.facts.itemsize
    if not 1 <= choice.num_warps <= 32:
        return False
    lanes = how.block if isinstance(how, SplitRows) else how.block_cols
    lanes *= (
        getattr(how, "block_rows", 1) * getattr(how, "block_inner", 1) * getattr(how, "tiles", 1)
    )
    words = max(4, itemsize) // 4 / (2 if how._asdict().get("barrier") else 1)
    held = lanes / (32 * choice.num_warps) * words * problem.traits.inputs
    return held <= MOST_REGISTERS and lanes * 4 >= 32 * choice.num_warps


def tried(problem: Problem, also: int = 0) -> list[Choice]:
    """All choices to be timed, the library's first, then the model's; and `also` more between which
    the model chooses: the next in its order, and some from further down."""
    found = sorted(problem.possible(), key=lambda each: each[0])
    good = [choice for time, choice in found if time <= 2 * found[0][0]]
    first = [problem.library(), good[0], *by_constants(problem).values(), *near(problem).values()]
    next_ones = good[1 : 1 + also // 2]
    step = max(1, len(good) // max(1, also - also // 2))
    return list(dict.fromkeys([*first, *next_ones, *good[step::step][: also - also // 2]]))


def class_of(case: Case, kernel: str) -> tuple[str, str, str, str]:
    """(geometry, size of an element, direction, size of the tensor)."""
    geometry = "strided" if "strided" in kernel else kernel
    size = "small" if case.bytes < SMALL_BYTES else "large"
    return geometry, f"{8 * ITEM_SIZE[case.dtype]} bits", case.direction, size


def select(
    seed: int,
    cells: int,
    geometries: list[str] | None = None,
    dtypes: list[str] | None = None,
    small: bool = False,
    device: Device | None = None,
) -> list[Case]:
    """So many cells of a seed, in turn of every class; small tensors twice as often."""
    device = device or Device(132, nvidia=True)
    classes: dict[tuple, list[Case]] = {}
    for case in draw(seed):
        kind = class_of(case, problem_of(case, device).library().kernel)
        if small and kind[3] != "small" or dtypes and case.dtype not in dtypes:
            continue
        if not geometries or kind[0] in geometries:
            classes.setdefault(kind, []).append(case)
    found: list[Case] = []
    while any(classes.values()) and len(found) < cells:
        for kind in sorted(classes):
            for _ in range(2 if kind[3] == "small" else 1):
                if classes[kind] and len(found) < cells:
                    found.append(classes[kind].pop(0))
    return found
