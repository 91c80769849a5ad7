"""exp(x − lse) should be softmax, and sums to a third

The log-sum-exp saved for the backward pass is m + log d, not m + d. The program is ours.
"""
from math import exp, log

x = [1.0, 2.0, 3.0]
m = max(x)
d = sum(exp(x_j - m) for x_j in x)
lse = m + d  # wrong
lse = m + log(d)  # right
expect(sum(exp(x_j - lse) for x_j in x), 1.0)
