"""Five short rows, two per program

The third program has only one row left. Leave rows < n_rows out of the mask, or put all rows into one program, with (1,) in the call and BLOCK_ROWS=8.
"""
# code: src/softmax_tutorial/packed_rows_simple.py:kernel
# right: y = softmax(x)
# again: with negative numbers far apart
#   [1.0, 2.0, 3.0], [1.0, 3.0, 5.0]
#   [-901.0, -802.0, -703.0], [-1.0, -999.0, -500.0]
x = Tensor(
    [[1.0, 2.0, 3.0], [1.0, 3.0, 5.0], [0.0, 0.0, 0.0], [4.0, -inf, 4.0], [9.0, 1.0, 2.0]],
    name="x",
)
y = empty((5, 3), name="y")

packed_rows_simple_kernel[(3,)](x, y, 5, 3, BLOCK_ROWS=2, BLOCK_COLS=4)
