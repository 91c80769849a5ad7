"""Two rows in tiles of two columns

Run it, and move the slider: each step shows what a line reads, and the value of every variable. The last lines are exp_shifted, as in the single block. Try BLOCK_COLS=4, or another power of two.
"""
# code: src/softmax_tutorial/three_loops.py:forward
# code: src/triton_softmax/kernels/device/monoid.py:exp_shifted
# right: y = softmax(x)
# right: y = log_softmax(x)
# again: with negative numbers far apart
#   [1.0, 2.0, 3.0], [1.0, 3.0, 5.0]
#   [-901.0, -802.0, -703.0], [-1.0, -999.0, -500.0]
# again: with LOG=True
#   LOG=False
#   LOG=True
# again: with three rows
#   [1.0, 2.0, 3.0], [1.0, 3.0, 5.0]]
#   [1.0, 2.0, 3.0], [1.0, 3.0, 5.0], [-7.0, -9.0, -8.0]]
#   empty((2, 3)
#   empty((3, 3)
#   _kernel[(1,)]
#   _kernel[(2,)]
#   2, 3, LOG
#   3, 3, LOG
x = Tensor([[1.0, 2.0, 3.0], [1.0, 3.0, 5.0]], name="x")
y = empty((2, 3), name="y")

softmax_forward_three_loops_kernel[(1,)](
    x, y, x.stride(0), y.stride(0), 2, 3, LOG=False, BLOCK_ROWS=2, BLOCK_COLS=2
)
