"""One query, seven keys, in four chunks

Each program of the first launch sees two keys, the last one only the seventh; o_parts and lse_parts are what they leave. Which chunk has the most weight in o?
"""
# code: src/softmax_tutorial/attention/split_keys.py:attention_merge_kernel
# given: src/softmax_tutorial/attention/split_keys.py: attention_chunk_kernel
# right: o = [[attention(q[0][0], k[0][0], v[0][0])]]  # the values, weighted by softmax
# right: lse = [logsumexp(row) for row in scores(q[0][0], k[0][0])]  # the log-sum-exp of all scores
# again: with a chunk less, two queries, and scores far below 0
#   [[2.0, 1.0, 1.0, -1.5]]
#   [[2.0, 1.0, 1.0, -1.5], [1.0, 0.0, 0.5, 0.0]]
#   [0.5, 1.5, -1.0, 0.5], [-0.5, 2.5, 1.0, 0.5], [1.0, 3.0, 0.0, -0.5], [2.0, -1.0, -1.0, -0.5]
#   [-900.5, 1.5, -1.0, 0.5], [-900.5, 2.5, 1.0, 0.5]
#   [0.0, 1.0, -1.0, -0.5], [1.5, 0.5, 0.0, 0.0], [-1.0, 0.0, 0.5, 1.0]
#   [-901.0, 1.0, -1.0, -0.5], [-902.0, 0.5, 0.0, 0.0], [-900.0, 0.0, 0.5, 1.0]
#   [0.8, -0.4, -1.7, 0.7], [1.0, 0.6, 0.0, 0.1], [-0.9, 0.3, 0.8, -1.5], [0.2, 0.5, 1.1, 0.4]
#   [0.8, -0.4, -1.7, 0.7], [1.0, 0.6, 0.0, 0.1]
#   n, chunks = 1, 4
#   n, chunks = 2, 3
n, chunks = 1, 4
q = Tensor([[[[2.0, 1.0, 1.0, -1.5]]]], name="q")
k = Tensor([[[
    [0.5, 1.5, -1.0, 0.5], [-0.5, 2.5, 1.0, 0.5], [1.0, 3.0, 0.0, -0.5], [2.0, -1.0, -1.0, -0.5],
    [0.0, 1.0, -1.0, -0.5], [1.5, 0.5, 0.0, 0.0], [-1.0, 0.0, 0.5, 1.0],
]]], name="k")
v = Tensor([[[
    [0.8, -0.4, -1.7, 0.7], [1.0, 0.6, 0.0, 0.1], [-0.9, 0.3, 0.8, -1.5], [0.2, 0.5, 1.1, 0.4],
    [0.7, -1.0, -0.9, -0.6], [0.4, 0.9, 0.5, -0.2], [-0.6, 0.2, 0.3, 1.0],
]]], name="v")
o_parts, lse_parts = empty((1, chunks, n, 4), name="o_parts"), empty((chunks, n), name="lse_parts")
o, lse = empty((1, 1, n, 4), name="o"), empty((n,), name="lse")


def tiles(tensor, rows):
    strides = [tensor.stride(dim) for dim in range(4)]
    return TensorDescriptor(tensor, tensor.shape, strides, [1, 1, rows, 4])


attention_chunk_kernel[(chunks,)](
    tiles(q, n), tiles(k, 2), tiles(v, 2), tiles(o_parts, n), lse_parts, n, 2, 1.4426950408889634,
    CAUSAL=False, BLOCK_ROWS=n, BLOCK_KEYS=2, BLOCK_DIMS=4,
)
attention_merge_kernel[(n,)](
    o_parts, lse_parts, o, lse, 4, 4, n, chunks, 4, BLOCK_CHUNKS=4, BLOCK_DIMS=4
)
