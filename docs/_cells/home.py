"""A softmax kernel that runs in this page

One program for each row. Edit it, or break it with a click; a second click mends it.
"""
# right: y = softmax(x)
# again: with negative numbers far apart
#   [1.0, 2.0, 3.0], [1001.0, 1003.0, 1005.0]
#   [-901.0, -802.0, -703.0], [-1.0, -999.0, -500.0]
# try: skip the maximum
#   tl.exp(x - m)
#   tl.exp(x)
#   exp(1001) is infinite, and ∞ / ∞ is NaN.
# try: skip the mask
#   , mask=cols < n, other=-inf)
#   )
#   Row 0 takes 1001 from the next row and becomes zeros. Row 1 reads past the end of x.
# try: read x twice
#   tl.exp(x - m)
#   tl.exp(tl.load(x_ptr + row * n + cols, mask=cols < n, other=-inf) - m)
#   Twice the bytes for the same result.
@triton.jit
def softmax(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=-inf)
    m = tl.max(x, axis=0)
    e = tl.exp(x - m)
    y = e / tl.sum(e, axis=0)
    tl.store(y_ptr + row * n + cols, y, mask=cols < n)

x = Tensor([[1.0, 2.0, 3.0], [1001.0, 1003.0, 1005.0]], name="x")
y = empty((2, 3), name="y")
softmax[(2,)](x, y, 3, BLOCK=4)
