"""Two rows in tiles of two columns

Run it, and move the slider: each step shows what a line reads, and every name of the kernel. The last lines of the kernel are exp_shifted, which the next pages call as well. Try BLOCK_COLS=4, or another power of two.
"""
# code: src/softmax_tutorial/three_loops.py:forward
# code: src/triton_softmax/kernels/device/monoid.py:exp_shifted
# right: y = softmax(x)
# right: y = log_softmax(x)
x = Tensor([[1.0, 2.0, 3.0], [1.0, 3.0, 5.0]], name="x")
y = empty((2, 3), name="y")

softmax_forward_three_loops_kernel[(1,)](
    x, y, x.stride(0), y.stride(0), 2, 3, LOG=False, BLOCK_ROWS=2, BLOCK_COLS=2
)
