"""Fill in. Program i copies row i of x to y, and doubles it on the way."""

import triton
import triton.language as tl


@triton.jit
def double_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    """Rows lie one after the other; BLOCK is a power of two, at least n_cols."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = ...
    x = tl.load(...)
    tl.store(y_ptr + row * n_cols + cols, 2 * x, mask=mask)
