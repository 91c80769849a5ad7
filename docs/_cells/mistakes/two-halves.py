"""exp(x − m) = exp(x − m/2) / exp(m/2) on paper. Why NaN in float32?

Both halves overflow, which the shift was to prevent. The puzzle's text hints at this form (C1).
"""
@triton.jit
def shifted(x_ptr, e_ptr, m):
    x = tl.load(x_ptr + tl.arange(0, 2))
    e = tl.exp(x - m / 2) / tl.exp(tl.full((), m / 2, tl.float32))  # wrong
    e = tl.exp(x - m)  # right
    tl.store(e_ptr + tl.arange(0, 2), e)


x, e = Tensor([199.0, 200.0], name="x"), empty((2,), name="e")
shifted[(1,)](x, e, 200.0)
expect(e, [0.3679, 1.0])
