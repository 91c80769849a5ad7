"""Printed row sums 0.2036 and 0.2597. Does the printed gradient follow from them?

They are not the sums of the printed products: with them a row of the gradient would not add up to 0. The post's final gradient is right (D4).
"""
y = [[0.0900, 0.2447, 0.6652], [0.0159, 0.1173, 0.8668]]
dy = [[0.1, 0.2, 0.7], [0.2, 0.3, 0.5]]
s = [0.2036, 0.2597]  # wrong
s = [sum(a * b for a, b in zip(u, v)) for u, v in zip(y, dy)]  # right
dx = [[a * (b - t) for a, b in zip(u, v)] for u, v, t in zip(y, dy, s)]
show(dx, "dx")
expect([sum(row) for row in dx], [0.0, 0.0])
