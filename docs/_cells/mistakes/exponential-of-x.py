"""The maximum is subtracted, and softmax of (100, 101) is NaN

z = x − m is computed, and then x is exponentiated, which overflows float32 from 88.73 on. So do the first version of Triton's tutorial (B1) and Triton's announcement (triton-lang/triton#230).
"""
@triton.jit
def softmax(x_ptr, y_ptr):
    x = tl.load(x_ptr + tl.arange(0, 2))
    z = x - tl.max(x, axis=0)
    e = tl.exp(x)  # wrong
    e = tl.exp(z)  # right
    tl.store(y_ptr + tl.arange(0, 2), e / tl.sum(e, axis=0))


x, y = Tensor([100.0, 101.0], name="x"), empty((2,), name="y")
softmax[(1,)](x, y)
expect(y, [0.2689, 0.7311])
