"""Does this check notice that s is missing?

The incoming gradient, of a mean cross-entropy of y over 256 rows (A8), is so small that the absolute tolerance hides the missing inner product. A dy of ordinary size reveals it.
"""
from math import exp, sin

e = [exp(2 * sin(7 * j)) for j in range(512)]
y = [e_j / sum(e) for e_j in e]
p = [exp(y_j) for y_j in y]
dy = [(p[j] / sum(p) - (j == 3)) / 256 for j in range(512)]  # wrong
dy = [sin(j * j) for j in range(512)]  # right
s = sum(y_j * dy_j for y_j, dy_j in zip(y, dy))
dx = [y_j * (dy_j - s) for y_j, dy_j in zip(y, dy)]
found = [y_j * dy_j for y_j, dy_j in zip(y, dy)]  # where is s?
close = [abs(a - b) <= 1e-5 + 1.3e-6 * abs(b) for a, b in zip(found, dx)]
expect(all(close), False)
