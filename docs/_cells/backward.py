"""The gradient of the worked example

Output and arriving gradient are read, the gradient of x is written. Drop the sum from the line that computes dx: its rows then add up to s, no longer to 0.
"""
# code: src/softmax_tutorial/single_block.py:backward
# right: dx = softmax_backward(y, dy)
# right: dx = [[b - 2.718281828 ** a * sum(dy[i]) for a, b in zip(y[i], dy[i])] for i in range(len(y))]  # the gradient of log_softmax
# again: for log_softmax
#   LOG=False
#   LOG=True
#   [0.09003057, 0.24472847, 0.66524096], [0.01587624, 0.11731043, 0.86681333]
#   [-2.4076, -1.4076, -0.4076], [-4.1429, -2.1429, -0.1429]
y = Tensor([[0.09003057, 0.24472847, 0.66524096], [0.01587624, 0.11731043, 0.86681333]], name="y")
dy = Tensor([[0.1, 0.2, 0.7], [0.2, 0.3, 0.5]], name="dy")
dx = empty((2, 3), name="dx")

softmax_backward_single_block_kernel[(2,)](
    y, dy, dx, y.stride(0), dy.stride(0), dx.stride(0), 3, LOG=False, BLOCK_SIZE=4
)
for row in dx.tolist():
    print("a row of dx adds up to", round(sum(row), 4))
