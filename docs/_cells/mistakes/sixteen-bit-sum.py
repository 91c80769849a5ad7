"""2,048 + 1 + 1 + 1 + 1 is still 2,048

float16 has 11 bits of precision, so 2,048 + 1 rounds back to 2,048 each time. Add in float32 and round once. Reported in huggingface/candle#3727.
"""
@triton.jit
def total(x_ptr, s_ptr, n):
    s = tl.zeros((), tl.float16)  # wrong
    s = tl.zeros((), tl.float32)  # right
    for i in range(n):
        s += tl.load(x_ptr + i)
    tl.store(s_ptr, s)


x = Tensor([2048.0, 1.0, 1.0, 1.0, 1.0], dtype=float16, name="x")
s = empty((1,), dtype=float16, name="s")
total[(1,)](x, s, 5)
expect(s, [2052.0])
