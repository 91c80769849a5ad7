"""Right for a contiguous matrix, wrong for a slice of one

The length says where a row ends, the stride where the next one begins. Reported in flagos-ai/FlagGems#5723 and NVIDIA/TransformerEngine#2734.
"""
@triton.jit
def copy(x_ptr, y_ptr, x_stride, n, BLOCK: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n)  # wrong
    x = tl.load(x_ptr + row * x_stride + cols, mask=cols < n)  # right
    tl.store(y_ptr + row * n + cols, x, mask=cols < n)


x = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], strides=(5, 1), name="x")
y = empty((2, 3), name="y")
copy[(2,)](x, y, x.stride(0), 3, BLOCK=4)
expect(y, x)
