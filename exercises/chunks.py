"""A row on several programs

kind: fill in
level: 2
minutes: 8
teaches: merge many summaries at once

A row is cut into chunks. The first kernel publishes (m, d) of each chunk; the second
[merges](../math/monoid.md) those of its row, and writes its chunk. A chunk may be −∞ throughout.

hint: `m_of` and `d_of` have a lane per chunk; masked lanes hold empty parts.

hint: Multiply `d_of` by `tl.exp(m_of - m)` before the sum.
"""

import triton
import triton.language as tl


@triton.jit
def publish_kernel(x_ptr, m_ptr, d_ptr, n_cols, n_chunks, BLOCK: tl.constexpr):
    """Program (row, chunk) summarises columns chunk * BLOCK and on."""
    row, chunk = tl.program_id(0), tl.program_id(1)
    cols = chunk * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=-float("inf"))
    m = tl.max(x, axis=0)
    shift = tl.where(m > -float("inf"), m, 0.0)
    tl.store(m_ptr + row * n_chunks + chunk, m)
    tl.store(d_ptr + row * n_chunks + chunk, tl.sum(tl.exp(x - shift), axis=0))


@triton.jit
def write_kernel(
    x_ptr, m_ptr, d_ptr, y_ptr, n_cols, n_chunks, CHUNKS: tl.constexpr, BLOCK: tl.constexpr
):
    """Program (row, chunk) again. CHUNKS is a power of two, at least n_chunks."""
    row, chunk = tl.program_id(0), tl.program_id(1)
    chunks = tl.arange(0, CHUNKS)
    m_of = tl.load(m_ptr + row * n_chunks + chunks, mask=chunks < n_chunks, other=-float("inf"))
    d_of = tl.load(d_ptr + row * n_chunks + chunks, mask=chunks < n_chunks, other=0.0)
    # start
    m = ...
    d = ...
    # solved
    m = tl.max(m_of, axis=0)
    d = tl.sum(d_of * tl.exp(m_of - m), axis=0)
    # end
    cols = chunk * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=-float("inf"))
    tl.store(y_ptr + row * n_cols + cols, tl.exp(x - m) / d, mask=cols < n_cols)


# ---- check ----
from softmax_playground.checker.judge import needs
from softmax_playground.checker.rows import hostile
from softmax_playground.small_triton.right import softmax


def check(names, lab):
    publish, write = needs(names, "publish_kernel"), needs(names, "write_kernel")
    for n, count, chunks in ((13, 4, 4), (11, 3, 4), (12, 3, 4), (3, 1, 2)):
        rows, why = hostile(n)
        height = len(rows)
        x, y = lab.tensor(rows, "x"), lab.empty((height, n), "y")
        m, d = lab.empty((height, count), "m"), lab.empty((height, count), "d")
        lab.launch(publish, (height, count), x, m, d, n, count, BLOCK=4)
        lab.launch(write, (height, count), x, m, d, y, n, count, CHUNKS=chunks, BLOCK=4)
        lab.compare(y, softmax(rows), why)
    return "Right: this merge, with programs that wait for one another, is split rows."


M, D = "tl.max(m_of, axis=0)", "tl.sum(d_of * tl.exp(m_of - m), axis=0)"
WRONG = [
    (
        D,
        "tl.sum(d_of, axis=0)",
        "The sums are relative to different maxima: multiply by exp(m_of − m).",
    ),
    (D, "tl.sum(d_of * tl.exp(m - m_of), axis=0)", "The factor is upside down: exp(m_of − m) ≤ 1."),
    (D, "tl.sum(tl.exp(m_of - m), axis=0)", "d_of is missing: each chunk has more than one term."),
    (D, "tl.max(d_of * tl.exp(m_of - m), axis=0)", "Sums are added, maxima are not."),
    (
        D,
        "tl.sum(d_of, axis=0) * tl.exp(tl.sum(m_of, axis=0) - m)",
        "Each chunk has a factor of its own: multiply before the sum.",
    ),
    (M, "tl.sum(m_of, axis=0)", "The row's maximum is the largest of those of its chunks."),
    (
        M,
        "tl.load(m_ptr + row * n_chunks + chunk)",
        "That is this chunk's maximum; the row's may be in another chunk.",
    ),
]
