"""The same by descriptors, causal

Four queries and as many keys in tiles of two. Program 0 takes the last two queries, program 1 the first two: which reads fewer tiles? Compare the bytes with those of causal = False.
"""
# code: src/softmax_tutorial/attention/descriptors.py:attention_descriptors_kernel
# right: o = [[attention(q[0][0], k[0][0], v[0][0], 0.5, causal)]]  # the values, weighted by softmax
# right: lse = [logsumexp(row) for row in scores(q[0][0], k[0][0], 0.5, causal)]  # the log-sum-exp of each query's scores
# again: with five keys and no mask
#   [0.5, 1.5], [-0.5, 2.5], [1.0, 3.0], [2.0, -1.0]
#   [0.5, 1.5], [-0.5, 2.5], [1.0, 3.0], [2.0, -1.0], [0.0, 1.0]
#   [0.8, -0.4], [1.0, 0.6], [-0.9, 0.3], [0.2, 0.5]
#   [0.8, -0.4], [1.0, 0.6], [-0.9, 0.3], [0.2, 0.5], [0.7, -1.0]
#   causal = True
#   causal = False
# again: where a query sees no key and scores are far below 0
#   [[[[2.0, 0.0], [1.0, 1.0], [0.0, 2.0], [-1.0, 3.0]]]]
#   [[[[-2.0, 0.0], [-1.0, -1.0], [0.0, -2.0], [-1.0, -3.0]]]]
#   [[[[0.5, 1.5], [-0.5, 2.5], [1.0, 3.0], [2.0, -1.0]]]]
#   [[[[299.5, 301.5], [299.0, 302.5], [299.0, 303.0]]]]
#   [[[[0.8, -0.4], [1.0, 0.6], [-0.9, 0.3], [0.2, 0.5]]]]
#   [[[[0.8, -0.4], [1.0, 0.6], [-0.9, 0.3]]]]
# again: with more keys than queries
#   [[[[0.5, 1.5], [-0.5, 2.5], [1.0, 3.0], [2.0, -1.0]]]]
#   [[[[0.5, 1.5], [-0.5, 2.5], [1.0, 3.0], [2.0, -1.0], [0.0, 1.0], [3.0, 0.5], [1.0, 1.0]]]]
#   [[[[0.8, -0.4], [1.0, 0.6], [-0.9, 0.3], [0.2, 0.5]]]]
#   [[[[0.8, -0.4], [1.0, 0.6], [-0.9, 0.3], [0.2, 0.5], [0.7, -1.0], [0.4, 0.9], [-0.6, 0.2]]]]
q = Tensor([[[[2.0, 0.0], [1.0, 1.0], [0.0, 2.0], [-1.0, 3.0]]]], name="q")
k = Tensor([[[[0.5, 1.5], [-0.5, 2.5], [1.0, 3.0], [2.0, -1.0]]]], name="k")
v = Tensor([[[[0.8, -0.4], [1.0, 0.6], [-0.9, 0.3], [0.2, 0.5]]]], name="v")
o, lse = empty((1, 1, 4, 2), name="o"), empty((4,), name="lse")
causal = True

described = [TensorDescriptor(each, each.shape, each.strides, [1, 1, 2, 2]) for each in (q, k, v, o)]
attention_descriptors_kernel[(2,)](
    *described, lse, 0.5 * 1.442695, CAUSAL=causal, BLOCK_QUERIES=2, BLOCK_KEYS=2, BLOCK_DIMS=2
)
