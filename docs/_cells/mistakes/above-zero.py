"""A log-probability of +0.055: more likely than certain

Stored in 16 bits, the log-sum-exp was rounded below the logit that it contains. Keep it in float32. The program is ours.
"""
@triton.jit
def log_probability(x_ptr, lse_ptr, out_ptr):
    tl.store(out_ptr, tl.load(x_ptr) - tl.load(lse_ptr))


x = Tensor([20.18], name="x")
lse = Tensor([20.1801], dtype=bfloat16, name="lse")  # wrong
lse = Tensor([20.1801], dtype=float32, name="lse")  # right
out = empty((1,), name="log p")
log_probability[(1,)](x, lse, out)
expect(out, [-0.0001], within=1e-5)
