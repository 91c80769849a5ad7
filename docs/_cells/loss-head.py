"""A loss and its gradient, one read

Two tokens with three classes each. Each row of dx adds up to 0; loss is the loss of a token times its share. The element of dx at a target is written twice, on purpose. Move a target, ignore a token by the target -1 (all its results are then 0), or give the first token three times the share of the second.
"""
# code: src/triton_softmax/operations/cross_entropy.py:_of_gradient..CROSS_ENTROPY_GRADIENT
# given: src/triton_softmax/kernels/tile.py: tile_kernel
# given: src/triton_softmax/config/constants.py: RowTile
# right: dx = [[s * (p - (j == t)) if t >= 0 else 0.0 for j, p in enumerate(row)] for row, t, s in zip(softmax(x), target, share)]  # the gradient
# right: loss = [s * (logsumexp(row) - row[t]) if t >= 0 else 0.0 for row, t, s in zip(x, target, share)]  # the cross-entropy
# right: lse = [logsumexp(row) if t >= 0 else 0.0 for row, t in zip(x, target)]  # logsumexp
# again: with negative numbers far apart
#   [1.0, 2.0, 3.0], [1.0, 3.0, 5.0]
#   [-901.0, -802.0, -703.0], [-1.0, -999.0, -500.0]
# again: with a token that is ignored
#   [2, 0]
#   [2, -1]
targets = [2, 0]
rows = [[1.0, 2.0, 3.0], [1.0, 3.0, 5.0]]

x = Tensor(rows, name="x")
target = Tensor(targets, int64, name="target")
picked = Tensor([row[t] for row, t in zip(rows, targets)], name="picked")  # the targets' logits
share = Tensor([0.5, 0.5], name="share")  # of the mean over two rows
z_loss = Tensor([0.0, 0.0], name="z_loss")  # its weight: there is none
dx, loss, lse = empty((2, 3), name="dx"), empty((2,), name="loss"), empty((2,), name="lse")

how = RowTile(block_rows=2, block_cols=4, vector=1, barrier=False, tiles=1, edges=False)
tile_kernel[(1,)](
    (x, target, picked, share, z_loss),
    (dx, loss, lse),
    (3, 1, 1, 1, 1),
    (3, 1, 1),
    2,
    3,
    OP=CROSS_ENTROPY_GRADIENT,
    HOW=how,
)
