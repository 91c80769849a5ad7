"""Softmax with 1 + Σ exp(x) as its denominator, shifted by m, comes out too small

Relative to m, the 1 in the denominator is exp(−m). Reported in kyegomez/AttentionIsOFFByOne#5.
"""
from math import exp

x = [5.0, 6.0]
m = max(x)
e = [exp(x_j - m) for x_j in x]
d = 1.0 + sum(e)  # wrong
d = exp(-m) + sum(e)  # right
y = [e_j / d for e_j in e]
expect(y, [exp(x_j) / (1 + exp(5.0) + exp(6.0)) for x_j in x])
