"""0.4656 or 0.4657? 1.1536 or 1.1537?

The post multiplies and adds factors that it has rounded to four digits, for which 0.4656 and 1.1536 are right. Rounded once, at the end, both end in 7 (D4).
"""
from math import exp

e = [exp(x - 3.0) for x in [1.0, 2.0, 3.0]]
f = [exp(x - 5.0) for x in [1.0, 3.0, 5.0]]
product = round(e[2] / sum(e), 4) * 0.7  # wrong
d = sum(round(f_j, 4) for f_j in f)  # wrong
product = e[2] / sum(e) * 0.7  # right
d = sum(f)  # right

print(product, d)
expect([product, d], [0.4657, 1.1537], within=0.5e-4)
