"""Elements that move

kind: predict
level: 1
minutes: 4
teaches: count what a kernel reads and writes

How many elements does this kernel read and write, all programs together, for a matrix of 4 rows and
100 columns, with BLOCK = 32? Masked lanes do not count.

hint: The matrix has 400 elements. How often is each read, and how often written?
"""

import triton
import triton.language as tl

# start
ANSWER = ...
# solved
ANSWER = 1600
# end


@triton.jit
def three_loops_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    m = -float("inf")
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=-float("inf"))
        m = tl.maximum(m, tl.max(x, axis=0))
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=-float("inf"))
        d += tl.sum(tl.exp(x - m), axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=-float("inf"))
        tl.store(y_ptr + row * n_cols + cols, tl.exp(x - m) / d, mask=cols < n_cols)


# ---- check ----
from softmax_playground.checker.judge import needs, number


def check(names, lab):
    x = lab.tensor([[float(i % 7) for i in range(100)] for _ in range(4)], "x")
    y = lab.empty((4, 100), "y")
    lab.launch(needs(names, "three_loops_kernel"), (4,), x, y, 100, BLOCK=32)
    read, written = lab.count("load"), lab.count("store")
    said = f"Right: counted, it reads {read} and writes {written}. The mask leaves out the rest."
    return number(names, read + written, said)


WRONG = [
    (2048, "Masked lanes move nothing: the fourth tile of a row has 4 lanes that count, not 32."),
    (
        1536,
        "128 lanes a row are read three times, but only 100 of them count, and all are written.",
    ),
    (1200, "Those are the reads. The writes are missing."),
    (800, "That would be one read and one write; the kernel has three loops, each with a load."),
    (400, "The matrix has 400 elements, and each is read more than once."),
    (6400, "Elements, not bytes: each is counted once, whatever its size."),
    (50, "These are accesses of tiles: 4 rows, 4 tiles each. The question is about elements."),
    (64, "These are accesses of tiles: 4 rows, 4 tiles, 4 accesses. Count their elements."),
]
