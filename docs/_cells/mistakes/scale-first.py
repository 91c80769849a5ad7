"""exp2(x · log2(e) − m · log2(e)) is wrong in the third digit

Two large products are rounded before they are subtracted. Subtract first: the difference of neighbours is exact. A fused multiply-add still rounds one product (deepseek-ai/FlashMLA#68).
"""
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def shifted(x_ptr, e_ptr, m):
    x = tl.load(x_ptr + tl.arange(0, 2))
    e = tl.exp2(x * LOG2E - tl.full((), m, tl.float32) * LOG2E)  # wrong
    e = tl.exp2((x - m) * LOG2E)  # right
    tl.store(e_ptr + tl.arange(0, 2), e)


x, e = Tensor([99999.0, 100000.0], name="x"), empty((2,), name="e")
shifted[(1,)](x, e, 100000.0)
expect(e, [0.3679, 1.0])
