"""Two last digits

A blog post prints a product as 0.4656 and a denominator as 1.1536. Rounded from the numbers themselves, both end in 7.
"""
from math import exp

e = [exp(x - 3.0) for x in [1.0, 2.0, 3.0]]
product = e[2] / sum(e) * 0.7
d = sum(exp(x - 5.0) for x in [1.0, 3.0, 5.0])

printed = [0.4656, 1.1536]  # wrong
printed = [0.4657, 1.1537]  # right
expect(printed, [product, d], within=0.5e-4)
