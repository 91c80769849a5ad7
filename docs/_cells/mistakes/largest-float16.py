"""The largest float16 as exp(11)

An article says so to explain where a plain exponential overflows. The logarithm of 65,504 is 11.09; exp(11) is well within.
"""
from math import exp

expect(exp(11), 65504, within=10)  # wrong
expect(exp(11.0898), 65504, within=10)  # right
