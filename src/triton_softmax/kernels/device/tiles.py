"""A row that lies in several tiles one after the other.

The sides of a tile are powers of two, and a row's length seldom is one: a row of 5,120 columns
fills five eighths of a tile of 8,192, and what would have moved the rest idles. Five tiles of 1,024
hold it without a gap. They are unrolled, so each stays in registers.

In all functions `raw` is a tuple of tiles, each a tuple with a block of each input, as loaded;
`places` has the columns of each tile, −1 outside the row; AXIS is the dimension of a block that
runs along the row.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .registers import in_registers, optimization_barrier
from .summaries import placed


@triton.jit
def barrier_of_tiles(raw, BARRIER: tl.constexpr):
    """`optimization_barrier` for every tile."""
    hidden = ()
    for t in tl.static_range(len(raw)):
        hidden = hidden + (optimization_barrier(raw[t], BARRIER),)
    return hidden


@triton.jit
def max_of_tiles(raw, INNER: tl.constexpr, AXIS: tl.constexpr):
    """The largest element of each row of the first input, a block of length 1 along AXIS."""
    largest = in_registers(raw[0], INNER)[0]
    for t in tl.static_range(1, len(raw)):
        largest = tl.maximum(largest, in_registers(raw[t], INNER)[0])
    return tl.expand_dims(tl.max(largest, axis=AXIS), AXIS)


@triton.jit
def terms_of_tiles(raw, places, m, INNER: tl.constexpr, OP: tl.constexpr):
    """The terms of the operation, a tuple for each tile with a block for each sum."""
    terms = ()
    for t in tl.static_range(len(raw)):
        values = placed(in_registers(raw[t], INNER), places[t], OP)
        terms = terms + (OP.terms(values, m, False),)
    return terms
