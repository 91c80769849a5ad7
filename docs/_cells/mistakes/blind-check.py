"""Does this check notice that s is missing?

The mistake is in the check. Its dy comes from a mean cross-entropy over 256 rows (A8 in the list of corrections) and is so small that the absolute tolerance hides what is missing. Test a gradient with a dy of ordinary size.
"""
from math import exp, sin

e = [exp(2 * sin(7 * j)) for j in range(512)]
y = [e_j / sum(e) for e_j in e]

# What the check feeds in: dy.
p = [exp(y_j) for y_j in y]
dy = [(p[j] / sum(p) - (j == 3)) / 256 for j in range(512)]  # wrong
dy = [sin(j * j) for j in range(512)]  # right

s = sum(y_j * dy_j for y_j, dy_j in zip(y, dy))
right = [y_j * (dy_j - s) for y_j, dy_j in zip(y, dy)]
without_s = [y_j * dy_j for y_j, dy_j in zip(y, dy)]

# What the check asks: are they close?
close = [abs(a - b) <= 1e-5 + 1.3e-6 * abs(b) for a, b in zip(without_s, right)]
assert not all(close), "the check accepts a gradient without s"
