"""The example with your own numbers

Forward and backward in plain Python, row by row. Change X or dY.
"""
# right: Y = softmax(X)
# right: dX = softmax_backward(softmax(X), dY)  # its gradient
# again: with negative numbers far apart
#   [1.0, 2.0, 3.0], [1.0, 3.0, 5.0]
#   [-901.0, -802.0, -1703.0], [-1.0, -999.0, 950.0]
from math import exp

X = [[1.0, 2.0, 3.0], [1.0, 3.0, 5.0]]
dY = [[0.1, 0.2, 0.7], [0.2, 0.3, 0.5]]

Y, dX = [], []
for x, dy in zip(X, dY):
    m = max(x)
    e = [exp(x_j - m) for x_j in x]
    d = sum(e)
    y = [e_j / d for e_j in e]
    s = sum(y_j * dy_j for y_j, dy_j in zip(y, dy))
    Y.append(y)
    dX.append([y_j * (dy_j - s) for y_j, dy_j in zip(y, dy)])
    print("m =", m, " d =", round(d, 4), " s =", round(s, 4))

show(Y, "Y")
show(dX, "dX")
