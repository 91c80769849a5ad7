"""Loss and gradient from one read

Two tokens with three classes each. Each row of dx adds up to 0. Move a target, or let the first logit be 1000: the loss stays finite.
"""
# right: loss = [logsumexp(row) - row[t] for row, t in zip(x, target)]  # the cross-entropy
# right: dx = [[p - (j == t) for j, p in enumerate(row)] for row, t in zip(softmax(x), target)]  # its gradient
# again: with negative numbers far apart
#   [1.0, 2.0, 3.0], [1.0, 3.0, 5.0]
#   [-901.0, -802.0, -703.0], [-1.0, -999.0, -500.0]
# try: load the target's logit
#   tl.sum(tl.where(cols == target, x, 0.0), axis=0)
#   tl.load(x_ptr + row * n + target)
#   Four bytes more for each row, and no comparison in each lane.
# try: skip the shift
#   m + tl.log(d)
#   tl.log(d)
#   The sum is that of shifted exponentials, so the loss is too small by the maximum. The gradient is right.
@triton.jit
def cross_entropy(x_ptr, target_ptr, loss_ptr, dx_ptr, n, BLOCK: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=-inf)
    target = tl.load(target_ptr + row)
    m = tl.max(x, axis=0)
    e = tl.exp(x - m)
    d = tl.sum(e, axis=0)
    picked = tl.sum(tl.where(cols == target, x, 0.0), axis=0)
    tl.store(loss_ptr + row, m + tl.log(d) - picked)
    dx = e / d - (cols == target).to(tl.float32)
    tl.store(dx_ptr + row * n + cols, dx, mask=cols < n)


x = Tensor([[1.0, 2.0, 3.0], [1.0, 3.0, 5.0]], name="x")
target = Tensor([2, 0], int64, name="target")
loss, dx = empty((2,), name="loss"), empty((2, 3), name="dx")
cross_entropy[(2,)](x, target, loss, dx, 3, BLOCK=4)
