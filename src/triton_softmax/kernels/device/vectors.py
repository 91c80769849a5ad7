"""Show the compiler alignment, so that it moves whole vectors of 16 bytes.

It uses vector accesses only where it can prove that addresses are aligned. Strides and lengths are
run-time numbers, so a kernel states what the launcher has checked, as arithmetic:
`n // VECTOR * VECTOR` equals n if VECTOR divides n, and is provably a multiple of VECTOR.
"""

import triton
import triton.language as tl


@triton.jit
def multiple_of(n, VECTOR: tl.constexpr):
    """n, a multiple of VECTOR, as the compiler can prove."""
    return n // VECTOR * VECTOR


@triton.jit
def round_up(begin, VECTOR: tl.constexpr):
    """The first multiple of VECTOR at or after `begin`, as the compiler can prove."""
    return (begin + (VECTOR - 1)) // VECTOR * VECTOR


@triton.jit
def edge_of_row(begin, n_cols, VECTOR: tl.constexpr):
    """Columns and mask of a row's edge: its head in the first VECTOR lanes, its tail in the others.

    A row that starts within a vector has a head before the first whole vector and a tail after the
    last, each shorter than VECTOR elements. The body lies between them.

    Args:
        begin: offset of the row's first element from an aligned address; a scalar, or any shape
            (..., 1).
        n_cols: number of columns.

    Returns:
        (cols, mask), broadcast over 2·VECTOR lanes. A row shorter than its head has no tail.
    """
    lane = tl.arange(0, 2 * VECTOR)
    head = tl.minimum(round_up(begin, VECTOR) - begin, n_cols)
    tail = tl.maximum((begin + n_cols) // VECTOR * VECTOR - begin, head)
    cols = tl.where(lane < VECTOR, lane, tail + lane - VECTOR)
    return cols, tl.where(lane < VECTOR, cols < head, cols < n_cols)
