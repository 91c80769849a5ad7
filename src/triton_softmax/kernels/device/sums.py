"""Sum the terms of a row; for batch invariance, independent of order.

A floating-point sum depends on its order, and so on how many threads share a row, where the row
starts in memory, and which rows are computed with it. An integer sum does not. So an operation that
must give a row the same bits everywhere (`any_order`) rounds its terms to multiples of a small
unit, a power of two that follows from the largest term, and adds them up as 64-bit integers. This
is no less exact: the error of each term is below 2⁻⁴⁷ of the largest.
"""

import triton
import triton.language as tl

from .summaries import across, added, summed

FRACTION = tl.constexpr(48)
"""Bits kept below the leading bit of the largest term. The sum of 2¹³ terms, each at most one bit
longer, fits 64 bits."""

TO_INTEGER = tl.constexpr(2.0**48)
"""Scales the next FRACTION bits of a float64 term to an integer."""


@triton.jit
def _to_bits(x):
    """The exponent bits of a float32 or float64, in place: the bits of its leading power of two."""
    if x.dtype == tl.float64:
        return x.to(tl.int64, bitcast=True) & 0x7FF0000000000000
    else:
        return x.to(tl.int32, bitcast=True) & 0x7F800000


@triton.jit
def unit_of(largest):
    """(per_unit, unit): powers of two whose product is 1. A term times per_unit, truncated, counts
    its units.

    Args:
        largest: the largest magnitude of any term, of which there are at most 2¹³.
    """
    WIDE: tl.constexpr = largest.dtype == tl.float64
    DIGITS: tl.constexpr = 52 if WIDE else 23
    BIAS: tl.constexpr = 1023 if WIDE else 127
    ONE: tl.constexpr = 1 << DIGITS  # the lowest exponent bit
    # Below 2⁻⁷⁸ in float32, per_unit would overflow, so the unit stays at 2⁻¹²⁶, the smallest
    # normal number.
    LEAST: tl.constexpr = (FRACTION.value + 1) * ONE
    exponent = tl.maximum(_to_bits(largest), LEAST)
    # This order keeps every intermediate within 31 bits.
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
    """Sum K of all parts, as an order-independent count of `unit_of(largest)`."""
    per_unit, unit = unit_of(largest)
    whole = tl.zeros_like(largest).to(tl.int64)
    rest = whole
    for p in tl.static_range(len(parts)):
        for t in tl.static_range(len(parts[p])):
            scaled = parts[p][t][K] * across(per_unit, parts[p][t][K], AXIS)
            units = scaled.to(tl.int64)
            whole += tl.sum(units, axis=AXIS)
            if largest.dtype == tl.float64:  # has more digits: sum the next ones too
                units = ((scaled - units.to(tl.float64)) * TO_INTEGER).to(tl.int64)
                rest += tl.sum(units, axis=AXIS)
    total = whole.to(largest.dtype)
    if largest.dtype == tl.float64:
        total += rest.to(tl.float64) * (1.0 / TO_INTEGER)
    return total * unit


@triton.jit
def _in_any_order(parts, total, K: tl.constexpr, AXIS: tl.constexpr, OP: tl.constexpr):
    """Sum K of all parts independent of order; `total` is the floating-point sum."""
    if OP.shifted and K == 0:  # exponentials of numbers ≤ 0
        largest = tl.full(total.shape, 1.0, total.dtype)
    else:
        largest = _largest(parts, K, AXIS)
    # Infinity and NaN come out the same in every order.
    return tl.where(total - total == 0.0, _sum_of_integers(parts, largest, K, AXIS), total)


@triton.jit
def _sums_of_tiles(tiles, AXIS: tl.constexpr):
    """The sums of blocks of one shape: add blocks first, then along AXIS."""
    totals = tiles[0]
    for t in tl.static_range(1, len(tiles)):
        totals = added(totals, tiles[t])
    return summed(totals, AXIS)


@triton.jit
def sums_of(parts, AXIS: tl.constexpr, OP: tl.constexpr):
    """The sums of the terms of a row.

    Args:
        parts: a tuple of tuples of tiles, equal in shape within a tuple; a tile is a tuple of one
            block of terms per sum.
        AXIS: the dimension of a block along the row.
        OP: the operation. If it is `any_order`, there are at most 2¹³ terms, and the sums do not
            depend on how terms are arranged in blocks.

    Returns:
        A tuple of one block per sum, without AXIS.
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
