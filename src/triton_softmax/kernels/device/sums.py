"""Sum the terms of a row; for batch invariance, independent of order.

A floating-point sum depends on its order, and so on how many threads share a row, where the row
starts in memory, and which rows are computed with it. An integer sum does not. So an operation that
must give a row the same bits everywhere (`any_order`) rounds its terms to multiples of a small
unit, a power of two that follows from the largest term, and adds them up as integers. The error of
each term is below 2⁻³⁵ of the largest, of which a float32 keeps 2⁻²⁴.

Adjacent terms that are together wherever a row starts are first added in floating point, in pairs
and pairs of pairs. So of eight 16-bit elements in one access, only one number becomes an integer.
"""

import triton
import triton.language as tl

from .summaries import COMPILED, across, added, larger_or_nan, max_or_nan, placed, summed

FRACTION = tl.constexpr(48)
"""Bits kept below the leading bit of the largest term. The sum of 2¹³ terms, each at most one bit
longer, fits 64 bits."""

TO_INTEGER = tl.constexpr(2.0**48)
"""Scales the next FRACTION bits of a float64 term to an integer."""

TOGETHER = tl.constexpr(1024 if COMPILED.value else 0)
"""The most terms that are reduced to several numbers at once, which saves waiting: more would not
fit the registers."""


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
    its units. There are at most 2¹³ terms, of a magnitude of at most `largest`."""
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
def _extremes(a1, b1, a2, b2):
    """Combine function that reduces to the largest, or NaN if any is, and the smallest."""
    return larger_or_nan(a1, a2), tl.minimum(b1, b2)


@triton.jit
def _most_and_least(parts, K: tl.constexpr, AXIS: tl.constexpr):
    """The largest term of sum K in all parts, or NaN if any is, and the smallest."""
    most = float("-inf")
    least = float("inf")
    for p in tl.static_range(len(parts)):
        high = parts[p][0][K]
        low = high
        for t in tl.static_range(1, len(parts[p])):
            high = larger_or_nan(high, parts[p][t][K])
            low = tl.minimum(low, parts[p][t][K])
        if high.shape[AXIS] <= TOGETHER.value:
            high, low = tl.reduce((high, low), AXIS, _extremes)
        else:
            high = max_or_nan(high, AXIS)
            low = tl.min(low, axis=AXIS)
        most = larger_or_nan(high, most)
        least = tl.minimum(low, least)
    return most, least


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
def sum_of_any_terms(parts, K: tl.constexpr, AXIS: tl.constexpr):
    """Sum K of all parts, of terms of any sign, independent of order."""
    most, least = _most_and_least(parts, K, AXIS)
    largest = larger_or_nan(most, -least)
    exact = _sum_of_integers(parts, largest, K, AXIS)
    # Infinity and NaN come out the same in every order, and no order overflows before the sum does.
    return tl.where(largest < float("inf"), exact, most + least)


@triton.jit
def add_both(a1, b1, a2, b2):
    """Combine function that reduces two sums together."""
    return a1 + a2, b1 + b2


@triton.jit
def _add_all(a1, b1, c1, a2, b2, c2):
    """Combine function that reduces three sums together."""
    return a1 + a2, b1 + b2, c1 + c2


@triton.jit
def _sum_of_exponentials(parts, AXIS: tl.constexpr):
    """The first sum of all parts, of at most 2¹³ exponentials of float32 numbers ≤ 0, in units of
    2⁻³⁵, which does not depend on order.

    Adding a large power of two to a term leaves its leading bits as an integer in the low bits of
    the result; subtracting the power again leaves the rest of the term, exactly, which becomes an
    integer in the same way. So two 32-bit integers hold a term, without a conversion, which would
    wait for the unit that computes exponentials.
    """
    POWER: tl.constexpr = 64.0  # whose last digit is 2⁻¹⁷
    POWER_BITS: tl.constexpr = 0x42800000
    SMALL: tl.constexpr = 1.5 * 2.0**-12  # whose last digit is 2⁻³⁵
    SMALL_BITS: tl.constexpr = 0x39C00000
    all_high = 0
    all_low = 0
    for p in tl.static_range(len(parts)):
        high = tl.zeros_like(parts[p][0][0]).to(tl.int32)
        low = high
        for t in tl.static_range(len(parts[p])):
            moved = parts[p][t][0] + POWER
            rest = parts[p][t][0] + ((POWER + SMALL) - moved)
            high += moved.to(tl.int32, bitcast=True)
            low += rest.to(tl.int32, bitcast=True)
            # 1,024 times the bits of a power of two are 0 in 32 bits: an interpreter has more.
            if not COMPILED.value or parts[p][0][0].shape[AXIS] % 1024 != 0:
                high -= POWER_BITS
                low -= SMALL_BITS
        if COMPILED.value:
            if high.shape[AXIS] > TOGETHER.value:  # first within threads
                high = _halved(_halved(high, AXIS), AXIS)
                low = _halved(_halved(low, AXIS), AXIS)
            high, low = tl.reduce((high, low), AXIS, add_both)
        else:
            high = tl.sum(high.to(tl.int64), axis=AXIS)
            low = tl.sum(low.to(tl.int64), axis=AXIS)
        all_high += high
        all_low += low
    return tl.cast(all_high, tl.float32) * 2.0**-17 + tl.cast(all_low, tl.float32) * 2.0**-35


@triton.jit
def _in_any_order(parts, m, K: tl.constexpr, AXIS: tl.constexpr, OP: tl.constexpr):
    """Sum K of all parts independent of order."""
    if OP.shifted and K == 0 and parts[0][0][0].dtype == tl.float32:
        exact = _sum_of_exponentials(parts, AXIS)
        # The term of the largest element is a number only if all terms are.
        INPUTS: tl.constexpr = OP.inputs
        largest = ()
        for _ in tl.static_range(INPUTS):
            largest = largest + (m,)
        term = OP.terms(placed(largest, tl.zeros_like(m).to(tl.int32), OP), m, False)[0]
        if len(m.shape) > 1:
            term = tl.sum(term, axis=AXIS)  # of a single element
        return tl.where(term - term == 0.0, exact, term)
    else:
        return sum_of_any_terms(parts, K, AXIS)


@triton.jit
def _halved(block, AXIS: tl.constexpr):
    """Add adjacent terms along an axis, in pairs."""
    if len(block.shape) == 1:
        return tl.sum(tl.reshape(block, (block.shape[0] // 2, 2)), axis=1)
    elif AXIS == 1:
        pairs = tl.reshape(block, (block.shape[0], block.shape[1] // 2, 2))
        return tl.sum(pairs, axis=2)
    else:
        return tl.sum(tl.reshape(block, (block.shape[0] // 2, 2, block.shape[1])), axis=1)


@triton.jit
def _grouped(parts, AXIS: tl.constexpr, GROUP: tl.constexpr):
    """The parts with sums of GROUP adjacent terms in place of terms, in pairs: in one order,
    whatever threads hold them."""
    groups = ()
    for p in tl.static_range(len(parts)):
        tiles = ()
        for t in tl.static_range(len(parts[p])):
            terms = ()
            for k in tl.static_range(len(parts[p][t])):
                block = parts[p][t][k]
                if GROUP >= 2:
                    block = _halved(block, AXIS)
                if GROUP >= 4:
                    block = _halved(block, AXIS)
                if GROUP >= 8:
                    block = _halved(block, AXIS)
                terms = terms + (block,)
            tiles = tiles + (terms,)
        groups = groups + (tiles,)
    return groups


@triton.jit
def sum_of_partials(part, absent, K: tl.constexpr, OP: tl.constexpr):
    """(sum K of a row, how many are absent) from chunks' sums relative to the row's maximum."""
    if OP.shifted and K == 0:  # at most 2¹² chunks of 2¹³ exponentials
        units = (part * 2.0**36).to(tl.int64)
        units, total, missing = tl.reduce((units, part, absent), 0, _add_all)
        return tl.where(total - total == 0.0, units.to(part.dtype) * 2.0**-36, total), missing
    else:
        return sum_of_any_terms((((part,),),), 0, 0), tl.sum(absent, axis=0)


@triton.jit
def _sums_of_tiles(tiles, AXIS: tl.constexpr):
    """The sums of blocks of one shape: add blocks first, then along AXIS."""
    totals = tiles[0]
    for t in tl.static_range(1, len(tiles)):
        totals = added(totals, tiles[t])
    if COMPILED.value and len(totals) == 3:  # one by one, all terms would stay in registers
        return tl.reduce(totals, AXIS, _add_all)
    else:
        return summed(totals, AXIS)


@triton.jit
def sums_of(parts, m, AXIS: tl.constexpr, OP: tl.constexpr):
    """The sums of the terms of a row.

    Args:
        parts: a tuple of tuples of tiles, equal in shape within a tuple; a tile is a tuple of one
            block of terms per sum.
        m: what the terms are relative to; with `any_order` NaN if an element is.
        AXIS: the dimension of a block along the row.
        OP: the operation. If it is `any_order`, there are at most 2¹³ terms, and the sums do not
            depend on how terms are arranged in blocks.

    Returns:
        A tuple of one block per sum, without AXIS.
    """
    if OP.any_order:
        SUMS: tl.constexpr = len(parts[0][0])
        groups = _grouped(parts, AXIS, OP.any_order)
        exact = ()
        for k in tl.static_range(SUMS):
            exact = exact + (_in_any_order(groups, m, k, AXIS, OP),)
        return exact
    else:
        totals = _sums_of_tiles(parts[0], AXIS)
        for p in tl.static_range(1, len(parts)):
            totals = added(totals, _sums_of_tiles(parts[p], AXIS))
        return totals
