"""The gradient of attention is NaN where all scores are far below 0

A key past the end has the score 0. Its weight, exp(0 − lse), is infinite if lse is below −89, and times the key, which is 0, it is NaN. Forward the score is −∞ there; backward the weight must be 0. The program is ours.
"""
from math import exp, log


@triton.jit
def dq_kernel(q_ptr, k_ptr, v_ptr, do_ptr, lse, delta, dq_ptr, n, KEYS: tl.constexpr):
    q, do, keys = tl.load(q_ptr), tl.load(do_ptr), tl.arange(0, KEYS)
    k = tl.load(k_ptr + keys, mask=keys < n, other=0.0)
    v = tl.load(v_ptr + keys, mask=keys < n, other=0.0)
    y = tl.exp(q * k - lse)  # wrong
    y = tl.where(keys < n, tl.exp(q * k - lse), 0.0)  # right
    dx = y * (do * v - delta)
    tl.store(dq_ptr, tl.sum(dx * k, axis=0))


for score in (2.0, -100.0):  # of the first two keys; the third has one less
    q, k = Tensor([1.0]), Tensor([score, score, score - 1.0])
    v, do = Tensor([1.0, 2.0, 4.0]), Tensor([1.0])
    lse, share = score + log(2 + exp(-1)), 1 / (2 + exp(-1))
    delta, dq = share * (1.0 + 2.0 + 4.0 * exp(-1)), empty((1,), name="dq")
    dq_kernel[(1,)](q, k, v, do, lse, delta, dq, 3, KEYS=4)
    expect(dq, [-share * exp(-1) * (4.0 - delta)])
