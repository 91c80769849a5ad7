"""The three outputs for (−1, −2, −3) add up to 0.36

Zero is neutral in a sum. Here it is the maximum, and adds exp(0 − 0) to the denominator. Found in a template for softmax kernels (vllm-project/vllm#55009).
"""
@triton.jit
def softmax(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + cols, mask=cols < n, other=0.0)  # wrong
    x = tl.load(x_ptr + cols, mask=cols < n, other=-inf)  # right
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + cols, e / tl.sum(e, axis=0), mask=cols < n)


x, y = Tensor([-1.0, -2.0, -3.0], name="x"), empty((3,), name="y")
softmax[(1,)](x, y, 3, BLOCK=4)
expect(y, [0.6652, 0.2447, 0.0900])
lowest = Tensor([-3.4028234663852886e38] * 3, name="lowest")  # of float32
softmax[(1,)](lowest, y, 3, BLOCK=4)
expect(y, [1 / 3, 1 / 3, 1 / 3])
