"""lse = m + d

The log-sum-exp that is saved for a backward pass is m + log d. With d alone, exp(x − lse) is no softmax.
"""
from math import exp, log

x = [1.0, 2.0, 3.0]
m = max(x)
d = sum(exp(x_j - m) for x_j in x)
lse = m + d  # wrong
lse = m + log(d)  # right
expect(sum(exp(x_j - lse) for x_j in x), 1.0)
