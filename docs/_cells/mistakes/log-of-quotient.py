"""Log-softmax of (0, −800) comes out as (0, −∞)

y underflows to 0. Log-softmax is x − m − log d and needs no logarithm of y. The program is ours.
"""
from math import exp, log

x = [0.0, -800.0]
m = max(x)
e = [exp(x_j - m) for x_j in x]
d = sum(e)
log_y = [log(e_j / d) if e_j else -inf for e_j in e]  # wrong
log_y = [x_j - m - log(d) for x_j in x]  # right
expect(log_y, [0.0, -800.0])
