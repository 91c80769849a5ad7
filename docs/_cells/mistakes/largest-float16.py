"""The largest float16 is 65,504. Is that exp(11)?

exp(11) is 59,874, and 65,504 is exp(11.0898). The article among our sources says "roughly exp(11)", which is no mistake, and too loose for a bound.
"""
from math import exp

expect(exp(11), 65504, within=10)  # wrong
expect(exp(11.0898), 65504, within=10)  # right
