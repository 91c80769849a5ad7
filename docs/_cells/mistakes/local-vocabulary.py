"""The label-smoothing loss is right on one GPU, and too small on two

Each GPU holds half of the vocabulary, and the smoothed target ε / V counts the classes of all shards. Reported in NVIDIA/Megatron-LM#737.
"""
from math import exp, log

shards = [[1.0, 2.0], [3.0, 0.0]]
eps, target = 0.1, 2
whole = shards[0] + shards[1]
lse = log(sum(exp(x) for x in whole))
V = len(shards[0])  # wrong
V = len(whole)  # right
total = sum(sum(shard) for shard in shards)
loss = lse - (1 - eps) * whole[target] - eps * total / V

q = [eps / 4 + (1 - eps) * (j == target) for j in range(4)]
expect(loss, -sum(q_j * (x - lse) for q_j, x in zip(q, whole)))
