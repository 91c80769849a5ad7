"""Hold a row in several adjacent tiles.

Tiles have power-of-two sides, but row lengths seldom are powers of two: a row of 5,120 columns
fills only five eighths of a tile of 8,192. Five tiles of 1,024 fit it exactly. Loops over tiles are
unrolled, so that each tile stays in registers.

In all functions `raw` is a tuple of tiles, each a tuple of one raw block per input; `places` has a
block for each, 0 inside the row and −1 outside; AXIS is the dimension of a block along the row.
"""

import triton
import triton.language as tl

from .registers import in_registers, optimization_barrier
from .summaries import larger, max_of, placed


@triton.jit
def barrier_of_tiles(raw, BARRIER: tl.constexpr):
    """Apply `optimization_barrier` to every tile."""
    hidden = ()
    for t in tl.static_range(len(raw)):
        hidden = hidden + (optimization_barrier(raw[t], BARRIER),)
    return hidden


@triton.jit
def max_of_tiles(raw, INNER: tl.constexpr, AXIS: tl.constexpr, OP: tl.constexpr):
    """The largest element of each row of the first input, a block of length 1 along AXIS."""
    largest = in_registers(raw[0], INNER)[0]
    for t in tl.static_range(1, len(raw)):
        largest = larger(largest, in_registers(raw[t], INNER)[0], OP)
    return tl.expand_dims(max_of(largest, AXIS, OP), AXIS)


@triton.jit
def terms_of_tiles(raw, places, m, INNER: tl.constexpr, OP: tl.constexpr):
    """The operation's terms: per tile, a tuple of one block per sum."""
    terms = ()
    for t in tl.static_range(len(raw)):
        values = placed(in_registers(raw[t], INNER), places[t], OP)
        terms = terms + (OP.terms(values, m, False),)
    return terms
