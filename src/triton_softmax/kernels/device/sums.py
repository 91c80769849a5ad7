"""Sums that may be taken in any order.

A floating-point sum depends on its order, and so on how many threads share a row, on where it
starts in memory, and on which rows it is computed with. A sum of integers does not. So an operation
that is to give a row the same bits everywhere (`any_order`) has its terms rounded to multiples of
one small unit, a power of two that follows from the largest term, and adds these up as integers of
64 bits. That is not less exact: every term is off by less than 2⁻⁴⁷ of the largest one.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .summaries import across, added, summed

FRACTION = tl.constexpr(48)
"""Bits of a term below the largest one's leading bit. The sum of 2¹³ terms, each of at most one
bit more, fits an integer."""

TO_INTEGER = tl.constexpr(2.0**48)
"""What makes an integer of a term's next FRACTION bits, which float64 has too."""


@triton.jit
def _to_bits(x):
    """The exponent of a float32 or float64 in its place, as an integer: its largest power of
    two."""
    if x.dtype == tl.float64:
        return x.to(tl.int64, bitcast=True) & 0x7FF0000000000000
    else:
        return x.to(tl.int32, bitcast=True) & 0x7F800000


@triton.jit
def unit_of(largest):
    """(per_unit, unit): powers of two whose product is 1. A term times per_unit, without its
    fraction, is how many units it has.

    Args:
        largest: no term is larger, and none is 2¹³ times larger if all terms are added up.
    """
    WIDE: tl.constexpr = largest.dtype == tl.float64
    DIGITS: tl.constexpr = 52 if WIDE else 23
    BIAS: tl.constexpr = 1023 if WIDE else 127
    ONE: tl.constexpr = 1 << DIGITS  # what an exponent counts in
    # Smaller powers than 2⁻⁷⁸ would need a per_unit that is no number; below that, in float32, a
    # unit is 2⁻¹²⁶, the smallest normal number.
    LEAST: tl.constexpr = (FRACTION.value + 1) * ONE
    exponent = tl.maximum(_to_bits(largest), LEAST)
    # In this order, so that nothing passes 31 bits.
    per_unit = (2 * BIAS - 1) * ONE - (exponent - LEAST)
    unit = exponent - FRACTION * ONE
    return per_unit.to(largest.dtype, bitcast=True), unit.to(largest.dtype, bitcast=True)


@triton.jit
def _largest(parts, K: tl.constexpr, AXIS: tl.constexpr):
    """The largest magnitude of the terms of sum K in all parts."""
    largest = tl.max(tl.abs(parts[0][0][K]), axis=AXIS)
    for p in tl.static_range(len(parts)):
        for t in tl.static_range(len(parts[p])):
            largest = tl.maximum(largest, tl.max(tl.abs(parts[p][t][K]), axis=AXIS))
    return largest


@triton.jit
def _sum_of_integers(parts, largest, K: tl.constexpr, AXIS: tl.constexpr):
    """Sum K of all parts in units of `unit_of(largest)`, which no order changes."""
    per_unit, unit = unit_of(largest)
    whole = tl.zeros_like(largest).to(tl.int64)
    rest = whole
    for p in tl.static_range(len(parts)):
        for t in tl.static_range(len(parts[p])):
            scaled = parts[p][t][K] * across(per_unit, parts[p][t][K], AXIS)
            units = scaled.to(tl.int64)
            whole += tl.sum(units, axis=AXIS)
            if largest.dtype == tl.float64:  # has more digits than that, and gets as many again
                units = ((scaled - units.to(tl.float64)) * TO_INTEGER).to(tl.int64)
                rest += tl.sum(units, axis=AXIS)
    total = whole.to(largest.dtype)
    if largest.dtype == tl.float64:
        total += rest.to(tl.float64) * (1.0 / TO_INTEGER)
    return total * unit


@triton.jit
def _in_any_order(parts, total, K: tl.constexpr, AXIS: tl.constexpr, OP: tl.constexpr):
    """Sum K of all parts, which is `total` in one order, so that no order changes it."""
    if OP.shifted and K == 0:  # exponentials of what is at most 0
        largest = tl.full(total.shape, 1.0, total.dtype)
    else:
        largest = _largest(parts, K, AXIS)
    # What is infinite, or no number, is so in every order.
    return tl.where(total - total == 0.0, _sum_of_integers(parts, largest, K, AXIS), total)


@triton.jit
def _sums_of_tiles(tiles, AXIS: tl.constexpr):
    """The sums of blocks of one shape: block to block first, and then along AXIS."""
    totals = tiles[0]
    for t in tl.static_range(1, len(tiles)):
        totals = added(totals, tiles[t])
    return summed(totals, AXIS)


@triton.jit
def sums_of(parts, AXIS: tl.constexpr, OP: tl.constexpr):
    """The sums of the terms of a row.

    Args:
        parts: a tuple of tuples of tiles, those of a tuple of one shape; a tile is a tuple with a
            block of terms for each sum. They are added up tuple by tuple.
        AXIS: the dimension of a block that runs along the row.
        OP: the operation whose terms they are. If it is `any_order`, there are at most 2¹³ terms,
            and the sums do not depend on how they lie in the blocks.

    Returns:
        A tuple with a block for each sum, without AXIS.
    """
    totals = _sums_of_tiles(parts[0], AXIS)
    for p in tl.static_range(1, len(parts)):
        totals = added(totals, _sums_of_tiles(parts[p], AXIS))
    if OP.any_order:
        exact = ()
        for k in tl.static_range(len(totals)):
            exact = exact + (_in_any_order(parts, totals[k], k, AXIS, OP),)
        totals = exact
    return totals
