"""Predict. y = softmax(x) = (0.2, 0.3, 0.5). What is the derivative of y[0] with
respect to x[1]?"""

ANSWER = -0.06
