"""Equal kernel, equal time, and one plot shows twice the GB/s

The tutorial counts each element once (B4), the article twice (A9). The kernel reads it and writes it.
"""
@triton.jit
def softmax(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=-inf)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * n + cols, e / tl.sum(e, axis=0), mask=cols < n)


x, y = Tensor([[1.0, 2.0, 3.0], [1.0, 3.0, 5.0]], name="x"), empty((2, 3), name="y")
with record() as trace:
    softmax[(2,)](x, y, 3, BLOCK=4)

seconds = 1e-6
speed = 4 * x.numel() / seconds  # wrong
speed = 4 * (x.numel() + y.numel()) / seconds  # right
expect(speed, (trace.bytes("load") + trace.bytes("store")) / seconds)
