"""Two rows of five elements, in tiles of eight lanes

Three lanes of each tile lie past the end of the row. Try other=0.0 with a row of negative numbers, or BLOCK=16.
"""
# code: src/softmax_site/computed/primer.py:kernel
# right: out = [max(row) for row in x]  # the maximum of each row
# again: with negative numbers
#   [3.0, 1.0, 4.0, 1.0, 5.0], [9.0, 2.0, 6.0, 5.0, 3.0]
#   [-3.0, -1.0, -4.0, -1.0, -5.0], [-9.0, -2.0, -6.0, -5.0, -3.0]
x = Tensor([[3.0, 1.0, 4.0, 1.0, 5.0], [9.0, 2.0, 6.0, 5.0, 3.0]], name="x")
out = empty((2,), name="out")

row_maxima_kernel[(2,)](x, out, 5, BLOCK=8)
