"""Log-probabilities of tokens, entropies of rows, and their gradient.

A program reads a row, or a chunk of it, in a loop. Each lane keeps a summary of the elements
that it has read: their maximum m, d = Σ exp((x − m)·s) and a = Σ exp((x − m)·s)·(x − m), where s is
the scale, 1 / temperature. So lanes wait for each other only at the end of the row. In the other
kernels every tile has one maximum, and programs of one tile wait for it: over 8,192 × 151,936
logits in bfloat16 that takes longer than reading them.

The scale is part of the constant that turns exp into exp2, so it costs nothing. A sum over x
instead of x − m would cancel for large logits. A soft cap changes each element before all of this.
Rows that the mask leaves out are not read.
"""

from typing import NamedTuple

import triton
import triton.language as tl

from .device.monoid import LOG2E, LOWEST
from .device.softcap import softcap_derivative, softcapped
from .device.summaries import is_column
from .device.vectors import edge_of_row, multiple_of, round_up


class Given(NamedTuple):
    """Which tensors with a number for each row a call has, in this order after the logits; whether
    it asks for entropies; and what changes each logit first."""

    token: bool
    mask: bool
    scale: bool
    entropy: bool
    before: float = 1.0  # multiplies it
    softcap: float = 0.0  # the cap after that; 0 is none


class TokenRows(NamedTuple):
    """Constants of `token_rows_kernel`."""

    vector: int  # elements per access
    edges: bool  # rows may start or end within a vector
    lanes: int  # one per thread
    steps: int  # vectors of a lane in a tile
    stages: int = 1  # pipeline stages of the loop
    parts: int = 1  # lanes that merge the chunks of a row, a power of two
    publish: bool = True  # read a chunk; False in the second of two launches
    write: bool = True  # write the results of a row; False in the first of two launches
    ranks: int = 1  # that have as many chunks of a row each, and a line of words


@triton.jit
def _modified(x, inside, GIVEN: tl.constexpr):
    """Logits after the scale that comes first and the soft cap; then −∞ outside of the row."""
    if GIVEN.before != 1.0:
        x = tl.where(inside, x * GIVEN.before, float("-inf"))
    if GIVEN.softcap > 0.0:
        x = tl.where(inside, softcapped(x, GIVEN.softcap), float("-inf"))
    return x


@triton.jit
def _moved(m_part, m, c):
    """x − m less x − m_part, and the factor of exp((x − m_part)·s); c is s·log2(e)."""
    shift = tl.maximum(m_part - tl.where(m == float("-inf"), 0.0, m), LOWEST)
    return shift, tl.exp2(shift * c)


@triton.jit
def _merged_lanes(m_parts, d, a, c, ENTROPY: tl.constexpr):
    """The summary of several."""
    # eq: entropy-merge
    m = tl.max(m_parts, axis=0)
    shift, factor = _moved(m_parts, m, c)
    total = m * 0.0
    if ENTROPY:
        total = tl.sum(factor * (a + d * shift), axis=0)
    return m, tl.sum(factor * d, axis=0), total


@triton.jit
def _each_lane(block):
    """The sums of a tile (steps, lanes, vector) by lanes."""
    return tl.sum(tl.sum(block, axis=2), axis=0)


@triton.jit
def _summary_of_chunk(
    x_ptr, begin, n_cols, first, chunk_cols, c, GIVEN: tl.constexpr, HOW: tl.constexpr
):
    """The summary of a row's columns from `first` on, at most chunk_cols, after the row's head; and
    of its edge, if they are the first."""
    V: tl.constexpr = HOW.vector
    LANES: tl.constexpr = HOW.lanes
    STEPS: tl.constexpr = HOW.steps
    ACC: tl.constexpr = c.dtype
    lane = tl.arange(0, LANES)
    m = tl.full((LANES,), float("-inf"), ACC)
    d = tl.zeros((LANES,), ACC)
    a = d
    if HOW.edges:
        cols, mask = edge_of_row(begin, tl.where(first == 0, n_cols, 0), V)
        edge = tl.load(x_ptr + begin + cols, mask=mask, other=float("-inf")).to(ACC)
        edge = _modified(edge, mask, GIVEN)
        ones = tl.where(edge == float("-inf"), 0.0, edge - edge + 1.0)  # NaN of infinity and NaN
        m_edge, d_edge, a_edge = _merged_lanes(edge, ones, ones * 0.0, c, GIVEN.entropy)
        m, d = tl.where(lane == 0, m_edge, m), tl.where(lane == 0, d_edge, d)
        a = tl.where(lane == 0, a_edge, a)
    start = round_up(begin, V) + multiple_of(first, V)
    end = (begin + n_cols) // V * V
    count = multiple_of(tl.minimum(tl.maximum(end - start, 0), chunk_cols).to(tl.int32), V)
    TILE: tl.constexpr = STEPS * LANES * V
    within = tl.arange(0, TILE)
    for at in tl.range(0, count, TILE, num_stages=HOW.stages):
        here = x_ptr + start + (at + within)
        x = tl.load(here, mask=at + within < count, other=float("-inf")).to(ACC)
        x = _modified(x, at + within < count, GIVEN)
        x = tl.reshape(x, (STEPS, LANES, V))
        m_new = tl.maximum(m, tl.max(tl.max(x, axis=2), axis=0))
        distance = x - tl.where(m_new == float("-inf"), 0.0, m_new)[None, :, None]
        # eq: entropy-terms
        e = tl.exp2(distance * c)
        shift, factor = _moved(m, m_new, c)
        if GIVEN.entropy:
            a = factor * (a + d * shift) + _each_lane(e * tl.maximum(distance, LOWEST))
        d = factor * d + _each_lane(e)
        m = m_new
    return _merged_lanes(m, d, a, c, GIVEN.entropy)


@triton.jit
def _place_of_row(strides, row, n_inner):
    """The offset of a row whose leading dimensions are two."""
    return (row // n_inner).to(tl.int64) * strides[0] + (row % n_inner).to(tl.int64) * strides[1]


@triton.jit
def _kept_and_scale(in_ptrs, strides, row, n_inner, scale, GIVEN: tl.constexpr, ACC: tl.constexpr):
    """Whether a row is kept, and its scale: `scale` times its own, if it has one; NaN unless that
    is positive."""
    MASK: tl.constexpr = 1 + GIVEN.token
    SCALE: tl.constexpr = MASK + GIVEN.mask
    kept, scale = row >= 0, tl.full((), 1.0, ACC) * scale
    if GIVEN.mask:
        kept = tl.load(in_ptrs[MASK] + _place_of_row(strides[MASK], row, n_inner)) != 0
    if GIVEN.scale:
        place = in_ptrs[SCALE] + _place_of_row(strides[SCALE], row, n_inner)
        own = tl.load(place).to(ACC)
        scale *= tl.where(own > 0.0, own, float("nan"))
    return kept, scale


@triton.jit(debug=True, do_not_specialize=["n_inner", "n_cols", "n_chunks", "chunk_cols"])
def token_rows_kernel(
    in_ptrs, out_ptrs, words_ptr, scale, strides, n_inner, n_cols, n_chunks, chunk_cols,
    GIVEN: tl.constexpr, HOW: tl.constexpr,
):  # fmt: skip
    """Compute the results of a row, and what its gradient needs.

    Args:
        in_ptrs: the logits, then what is `GIVEN` of tokens, a mask and scales.
        out_ptrs: log-probabilities; entropies; and m, log d and the entropy again, n_rows each.
            Those that are not asked for hold no values.
        words_ptr: workspace for m, d and a of chunks; unused with one launch.
        scale: what multiplies the logits last.
        strides, n_inner: of each input those of the rows' two dimensions; the last size.
        n_cols: number of classes.
        n_chunks, chunk_cols: chunks of a row, a program each, and their columns, a multiple of
            vector. On several ranks the second launch takes the chunks of one, and the numbers from
            its line of words to the next.
        GIVEN, HOW: a `Given`, and a `TokenRows`.
    """
    ACC: tl.constexpr = out_ptrs[0].dtype.element_ty
    program = tl.program_id(0)
    row = program
    if HOW.publish:
        row = program // n_chunks
    kept, scale = _kept_and_scale(in_ptrs, strides, row, n_inner, scale, GIVEN, ACC)
    c = scale * LOG2E
    begin = _place_of_row(strides[0], row, n_inner)
    words = words_ptr.to(tl.pointer_type(ACC))
    if HOW.publish:
        there = tl.where(kept, n_cols, 0)
        first = (program % n_chunks).to(tl.int64) * chunk_cols
        m, d, a = _summary_of_chunk(in_ptrs[0], begin, there, first, chunk_cols, c, GIVEN, HOW)
        if not HOW.write:
            words += 3 * program.to(tl.int64)
            tl.store(words, m)
            tl.store(words + 1, d)
            tl.store(words + 2, a)
    else:
        part = tl.arange(0, HOW.parts)
        if HOW.ranks > 1:
            live = part < HOW.ranks * n_chunks[0]
            line = (part // n_chunks[0]).to(tl.int64) * n_chunks[1]
            words += line + 3 * (row.to(tl.int64) * n_chunks[0] + part % n_chunks[0])
        else:
            words += 3 * (row.to(tl.int64) * n_chunks + part)
            live = part < n_chunks
        m_parts = tl.load(words, mask=live, other=float("-inf"))
        d_parts = tl.load(words + 1, mask=live, other=0.0)
        a_parts = tl.load(words + 2, mask=live, other=0.0)
        m, d, a = _merged_lanes(m_parts, d_parts, a_parts, c, GIVEN.entropy)
    if HOW.write:
        # eq: log-probability, entropy-from-summary
        log_d = tl.log(d)
        if GIVEN.token:
            token = tl.load(in_ptrs[1] + _place_of_row(strides[1], row, n_inner)).to(tl.int64)
            right = kept & is_column(token, 0, n_cols)
            tl.device_assert(right | (kept == 0), "an index is out of range")
            picked = tl.load(in_ptrs[0] + begin + token, mask=right, other=0.0).to(ACC)
            picked = _modified(picked, right, GIVEN)
            tl.store(out_ptrs[0] + row, tl.where(kept, (picked - m) * scale - log_d, 0.0))
        entropy = tl.where(kept, log_d - scale * (a / d), 0.0)
        tl.store(out_ptrs[1] + row, entropy)
        n_rows = tl.num_programs(0).to(tl.int64)
        tl.store(out_ptrs[2] + row, tl.where(kept, m, 0.0))
        tl.store(out_ptrs[2] + n_rows + row, tl.where(kept, log_d, 0.0))
        tl.store(out_ptrs[2] + 2 * n_rows + row, entropy)


@triton.jit(do_not_specialize=["n_inner", "n_cols", "n_chunks"])
def token_gradient_kernel(
    in_ptrs, out_ptrs, scale, strides, n_inner, n_cols, n_chunks, GIVEN: tl.constexpr,
    VECTOR: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute the gradient at BLOCK logits of a row per program.

    Args:
        in_ptrs: as for `token_rows_kernel`; then the gradients at the log-probabilities and, if
            they are asked for, the entropies; and what that kernel saved.
        out_ptrs: the contiguous gradient at the logits, possibly the logits themselves; and for
            each program its part of the gradient at the scale, if that is asked for.
        scale, strides, n_inner, n_cols, GIVEN: as for `token_rows_kernel`.
        n_chunks: chunks of BLOCK columns per row.
        VECTOR: divides the offsets of all rows.
    """
    ACC: tl.constexpr = in_ptrs[-1].dtype.element_ty
    G: tl.constexpr = 1 + GIVEN.token + GIVEN.mask + GIVEN.scale
    row, chunk = tl.program_id(0) // n_chunks, tl.program_id(0) % n_chunks
    n_rows = tl.num_programs(0) // n_chunks
    kept, scale = _kept_and_scale(in_ptrs, strides, row, n_inner, scale, GIVEN, ACC)
    saved = in_ptrs[-1] + row.to(tl.int64)
    m, log_d = tl.load(saved), tl.load(saved + n_rows)
    g_ptr = in_ptrs[G] + _place_of_row(strides[G], row, n_inner)
    g = tl.load(g_ptr, mask=kept, other=0.0).to(ACC)
    first, lane = chunk.to(tl.int64) * BLOCK, tl.arange(0, BLOCK)
    left = tl.minimum(n_cols - first, BLOCK).to(tl.int32)
    begin = multiple_of(_place_of_row(strides[0], row, n_inner), VECTOR) + first
    inside = lane < multiple_of(left, VECTOR)
    u = tl.load(in_ptrs[0] + begin + lane, mask=inside & kept, other=0.0).to(ACC)
    x = _modified(u, inside & kept, GIVEN)
    # eq: entropy-gradient, log-probability-gradient
    log_y = (x - m) * scale - log_d
    factor = g
    if GIVEN.entropy:
        g_ptr = in_ptrs[G + 1] + _place_of_row(strides[G + 1], row, n_inner)
        g_entropy = tl.load(g_ptr, mask=kept, other=0.0).to(ACC)
        far = tl.maximum(log_y, LOWEST)  # finite where y is 0
        factor = g + g_entropy * (far + tl.load(saved + 2 * n_rows))
    dz = -tl.exp2(log_y * LOG2E) * factor
    if GIVEN.token:
        token_ptr = in_ptrs[1] + _place_of_row(strides[1], row, n_inner)
        token = tl.load(token_ptr, mask=kept, other=-1).to(tl.int64)
        dz += tl.where(lane == token - first, g, 0.0)
    dz = tl.where(kept, dz, 0.0)
    dx = dz * scale
    if GIVEN.softcap > 0.0:
        slope = softcap_derivative(u * GIVEN.before, GIVEN.softcap)
        dx = tl.where(dz == 0.0, 0.0, dx * slope)
    if GIVEN.before != 1.0:
        dx *= GIVEN.before
    out = out_ptrs[0] + multiple_of(row.to(tl.int64) * n_cols, VECTOR) + first + lane
    tl.store(out, dx.to(out.dtype.element_ty), mask=inside)
    if len(out_ptrs) == 2:
        # The sum of dz over a row is 0, and x - m has the digits that x has lost.
        of_scale = tl.where(inside & (dz != 0.0), dz * (x - m), 0.0)
        tl.store(out_ptrs[1] + tl.program_id(0), tl.sum(of_scale, axis=0))
