"""The logarithm of a softmax that has become 0

y underflows, and then its logarithm is −∞. Log-softmax is x − m − log d, and takes no such logarithm.
"""
from math import exp, log

x = [0.0, -800.0]
m = max(x)
e = [exp(x_j - m) for x_j in x]
d = sum(e)
log_y = [log(e_j / d) if e_j else -inf for e_j in e]  # wrong
log_y = [x_j - m - log(d) for x_j in x]  # right
expect(log_y, [0.0, -800.0])
