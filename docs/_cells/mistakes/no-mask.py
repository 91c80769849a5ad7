"""A row of 3 in a tile of 4: who owns element 3?

A tile is a power of two, a row need not be. Without a mask the kernel accesses memory beyond the row. The program is ours.
"""
@triton.jit
def twice(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + cols)  # wrong
    tl.store(y_ptr + cols, 2 * x)  # wrong
    x = tl.load(x_ptr + cols, mask=cols < n)  # right
    tl.store(y_ptr + cols, 2 * x, mask=cols < n)  # right


x, y = Tensor([1.0, 2.0, 3.0], name="x"), empty((3,), name="y")
twice[(1,)](x, y, 3, BLOCK=4)
expect(y, [2.0, 4.0, 6.0])
