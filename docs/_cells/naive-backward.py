"""Four lines, four kernels

Two temporaries go to memory and back. Let one kernel do the last two lines: three launches are left, and one temporary is gone.
"""
# right: dx = softmax_backward(y, dy)
@triton.jit
def multiply(a_ptr, b_ptr, c_ptr, n, BLOCK: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    a = tl.load(a_ptr + row * n + cols, mask=cols < n)
    b = tl.load(b_ptr + row * n + cols, mask=cols < n)
    tl.store(c_ptr + row * n + cols, a * b, mask=cols < n)


@triton.jit
def row_sum(p_ptr, s_ptr, n, BLOCK: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    p = tl.load(p_ptr + row * n + cols, mask=cols < n, other=0.0)
    tl.store(s_ptr + row, tl.sum(p, axis=0))


@triton.jit
def subtract(dy_ptr, s_ptr, r_ptr, n, BLOCK: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    dy = tl.load(dy_ptr + row * n + cols, mask=cols < n)
    tl.store(r_ptr + row * n + cols, dy - tl.load(s_ptr + row), mask=cols < n)


y = Tensor([
    [0.09003057, 0.24472847, 0.66524096],
    [0.01587624, 0.11731043, 0.86681333],
], name="y")
dy = Tensor([[0.1, 0.2, 0.7], [0.2, 0.3, 0.5]], name="dy")
p, s = empty((2, 3), name="p"), empty((2, 1), name="s")
r, dx = empty((2, 3), name="r"), empty((2, 3), name="dx")

multiply[(2,)](y, dy, p, 3, BLOCK=4)
row_sum[(2,)](p, s, 3, BLOCK=4)
subtract[(2,)](dy, s, r, 3, BLOCK=4)
multiply[(2,)](y, r, dx, 3, BLOCK=4)
