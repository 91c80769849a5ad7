"""The gradient from q, k, v, o, do and one number per query

Of the forward pass only o and lse are left. Three queries and keys in tiles of two: each program writes two rows of dk and dv, and adds to all of dq. Leave the subtraction of delta out: which gradient is still right?
"""
# code: src/softmax_tutorial/attention/backward.py:attention_delta_kernel..attention_backward_kernel
# given: src/softmax_tutorial/attention/tiles.py: Tile
# given: src/softmax_tutorial/attention/descriptors.py: attention_descriptors_kernel
# right: dv = [[attention_backward(q[0][0], k[0][0], v[0][0], do[0][0], 1.0, causal)[2]]]  # the gradient of v
# right: dk = [[attention_backward(q[0][0], k[0][0], v[0][0], do[0][0], 1.0, causal)[1]]]  # the gradient of k
# right: dq = [[attention_backward(q[0][0], k[0][0], v[0][0], do[0][0], 1.0, causal)[0]]]  # the gradient of q
# again: where scores are far below 0
#   [0.5, 1.5, -1.0, 0.5], [-0.5, 2.5, 1.0, 0.5], [1.0, 3.0, 0.0, -0.5]
#   [-90.5, -91.5, 1.0, -0.5], [-90.5, -92.5, 0.0, -1.5], [-91.0, -90.0, -1.0, 0.5]
#   [2.0, 0.0, 0.0, 0.5], [1.0, 1.0, -2.0, 0.5], [0.0, 2.0, 0.0, 0.5]
#   [2.0, 1.0, 1.0, -1.5], [1.0, 1.0, -2.0, 0.5], [1.0, 2.0, -1.0, -1.5]
# again: with a causal mask and a fourth key
#   [0.5, 1.5, -1.0, 0.5], [-0.5, 2.5, 1.0, 0.5], [1.0, 3.0, 0.0, -0.5]
#   [0.5, 1.5, -1.0, 0.5], [-0.5, 2.5, 1.0, 0.5], [1.0, 3.0, 0.0, -0.5], [0.5, -1.0, -1.5, 1.0]
#   [0.8, -0.4, -1.7, 0.7], [1.0, 0.6, 0.0, 0.1], [-0.9, 0.3, 0.8, -1.5]
#   [0.8, -0.4, -1.7, 0.7], [1.0, 0.6, 0.0, 0.1], [-0.9, 0.3, 0.8, -1.5], [0.2, 0.5, 1.1, 0.4]
#   causal = False
#   causal = True
# again: with a causal mask and queries that see no key
#   [0.5, 1.5, -1.0, 0.5], [-0.5, 2.5, 1.0, 0.5], [1.0, 3.0, 0.0, -0.5]
#   [0.5, 1.5, -1.0, 0.5]
#   [0.8, -0.4, -1.7, 0.7], [1.0, 0.6, 0.0, 0.1], [-0.9, 0.3, 0.8, -1.5]
#   [0.8, -0.4, -1.7, 0.7]
#   causal = False
#   causal = True
#   attention_backward_kernel[(2,)]
#   attention_backward_kernel[(1,)]
q = Tensor([[[[2.0, 0.0, 0.0, 0.5], [1.0, 1.0, -2.0, 0.5], [0.0, 2.0, 0.0, 0.5]]]], name="q")
k = Tensor([[[[0.5, 1.5, -1.0, 0.5], [-0.5, 2.5, 1.0, 0.5], [1.0, 3.0, 0.0, -0.5]]]], name="k")
v = Tensor([[[[0.8, -0.4, -1.7, 0.7], [1.0, 0.6, 0.0, 0.1], [-0.9, 0.3, 0.8, -1.5]]]], name="v")
do = Tensor([[[[1.0, 0.5, -0.5, 0.0], [0.5, -1.0, -1.5, 1.0], [0.2, 1.0, -0.4, 0.9]]]], name="do")
o, dq = empty(q.shape, name="o"), Tensor([[[[0.0, 0.0, 0.0, 0.0]] * 3]], name="dq")
dk, dv = empty(k.shape, name="dk"), empty(k.shape, name="dv")
lse, delta = empty((3,), name="lse"), empty((3,), name="delta")
dlse = Tensor([0.0] * 3, name="dlse")
log2e = 1.4426950408889634
causal = False


def tiles(*tensors):
    strides = [[each.stride(dim) for dim in range(4)] for each in tensors]
    return [TensorDescriptor(x, x.shape, s, [1, 1, 2, 4]) for x, s in zip(tensors, strides)]


attention_descriptors_kernel[(2,)](*tiles(q, k, v, o), lse, log2e, causal, 2, 2, 4)
attention_delta_kernel[(2,)](*tiles(o, do), dlse, delta, BLOCK_QUERIES=2, BLOCK_DIMS=4)
attention_backward_kernel[(2,)](
    *tiles(q, k, v, do, dk, dv, dq), lse, delta, log2e, CAUSAL=causal, TILE=Tile(2, 2, 4)
)
