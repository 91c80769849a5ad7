"""Causal, by tensor descriptors

x
"""
# code: src/softmax_tutorial/attention/descriptors.py:attention_descriptors_kernel
# given: src/softmax_tutorial/attention/tiles.py: Tile
# right: o = [[sum([w * value[c] for w, value in zip(softmax([0.5 * sum([a * b for a, b in zip(query, key)]) for key in k]), v)]) for c in range(2)] for query in q]
q = Tensor([[[[2.0, 0.0], [1.0, 1.0], [0.0, 2.0], [-1.0, 3.0]]]], name="q")
k = Tensor([[[[0.5, 1.5], [-0.5, 2.5], [1.0, 3.0], [2.0, -1.0], [0.0, 1.0]]]], name="k")
v = Tensor([[[[0.8, -0.4], [1.0, 0.6], [-0.9, 0.3], [0.2, 0.5], [0.7, -1.0]]]], name="v")
o, lse = empty((1, 1, 4, 2), name="o"), empty((4,), name="lse")
described = [TensorDescriptor(each, each.shape, each.strides, [1, 1, 2, 2]) for each in (q, k, v, o)]
attention_descriptors_kernel[(2, 1)](
    *described, lse, 0.5 * 1.4426950408889634, CAUSAL=True, TILE=Tile(2, 2, 2)
)
