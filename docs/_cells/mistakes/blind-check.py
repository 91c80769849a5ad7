"""A check that accepts y·dy

The gradient that arrives is that of a mean cross-entropy of y over 256 rows. It is so small that the tolerance hides the missing inner product.
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
