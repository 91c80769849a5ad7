"""Four queries, five keys, in tiles of two by two

Each program takes two queries with two components. Let one program take all four: how many bytes are read then? With causal = True the last query sees every key; which see fewer?
"""
# code: src/softmax_tutorial/attention/vectors.py:attention_vectors_kernel
# given: src/softmax_tutorial/attention/tiles.py: Tile
# right: o = attention(q, k, v, 0.5, causal)  # the values, weighted by softmax
# right: lse = [logsumexp(row) for row in scores(q, k, 0.5, causal)]  # the log-sum-exp of each query's scores
# again: where scores are far below 0, in two heads of three components
#   [[2.0, 0.0], [1.0, 1.0], [0.0, 2.0], [-1.0, 3.0]]
#   [[2.0, 0.0, 1.0], [1.0, 1.0, 0.0], [0.0, 2.0, 3.0], [1.0, 3.0, 0.0], [9.0, 1.0, 2.0], [4.0, 0.0, 1.0]]
#   [[0.5, 1.5], [-0.5, 2.5], [1.0, 3.0], [2.0, -1.0], [0.0, 1.0]]
#   [[-299.5, -299.5, -297.0], [-299.5, -298.5, -299.0], [-299.0, -298.5, -299.0], [-299.0, -298.0, -299.0], [-298.0, -299.0, -298.5]]
#   [[0.8, -0.4], [1.0, 0.6], [-0.9, 0.3], [0.2, 0.5], [0.7, -1.0]]
#   [[0.8, -0.4, 1.0], [1.0, 0.6, 2.0], [-0.9, 0.3, 0.5], [0.2, 0.5, 3.0], [0.7, -1.0, 2.0]]
#   empty((4, 2)
#   empty((6, 3)
#   empty((4,)
#   empty((6,)
#   [(2, 1)]
#   [(2, 2)]
#   1, 4, 5, 2, 0.5
#   2, 3, 5, 3, 0.5
#   Tile(2, 2, 2)
#   Tile(2, 2, 4)
#   causal = False
#   causal = False
# again: where a query sees no key
#   [[0.5, 1.5], [-0.5, 2.5], [1.0, 3.0], [2.0, -1.0], [0.0, 1.0]]
#   [[0.5, 1.5], [-0.5, 2.5], [1.0, 3.0]]
#   [[0.8, -0.4], [1.0, 0.6], [-0.9, 0.3], [0.2, 0.5], [0.7, -1.0]]
#   [[0.8, -0.4], [1.0, 0.6], [-0.9, 0.3]]
#   1, 4, 5, 2, 0.5
#   1, 4, 3, 2, 0.5
#   causal = False
#   causal = True
q = Tensor([[2.0, 0.0], [1.0, 1.0], [0.0, 2.0], [-1.0, 3.0]], name="q")
k = Tensor([[0.5, 1.5], [-0.5, 2.5], [1.0, 3.0], [2.0, -1.0], [0.0, 1.0]], name="k")
v = Tensor([[0.8, -0.4], [1.0, 0.6], [-0.9, 0.3], [0.2, 0.5], [0.7, -1.0]], name="v")
o, lse = empty((4, 2), name="o"), empty((4,), name="lse")
causal = False

attention_vectors_kernel[(2, 1)](
    q, k, v, o, lse, 1, 4, 5, 2, 0.5, CAUSAL=causal, TILE=Tile(2, 2, 2)
)
