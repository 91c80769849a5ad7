"""Log-softmax hands dy through unchanged, and cross-entropy trains. Is it right?

Only inside a fused cross-entropy, which subtracts y itself. In general the gradient is dy − y · Σ dy. The program is ours.
"""
from math import exp, log


def log_softmax(x):
    lse = log(sum(exp(x_j) for x_j in x))
    return [x_j - lse for x_j in x]


x, dy, h = [1.0, 2.0, 3.0], [0.5, 0.0, 0.5], 1e-6
y = [exp(v) for v in log_softmax(x)]
dx = dy  # wrong
dx = [d - y_j * sum(dy) for d, y_j in zip(dy, y)]  # right

loss = lambda x: sum(a * b for a, b in zip(dy, log_softmax(x)))
step = lambda i: [x_j + h * (i == j) for j, x_j in enumerate(x)]
expect(dx, [(loss(step(i)) - loss(x)) / h for i in range(3)], within=1e-4)
