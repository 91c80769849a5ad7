"""Padding with −10⁶ works, until scores are lower than that

The padding becomes the maximum and takes all of the probability. Use −∞. Published solutions of the puzzle pad with −10⁶ (C3); FlashInfer used −5 · 10⁴ (flashinfer-ai/flashinfer#4401).
"""
@triton.jit
def softmax(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + cols, mask=cols < n, other=-1.0e6)  # wrong
    x = tl.load(x_ptr + cols, mask=cols < n, other=-inf)  # right
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + cols, e / tl.sum(e, axis=0), mask=cols < n)


x, y = Tensor([-3.0e6, -3.0e6, -3.0e6], name="x"), empty((3,), name="y")
softmax[(1,)](x, y, 3, BLOCK=4)
expect(y, [1 / 3, 1 / 3, 1 / 3])
lowest = Tensor([-3.4028234663852886e38] * 3, name="lowest")  # of float32
softmax[(1,)](lowest, y, 3, BLOCK=4)
expect(y, [1 / 3, 1 / 3, 1 / 3])
