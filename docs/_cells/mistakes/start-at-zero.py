"""Random rows pass, (−1000, −1001, −1002) gives NaN

The running maximum stays 0, so every exponential underflows. Start at −∞, the identity of the merge. Published solutions of the puzzles start at 0 (C1, C2).
"""
@triton.jit
def long_softmax(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    m, d = 0.0, 0.0  # wrong
    m, d = -inf, 0.0  # right
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n, other=-inf)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        d = d * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new), axis=0)
        m = m_new
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n, other=-inf)
        tl.store(y_ptr + cols, tl.exp(x - m) / d, mask=cols < n)


x, y = Tensor([-1000.0, -1001.0, -1002.0], name="x"), empty((3,), name="y")
long_softmax[(1,)](x, y, 3, BLOCK=2)
expect(y, [0.6652, 0.2447, 0.0900])
lowest = Tensor([-3.4028234663852886e38] * 3, name="lowest")  # of float32
long_softmax[(1,)](lowest, y, 3, BLOCK=2)
expect(y, [1 / 3, 1 / 3, 1 / 3])
