"""One query, five keys, in three chunks

Each program of the first launch sees two keys, the last one only the fifth; o_parts and lse_parts are what it leaves. What stands in lse_parts if a chunk has no key that the query sees?
"""
# code: src/softmax_tutorial/attention/split_keys.py:attention_merge_kernel
# given: src/softmax_tutorial/attention/split_keys.py: attention_chunk_kernel
# right: o = [[attention(q[0][0], k[0][0], v[0][0], 1.0)]]  # the values, weighted by softmax
# right: lse = [logsumexp(row) for row in scores(q[0][0], k[0][0])]  # the log-sum-exp of all scores
# again: where scores are far below 0, with two queries
#   [[[[2.0, 1.0]]]]
#   [[[[2.0, 1.0], [1.0, 0.0]]]]
#   [[[[0.5, 1.5], [-0.5, 2.5], [1.0, 3.0], [2.0, -1.0], [0.0, 1.0]]]]
#   [[[[-900.5, 1.5], [-900.5, 2.5], [-901.0, 3.0], [-902.0, -1.0], [-900.0, 1.0]]]]
#   n = 1
#   n = 2
n = 1
q = Tensor([[[[2.0, 1.0]]]], name="q")
k = Tensor([[[[0.5, 1.5], [-0.5, 2.5], [1.0, 3.0], [2.0, -1.0], [0.0, 1.0]]]], name="k")
v = Tensor([[[[0.8, -0.4], [1.0, 0.6], [-0.9, 0.3], [0.2, 0.5], [0.7, -1.0]]]], name="v")
o_parts, lse_parts = empty((1, 3, n, 2), name="o_parts"), empty((3, n), name="lse_parts")
o, lse = empty((1, 1, n, 2), name="o"), empty((n,), name="lse")


def tiles(tensor, rows):
    return TensorDescriptor(tensor, tensor.shape, tensor.strides, [1, 1, rows, 2])


attention_chunk_kernel[(3,)](
    tiles(q, n), tiles(k, 2), tiles(v, 2), tiles(o_parts, n), lse_parts, n, 2, 1.4426950408889634,
    CAUSAL=False, BLOCK_ROWS=n, BLOCK_KEYS=2, BLOCK_DIMS=2,
)
attention_merge_kernel[(n,)](
    o_parts, lse_parts, o, lse, 2, 2, n, 3, 2, BLOCK_CHUNKS=4, BLOCK_DIMS=2
)
