"""The suite `random`: cells that a seed draws and nobody chooses.

Lengths are spread evenly on a logarithmic scale, one in each of as many slices as there are cells,
and so are the sizes of tensors. All else is drawn: where the rows lie, by what their length
divides, type, operation and direction. Constants are tuned on some seeds; what is published is
measured on another.
"""

from __future__ import annotations

import math
import random

from softmax_bench.case import Case
from softmax_bench.roster import CHOOSER, COPY, EVERYWHERE

SEED = 30834
"""Of the cells that are published."""

CELLS = 320
"""Cells of a draw."""

LENGTHS = (2, 2**22)
"""Shortest and longest row."""

ELEMENTS = (2**10, 2**28)
"""Elements of a tensor, at least and at most."""

DIVISORS = (128, 8, 4, 2, 1)
"""By what a length may divide; it is then an odd multiple of it, but for 128."""

LAYOUTS = {"last": 0.6, "other": 0.25, "padded": 0.15}
"""How often rows lie side by side, across the other dimensions, or with gaps between them."""

DTYPES = {"bfloat16": 0.4, "float32": 0.4, "float16": 0.2}

OPS = {"softmax": 0.7, "log_softmax": 0.15, "logsumexp": 0.15}
"""logsumexp forward only; the others in both directions alike."""

COMPILED_EVERY = 2
"""torch.compile takes seconds a cell, so it is asked for each second one only."""

SIDES = (7, 14, 28, 32, 56, 64, 100, 112, 128, 224, 256, 512)
"""Sides of an image, in pixels."""


def _of(generator: random.Random, weights: dict[str, float]) -> str:
    return generator.choices(list(weights), list(weights.values()))[0]


def _between(low: float, high: float, share: float) -> float:
    """The number that lies at `share` between two others on a logarithmic scale."""
    return low * (high / low) ** share


def with_divisor(length: float, divisor: int) -> int:
    """The length nearest to a number that `divisor` divides and, below 128, no more does.

    >>> [with_divisor(1000.0, divisor) for divisor in (128, 8, 4, 2, 1)]
    [1024, 1000, 1004, 1002, 1001]
    >>> with_divisor(5.0, 128), with_divisor(2.0, 1)
    (4, 3)
    """
    while divisor > max(2.0, length):
        divisor //= 2
    if divisor == 128:
        return max(1, round(length / 128)) * 128
    odd = 2 * max(1 if divisor == 1 else 0, math.floor(length / (2 * divisor))) + 1
    return min(odd * divisor, LENGTHS[1] - divisor)


def _shape(generator: random.Random, layout: str, n_rows: int, n_cols: int):
    """(shape, dim) with about so many rows."""
    if layout == "padded":
        return (n_rows, n_cols), -1
    if layout == "last":
        if n_rows >= 64 and generator.random() < 0.25:  # attention: batch, heads, queries, keys
            heads = generator.choice((8, 12, 16, 32))
            queries = max(1, n_rows // heads // generator.choice((1, 2, 4)))
            return (max(1, n_rows // heads // queries), heads, queries, n_cols), -1
        return (n_rows, n_cols), -1
    kind = generator.choice(("columns", "signal", "image", "image", "scores"))
    if kind == "columns":
        return (n_cols, n_rows), 0
    if kind == "signal":
        inner = max(1, round(_between(1, n_rows, generator.random())))
        return (max(1, n_rows // inner), n_cols, inner), 1
    if kind == "scores":  # over the queries, or the heads
        inner = min(n_rows, round(_between(16, 4096, generator.random())))
        return (max(1, n_rows // inner // 8), min(8, n_rows // inner), n_cols, inner), 2
    side = min(generator.choice(SIDES), max(1, math.isqrt(n_rows)))
    return (max(1, n_rows // side**2), n_cols, side, side), 1


def draw(seed: int = SEED, cells: int = CELLS) -> list[Case]:
    """The cells of a seed, no two alike.

    >>> first, again, other = draw(1), draw(1), draw(2)
    >>> len(first), first == again, first == other
    (320, True, False)
    """
    generator = random.Random(seed)
    slices = [list(range(cells)) for _ in range(2)]
    for each in slices:
        generator.shuffle(each)
    found: dict[str, Case] = {}
    for number in range(cells):
        while True:
            layout, op = _of(generator, LAYOUTS), _of(generator, OPS)
            dtype, divisor = _of(generator, DTYPES), generator.choice(DIVISORS)
            direction = "forward"
            if op != "logsumexp":
                direction = generator.choice(("forward", "backward"))
            shares = [(each[number] + generator.random()) / cells for each in slices]
            n_cols = with_divisor(_between(*LENGTHS, shares[0]), divisor)
            # Columns want some neighbours: a single one is a row.
            least = max(ELEMENTS[0], n_cols * (16 if layout == "other" else 1))
            most = ELEMENTS[1]
            if layout == "padded":
                most = most // (pitch(n_cols)) * n_cols
            n_rows = max(1, int(_between(least, max(least, most), shares[1]) / n_cols))
            shape, dim = _shape(generator, layout, n_rows, n_cols)
            case = Case(
                "random",
                shape,
                dtype,
                direction,
                op,
                dim,
                layout="padded" if layout == "padded" else "contiguous",
                providers=_providers(op, dim, number),
                seed=seed,
            )
            if case.id not in found and case.elements >= ELEMENTS[0]:
                break
        found[case.id] = case
    return list(found.values())


def _providers(op: str, dim: int, number: int) -> tuple[str, ...]:
    """Those who offer this at all; who refuses a length says so itself."""
    missing = set()
    if op != "softmax" or dim != -1:
        missing |= {"liger", "quack"}
    if op == "logsumexp":
        missing.add("flag_gems")
    if number % COMPILED_EVERY:
        missing.add("torch.compile")
    return (COPY, CHOOSER, *(name for name in EVERYWHERE if name not in missing))


def pitch(n_cols: int) -> int:
    """Elements from one padded row to the next: up to the next multiple of 64, of 8 for short rows.

    >>> pitch(50257), pitch(4096), pitch(30)
    (50304, 4160, 32)
    """
    step = 64 if n_cols >= 256 else 8
    return (n_cols // step + 1) * step


def layout_of(row: dict) -> str:
    """The class of a row of the data: last dimension, another one, or rows with gaps."""
    if row["layout"] == "padded":
        return "rows with gaps"
    return "last dimension" if row["dim"] in (-1, len(row["shape"]) - 1) else "other dimension"
