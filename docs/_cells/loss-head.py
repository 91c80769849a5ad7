"""A loss and its gradient, one read

Three tokens with four classes each; the third is ignored. Each row of dx adds up to 0. Move a target, or let the first token count three times as much as the second.
"""
# code: src/triton_softmax/operations/cross_entropy.py:_loss_and_lse..CROSS_ENTROPY
# code: src/triton_softmax/operations/cross_entropy.py:_of_gradient..CROSS_ENTROPY_GRADIENT
# given: src/triton_softmax/kernels/tile.py: tile_kernel
# given: src/triton_softmax/config/space.py: RowTile
targets = [0, 3, -1]  # -1: the row is ignored
rows = [[2.0, 1.0, 0.0, 1.0], [1.0, 3.0, 5.0, 2.0], [4.0, 0.0, 0.0, 0.0]]

x = Tensor(rows, name="x")
target = Tensor(targets, int64, name="target")
picked = Tensor([row[t] for row, t in zip(rows, targets)], name="picked")
share = Tensor([0.5, 0.5, 0.0], name="share")  # of the mean over two rows
z = Tensor([0.0, 0.0, 0.0], name="z")
dx, loss, lse = empty((3, 4), name="dx"), empty((3,), name="loss"), empty((3,), name="lse")

how = RowTile(block_rows=2, block_cols=4, vector=1, barrier=False, tiles=1, edges=False)
tile_kernel[(2,)](
    (x, target, picked, share, z),
    (dx, loss, lse),
    (4, 1, 1, 1, 1),
    (4, 1, 1),
    3,
    4,
    OP=CROSS_ENTROPY_GRADIENT,
    HOW=how,
)
