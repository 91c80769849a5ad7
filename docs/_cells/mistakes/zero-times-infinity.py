"""One class is impossible, and the entropy of all is NaN

A logit of −∞ gives 0 · (−∞), which is NaN. In an entropy, 0 · log 0 counts as 0. Reported in pytorch/pytorch#40553 and huggingface/trl#7221.
"""
@triton.jit
def entropy(x_ptr, h_ptr):
    x = tl.load(x_ptr + tl.arange(0, 4))
    distance = x - tl.max(x, axis=0)
    e = tl.exp(distance)
    d = tl.sum(e, axis=0)
    term = e * distance  # wrong
    term = e * tl.where(e == 0, 0.0, distance)  # right
    tl.store(h_ptr, tl.log(d) - tl.sum(term, axis=0) / d)


x = Tensor([2.0, 1.0, -inf, 0.0], name="x")
h = empty((1,), name="h")
entropy[(1,)](x, h)
expect(h, [0.8324])
