"""Predict. What is the largest whole number n for which exp(n) is finite in float32?"""

ANSWER = 88
