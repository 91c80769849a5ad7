"""Predict. A row of 1,000 numbers is read by one tile, whose size is a power of two. How many of
its lanes does the mask switch off?"""

ANSWER = 24
