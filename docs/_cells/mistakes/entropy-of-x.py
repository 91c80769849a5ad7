"""Logits near a million: the entropy is 0.9375 but should be 0.9475

The entropy is log d − a / d. With a summed over e · (x − m) that is exact enough; summed over e · x, it is a difference of two numbers near a million, where float32 resolves sixteenths. The program is ours.
"""
@triton.jit
def entropy(x_ptr, h_ptr):
    x = tl.load(x_ptr + tl.arange(0, 4))
    m = tl.max(x, axis=0)
    e = tl.exp(x - m)
    d = tl.sum(e, axis=0)
    h = m + tl.log(d) - tl.sum(e * x, axis=0) / d  # wrong
    h = tl.log(d) - tl.sum(e * (x - m), axis=0) / d  # right
    tl.store(h_ptr, h)


x = Tensor([1e6, 1e6 - 1, 1e6 - 2, 1e6 - 3], name="x")
h = empty((1,), name="h")
entropy[(1,)](x, h)
expect(h, [0.9475])
