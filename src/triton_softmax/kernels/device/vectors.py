"""What the compiler must see before it moves whole vectors of 16 bytes.

It moves a vector where it can prove that addresses are multiples of one. It cannot see strides and
lengths, which are run-time numbers, so a kernel states what the launcher has checked, in
arithmetic: `n // VECTOR * VECTOR` is n if VECTOR divides it, and a multiple of VECTOR in any case.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def multiple_of(n, VECTOR: tl.constexpr):
    """n, which VECTOR divides, visibly so."""
    return n // VECTOR * VECTOR


@triton.jit
def round_up(begin, VECTOR: tl.constexpr):
    """The first multiple of VECTOR at or after `begin`, visibly so."""
    return (begin + (VECTOR - 1)) // VECTOR * VECTOR


@triton.jit
def edge_of_row(begin, n_cols, VECTOR: tl.constexpr):
    """Columns of a row's head (the first VECTOR lanes) and tail (the others), and which lanes live.

    A row that starts between two vectors has a head before the first whole vector and a tail after
    the last, each of fewer than VECTOR elements. What lies between them is the body.

    Args:
        begin: offset of the row's first element from an address that is a multiple of VECTOR
            elements; any shape (..., 1), or a scalar.
        n_cols: number of columns.

    Returns:
        (cols, mask), broadcast over 2·VECTOR lanes. A row shorter than its head has no tail.
    """
    lane = tl.arange(0, 2 * VECTOR)
    head = tl.minimum(round_up(begin, VECTOR) - begin, n_cols)
    tail = tl.maximum((begin + n_cols) // VECTOR * VECTOR - begin, head)
    cols = tl.where(lane < VECTOR, lane, tail + lane - VECTOR)
    return cols, tl.where(lane < VECTOR, cols < head, cols < n_cols)
