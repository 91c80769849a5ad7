"""Softmax down the columns

The elements of a column of this matrix lie four apart. Step through: a program reads two columns at once, so that neighbours in memory are read together. With block_inner=1, and a grid of (4,), they are not.
"""
# code: src/triton_softmax/kernels/strided.py:strided_kernel
# given: src/triton_softmax/operations/softmax.py: SOFTMAX
# given: src/triton_softmax/config/constants.py: StridedTile
# right: out = [list(row) for row in zip(*softmax([list(column) for column in zip(*x)]))]  # softmax of the columns
# again: with negative numbers far apart
#   [1.0, 1.0, 0.0, 2.0], [2.0, 3.0, 0.0, 0.0], [3.0, 5.0, 0.0, 2.0]
#   [-1.0, -901.0, -950.0, 2.0], [-2.0, -3.0, -1.0, 950.0], [-903.0, -5.0, -7.0, 2.0]
# again: with two tiles in a column
#   block_cols=4
#   block_cols=2
#   tiles=1
#   tiles=2
# again: with three columns
#   [1.0, 1.0, 0.0, 2.0], [2.0, 3.0, 0.0, 0.0], [3.0, 5.0, 0.0, 2.0]
#   [1.0, 1.0, 0.0], [2.0, 3.0, 0.0], [3.0, 5.0, 0.0]
#   empty((3, 4)
#   empty((3, 3)
#   (12, 4, 1)
#   (9, 3, 1)
#   (strides,), 3, 4
#   (strides,), 3, 3
#   [(2,)]
#   [(2,)]
x = Tensor([[1.0, 1.0, 0.0, 2.0], [2.0, 3.0, 0.0, 0.0], [3.0, 5.0, 0.0, 2.0]], name="x")
out = empty((3, 4), name="out")

how = StridedTile(
    block_cols=4, block_inner=2, vector=1, barrier=False, wide_index=False, tiles=1
)
strides = (12, 4, 1)  # to the next matrix, to the next element of a column, to the next column
strided_kernel[(2,)]((x,), (out,), (strides,), (strides,), 3, 4, OP=SOFTMAX, HOW=how)
