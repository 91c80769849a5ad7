"""Five short rows, two per program, and any operation

The third program has only one row left. Try OP=LOG_SOFTMAX. Or one row per program: block_rows=1, and a grid of (5,). Or OP=LOGSUMEXP, which has one number for a row: out is then empty((5, 1)), and its row stride, the second (3,), is (1,).
"""
# code: src/triton_softmax/kernels/tile.py:start_of_body
# code: src/triton_softmax/kernels/tile.py:tile_kernel
# given: src/triton_softmax/operations/softmax.py: SOFTMAX
# given: src/triton_softmax/operations/softmax.py: LOG_SOFTMAX
# given: src/triton_softmax/operations/logsumexp.py: LOGSUMEXP
# given: src/triton_softmax/config/constants.py: RowTile
# right: out = softmax(x)
# right: out = log_softmax(x)
# right: out = [[logsumexp(row)] for row in x]  # logsumexp
# again: with negative numbers far apart
#   [1.0, 2.0, 3.0], [1.0, 3.0, 5.0]
#   [-901.0, -802.0, -703.0], [-1.0, -999.0, -500.0]
# again: with OP=LOGSUMEXP
#   OP=SOFTMAX
#   OP=LOGSUMEXP
#   empty((5, 3)
#   empty((5, 1)
#   (3,), (3,), 5, 3
#   (3,), (1,), 5, 3
# again: with rows of seven in two tiles
#   [[1.0, 2.0, 3.0], [1.0, 3.0, 5.0], [0.0, 0.0, 0.0], [4.0, -inf, 4.0], [9.0, 1.0, 2.0]]
#   [[-1.0, -99.0, 5.0, 900.0, 0.0, -80.0, 3.0], [901.0, -1.0, -903.0, -7.0, -8.0, -9.0, -900.0]] * 2 + [[0.0] * 7]
#   empty((5, 3)
#   empty((5, 7)
#   (3,), (3,), 5, 3
#   (7,), (7,), 5, 7
#   tiles=1
#   tiles=2
# again: with edges
#   [[1.0, 2.0, 3.0], [1.0, 3.0, 5.0], [0.0, 0.0, 0.0], [4.0, -inf, 4.0], [9.0, 1.0, 2.0]]
#   [[-1.0, -99.0, 5.0, 900.0, 0.0, -80.0, 3.0], [901.0, -1.0, -903.0, -7.0, -8.0, -9.0, -900.0]] * 2 + [[0.0] * 7]
#   empty((5, 3)
#   empty((5, 7)
#   (3,), (3,), 5, 3
#   (7,), (7,), 5, 7
#   block_cols=4, vector=1, barrier=False, tiles=1, edges=False
#   block_cols=8, vector=4, barrier=False, tiles=1, edges=True
x = Tensor(
    [[1.0, 2.0, 3.0], [1.0, 3.0, 5.0], [0.0, 0.0, 0.0], [4.0, -inf, 4.0], [9.0, 1.0, 2.0]],
    name="x",
)
out = empty((5, 3), name="out")

how = RowTile(block_rows=2, block_cols=4, vector=1, barrier=False, tiles=1, edges=False)
tile_kernel[(3,)]((x,), (out,), (3,), (3,), 5, 3, OP=SOFTMAX, HOW=how)
