"""Softmax down the columns

The elements of a column of this matrix lie four apart. Step through: a program reads two columns at once, so that neighbours in memory are read together. With block_inner=1 they are not.
"""
# code: src/triton_softmax/kernels/strided.py:strided_kernel
# given: src/triton_softmax/operations/softmax.py: SOFTMAX
# given: src/triton_softmax/config/space.py: StridedTile
# right: out = [list(row) for row in zip(*softmax([list(column) for column in zip(*x)]))]  # softmax of the columns
x = Tensor([[1.0, 1.0, 0.0, 2.0], [2.0, 3.0, 0.0, 0.0], [3.0, 5.0, 0.0, 2.0]], name="x")
out = empty((3, 4), name="out")

how = StridedTile(
    block_cols=4, block_inner=2, vector=1, barrier=False, wide_index=False, tiles=1
)
strides = (12, 4, 1)  # to the next matrix, to the next element of a column, to the next column
strided_kernel[(2,)]((x,), (out,), (strides,), (strides,), 3, 4, OP=SOFTMAX, HOW=how)
