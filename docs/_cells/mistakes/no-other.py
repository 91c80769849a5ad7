"""A mask without `other`

What the mask leaves out is then anything: NaN here, on a GPU often 0, which a maximum of negative numbers must not meet.
"""
@triton.jit
def row_max(x_ptr, m_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + cols, mask=cols < n)  # wrong
    x = tl.load(x_ptr + cols, mask=cols < n, other=-inf)  # right
    m = tl.max(x, axis=0)
    tl.store(m_ptr, m + tl.log(tl.sum(tl.exp(x - m), axis=0)))


x, lse = Tensor([-1.0, -2.0, -3.0], name="x"), empty((1,), name="lse")
row_max[(1,)](x, lse, 3, BLOCK=4)
expect(lse, [-0.5924])
