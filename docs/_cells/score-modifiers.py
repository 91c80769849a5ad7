"""Scaled, causal scores with a sink

What changes if the sink becomes -inf, or 3? How many bytes are read without the causal mask (kept = cols < 4)?
"""
# right: y = [softmax([scale * v for v in x[i][: i + 1]], sink) + [0.0] * (3 - i) for i in range(4)]  # softmax of the kept scores
# right: y = [softmax([scale * v for v in row], sink) for row in x]  # softmax of all scores
# again: with negative numbers far apart
#   [1.0, 2.0, 3.0, 9.0], [4.0, 0.0, 2.0, 6.0]
#   [-900.0, 2.0, 3.0, 9.0], [800.0, -900.0, 2.0, 6.0]
# again: with a small sink
#   0.5, 0.0
#   0.5, -1000.0
#   [1.0, 9.0, 9.0, 9.0]
#   [-1500.0, 9.0, 9.0, 9.0]
rows = [[1.0, 9.0, 9.0, 9.0], [2.0, 0.0, 9.0, 9.0], [1.0, 2.0, 3.0, 9.0], [4.0, 0.0, 2.0, 6.0]]
scale, sink = 0.5, 0.0


@triton.jit
def softmax(x_ptr, y_ptr, scale, sink):
    row, cols = tl.program_id(0), tl.arange(0, 4)
    kept = cols <= row
    x = tl.load(x_ptr + 4 * row + cols, mask=kept, other=0.0)
    x = tl.where(kept, scale * x, -inf)
    m = tl.maximum(tl.max(x, axis=0), sink)
    e = tl.exp(x - m)
    d = tl.sum(e, axis=0) + tl.exp(sink - m)
    tl.store(y_ptr + 4 * row + cols, e / d)


x, y = Tensor(rows, name="x"), empty((4, 4), name="y")
softmax[(4,)](x, y, scale, sink)
