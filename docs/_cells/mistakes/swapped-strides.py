"""Right as long as x and y have the same strides

The call passes the stride of y first. Triton's first tutorial prints its kernel with both orders (B2).
"""
@triton.jit
def copy(y_ptr, x_ptr, stride_xm, stride_ym, n, BLOCK: tl.constexpr):  # wrong
def copy(y_ptr, x_ptr, stride_ym, stride_xm, n, BLOCK: tl.constexpr):  # right
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_xm + cols, mask=cols < n)
    tl.store(y_ptr + row * stride_ym + cols, x, mask=cols < n)


x = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], strides=(5, 1), name="x")
y = empty((2, 3), name="y")
copy[(2,)](y, x, y.stride(0), x.stride(0), 3, BLOCK=4)
expect(y, x)
