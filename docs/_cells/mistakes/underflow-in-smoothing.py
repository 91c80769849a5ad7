"""Label smoothing turns a finite loss into infinity

Smoothing needs log y of every class, even where y underflows to 0. Compute it from the logits. Reported in NVIDIA/Megatron-LM#5522.
"""
from math import exp, log

x, eps, target = [0.0, -900.0], 0.1, 0
lse = log(sum(exp(x_j) for x_j in x))
y = [exp(x_j - lse) for x_j in x]
log_y = [log(y_j) if y_j else -inf for y_j in y]  # wrong
log_y = [x_j - lse for x_j in x]  # right
loss = -(1 - eps) * log_y[target] - eps * sum(log_y) / len(x)
expect(loss, 45.0)
