"""Five short rows, two per program, and any operation

The third program has only one row left. Try OP=LOG_SOFTMAX. Or one row per program: block_rows=1, and a grid of (5,). Or OP=LOGSUMEXP, which has one number for a row: out is then empty((5, 1)), and its row stride, the second (3,), is (1,).
"""
# code: src/triton_softmax/kernels/tile.py:start_of_body
# code: src/triton_softmax/kernels/tile.py:tile_kernel
# given: src/triton_softmax/operations/softmax.py: SOFTMAX
# given: src/triton_softmax/operations/softmax.py: LOG_SOFTMAX
# given: src/triton_softmax/operations/logsumexp.py: LOGSUMEXP
# given: src/triton_softmax/config/space.py: RowTile
# right: out = softmax(x)
# right: out = log_softmax(x)
# right: out = [[logsumexp(row)] for row in x]  # logsumexp
x = Tensor(
    [[1.0, 2.0, 3.0], [1.0, 3.0, 5.0], [0.0, 0.0, 0.0], [4.0, -inf, 4.0], [9.0, 1.0, 2.0]],
    name="x",
)
out = empty((5, 3), name="out")

how = RowTile(block_rows=2, block_cols=4, vector=1, barrier=False, tiles=1, edges=False)
tile_kernel[(3,)]((x,), (out,), (3,), (3,), 5, 3, OP=SOFTMAX, HOW=how)
