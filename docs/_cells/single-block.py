"""One program for each row

Try a row of -inf, or LOG=True. Or leave the mask out of the load: the cell catches program 1 reading past the end of x. It does not catch program 0, which quietly read the first number of the next row.
"""
# code: src/softmax_tutorial/single_block.py:forward
# right: y = softmax(x)
# right: y = log_softmax(x)
# again: with negative numbers far apart
#   [1.0, 2.0, 3.0], [1.0, 3.0, 5.0]
#   [-901.0, -802.0, -703.0], [-1.0, -999.0, -500.0]
# again: with LOG=True
#   LOG=False
#   LOG=True
x = Tensor([[1.0, 2.0, 3.0], [1.0, 3.0, 5.0]], name="x")
y = empty((2, 3), name="y")

softmax_forward_single_block_kernel[(2,)](
    x, y, x.stride(0), y.stride(0), 3, LOG=False, BLOCK_SIZE=4
)
