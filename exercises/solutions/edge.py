"""Predict. Rows of 33 float32 numbers lie one after the other, and the first starts on a vector of
16 bytes. How many numbers of row 3 come before its first whole vector?"""

ANSWER = 1
