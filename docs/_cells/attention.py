"""One query, six keys, in tiles of two

The scores and values of the figure above, a tile in each line: with q = 1 a score is its key, and o is the last a / d. No score is ever written. Reverse k and v: the maximum then never grows, and o stays as it is.
"""
# code: src/softmax_tutorial/flash_attention.py:forward
# right: o = [sum(w * value for w, value in zip(softmax([q[0] * each for each in flat(k)]), flat(v)))]  # the values, weighted by softmax
q = Tensor([1.0], name="q")
k = Tensor([[0.5, 1.5], [-0.5, 2.5], [1.0, 3.2]], name="k")
v = Tensor([[0.8, -0.4], [1.0, 0.6], [-0.9, 0.3]], name="v")
o = empty((1,), name="o")

attention_forward_kernel[(1,)](q, k, v, o, 1, 6, BLOCK_QUERIES=1, BLOCK_KEYS=2)
