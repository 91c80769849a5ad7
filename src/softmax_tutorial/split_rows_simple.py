"""Split rows in some forty lines, to be read before `split_rows` and called by nobody else.

One program for each chunk of a row. It reads its chunk, publishes the chunk's summary as one 64-bit
word, polls for the words of the other chunks, merges them, and writes its chunk from registers. A
word that does not come is computed here, so no program depends on another one running: the kernel
is right on a GPU and in the interpreter, which runs its programs one after another.

What `split_rows` has besides: any operation, vectors of 16 bytes, several words polled at once, and
something to do while a program waits.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from triton_softmax.kernels.device.exchange import pack_word, unpack_word
from triton_softmax.kernels.device.monoid import exp_shifted, merge


# --8<-- [start:summary]
@triton.jit
def summary_of_chunk(x_ptr, chunk, n_cols, BLOCK: tl.constexpr):
    """(x, m, d): the elements of a chunk, their maximum, and their sum of exponentials."""
    cols = chunk * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + cols, mask=cols < n_cols, other=float("-inf")).to(tl.float32)
    m = tl.max(x, axis=0)
    d = tl.sum(exp_shifted(x, m), axis=0)
    return x, m, d


# --8<-- [end:summary]


# --8<-- [start:kernel]
@triton.jit
def split_rows_simple_kernel(
    x_ptr, y_ptr, words_ptr, n_cols, n_chunks, max_polls, BLOCK: tl.constexpr
):
    """Softmax of contiguous rows, a program for each chunk.

    Args:
        x_ptr: input, rows of n_cols elements, one after another.
        y_ptr: output, likewise.
        words_ptr: n_chunks int64 words for each row, zero at the start.
        n_cols: number of columns.
        n_chunks: chunks of a row.
        max_polls: how often to look again for a word that is missing.
        BLOCK: columns of a chunk, a power of two.
    """
    # Read.
    row = (tl.program_id(0) // n_chunks).to(tl.int64)
    chunk = tl.program_id(0) % n_chunks
    x_ptr += row * n_cols
    words_ptr += row * n_chunks
    x, m_own, d_own = summary_of_chunk(x_ptr, chunk, n_cols, BLOCK)

    # Publish: whoever reads this word sees zero, or all of it.
    tl.atomic_xchg(words_ptr + chunk, pack_word(m_own, d_own), sem="relaxed")

    # Poll for the words of the row, in the same order everywhere, and merge them.
    m, d = float("-inf"), 0.0
    for other in range(n_chunks):
        word = tl.atomic_add(words_ptr + other, 0, sem="relaxed")
        polls = 0
        while (word == 0) & (polls < max_polls):
            word = tl.atomic_add(words_ptr + other, 0, sem="relaxed")
            polls += 1
        m_other, d_other = unpack_word(word)
        if word == 0:
            # No word in time: do its part.
            _, m_other, d_other = summary_of_chunk(x_ptr, other, n_cols, BLOCK)
        # eq: merge
        m, d = merge(m, d, m_other, d_other)

    # Write, from registers.
    # eq: softmax-safe
    y = exp_shifted(x, m) / d
    cols = chunk * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + row * n_cols + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


# --8<-- [end:kernel]


def softmax_forward(x: torch.Tensor, *, block: int = 4096, max_polls: int = 1024) -> torch.Tensor:
    """Softmax along the rows of a contiguous matrix, a program for each chunk of `block` columns.

    Args:
        x: contiguous matrix (n_rows, n_cols) of float16, bfloat16 or float32.
        block: columns of a chunk, a power of two.
        max_polls: how often a program looks again for a word before it computes the chunk itself.

    Raises:
        ValueError: x is not contiguous, or of float64, of which two numbers fit no word.
    """
    if not x.is_contiguous() or x.dtype == torch.float64:
        raise ValueError("split_rows_simple takes a contiguous matrix, and not of float64")
    n_rows, n_cols = x.shape
    n_chunks = triton.cdiv(n_cols, block)
    y = torch.empty_like(x)
    words = torch.zeros(n_rows * n_chunks, dtype=torch.int64, device=x.device)
    split_rows_simple_kernel[(n_rows * n_chunks,)](
        x, y, words, n_cols, n_chunks, max_polls, BLOCK=block
    )
    return y
