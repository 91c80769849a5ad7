"""One query, six keys, in tiles of two

The scores and values of the figure above, a tile in each line: with q = 1 a score is its key, and o is the last a / d. No score is ever written. Reverse k and v: the maximum then never grows, and o stays as it is.
"""
# code: src/softmax_tutorial/flash_attention.py:forward
# right: o = [sum(w * value for w, value in zip(softmax([each * score for score in flat(k)]), flat(v))) for each in q]  # the values, weighted by softmax
# again: with three queries and five keys
#   [1.0], name="q"
#   [1.0, -900.0, 300.0], name="q"
#   [[0.5, 1.5], [-0.5, 2.5], [1.0, 3.2]]
#   [[0.5, 1.5, 0.7, 2.5, 1.0]]
#   [[0.8, -0.4], [1.0, 0.6], [-0.9, 0.3]]
#   [[0.8, -0.4, 1.0, 0.6, -0.9]]
#   empty((1,)
#   empty((3,)
#   _kernel[(1,)]
#   _kernel[(2,)]
#   1, 6, BLOCK_QUERIES=1
#   3, 5, BLOCK_QUERIES=2
q = Tensor([1.0], name="q")
k = Tensor([[0.5, 1.5], [-0.5, 2.5], [1.0, 3.2]], name="k")
v = Tensor([[0.8, -0.4], [1.0, 0.6], [-0.9, 0.3]], name="v")
o = empty((1,), name="o")

attention_forward_kernel[(1,)](q, k, v, o, 1, 6, BLOCK_QUERIES=1, BLOCK_KEYS=2)
