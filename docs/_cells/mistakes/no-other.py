"""The load has a mask, and the log-sum-exp is NaN

Without `other`, a masked lane holds any value: NaN here, often 0 on a GPU, which is also wrong for a row of negative numbers. Reported in flagos-ai/FlagGems#3716.
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
lowest = Tensor([-3.4028234663852886e38] * 3, name="lowest")  # of float32
row_max[(1,)](lowest, lse, 3, BLOCK=4)
expect(lse, [-3.4028234663852886e38])
