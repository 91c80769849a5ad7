"""The block is the next power of two, and the last column stays empty

The block must cover the columns. Triton's first tutorial says "greater than the number of rows" (B2).
"""
@triton.jit
def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * n + cols, mask=cols < n)
    tl.store(y_ptr + tl.program_id(0) * n + cols, x, mask=cols < n)


x = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], name="x")
y = empty((2, 3), name="y")
block = triton.next_power_of_2(x.shape[0])  # wrong
block = triton.next_power_of_2(x.shape[1])  # right
copy[(2,)](x, y, 3, BLOCK=block)
expect(y, x)
