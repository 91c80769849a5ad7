"""Fill in. A row is cut into chunks. The first kernel publishes (m, d) of each chunk; the second
merges those of its row, and writes its chunk."""

import triton
import triton.language as tl


@triton.jit
def publish_kernel(x_ptr, m_ptr, d_ptr, n_cols, n_chunks, BLOCK: tl.constexpr):
    """Program (row, chunk) summarises columns chunk * BLOCK and on."""
    row, chunk = tl.program_id(0), tl.program_id(1)
    cols = chunk * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=-float("inf"))
    m = tl.max(x, axis=0)
    tl.store(m_ptr + row * n_chunks + chunk, m)
    tl.store(d_ptr + row * n_chunks + chunk, tl.sum(tl.exp(x - m), axis=0))


@triton.jit
def write_kernel(
    x_ptr, m_ptr, d_ptr, y_ptr, n_cols, n_chunks, CHUNKS: tl.constexpr, BLOCK: tl.constexpr
):
    """Program (row, chunk) again. CHUNKS is a power of two, at least n_chunks."""
    row, chunk = tl.program_id(0), tl.program_id(1)
    chunks = tl.arange(0, CHUNKS)
    m_of = tl.load(m_ptr + row * n_chunks + chunks, mask=chunks < n_chunks, other=-float("inf"))
    d_of = tl.load(d_ptr + row * n_chunks + chunks, mask=chunks < n_chunks, other=0.0)
    m = ...
    d = ...
    cols = chunk * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=-float("inf"))
    tl.store(y_ptr + row * n_cols + cols, tl.exp(x - m) / d, mask=cols < n_cols)
