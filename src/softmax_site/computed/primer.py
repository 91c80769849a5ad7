"""The kernel of the primer, and what it prints when its programs run one after another.

`TRITON_INTERPRET=1 python -m softmax_site.computed.primer` runs it.
"""

from __future__ import annotations

import contextlib
import io

import torch
import triton
import triton.language as tl


# --8<-- [start:kernel]
@triton.jit
def row_maxima_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    """The maximum of each row of a contiguous matrix, one row per program."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=float("-inf"))
    print("program", row)
    print("  mask", mask)
    print("  x   ", x)
    tl.store(out_ptr + row, tl.max(x, axis=0))


# --8<-- [end:kernel]


def main() -> None:
    """Two rows of five numbers, in tiles of eight lanes."""
    x = torch.tensor([[3.0, 1.0, 4.0, 1.0, 5.0], [9.0, 2.0, 6.0, 5.0, 3.0]])
    out = torch.empty(2)
    row_maxima_kernel[(2,)](x, out, 5, BLOCK=8)
    print("maxima", out)


def generate() -> dict[str, str]:
    """What `main` prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        main()
    return {"docs/_computed/primer.md": f"```text\n{printed.getvalue()}```\n"}


if __name__ == "__main__":
    main()
