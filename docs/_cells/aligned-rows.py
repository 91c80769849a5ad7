"""Rows of five elements, in vectors of four

Below x each group of squares is 16 bytes. Step through: the body takes whole groups, if a row has one, and a small tile holds head and tail.
"""
# right: y = softmax(x)
# again: with negative numbers far apart
#   [1.0, 3.0, 0.0, 2.0, 4.0]
#   [-1.0, -903.0, -700.0, -802.0, -94.0]
# try: begin the body with the row
#   first = (begin + VECTOR - 1) // VECTOR * VECTOR
#   first = begin + 0
#   Still right, with as few bytes. But its lanes are no longer whole groups, and a GPU would load each element by itself.
# try: forget the tail
#   tl.where(lane < VECTOR, place < first, place < begin + n)
#   tl.where(lane < VECTOR, place < first, False)
#   What lies behind the last whole vector is missing in the sum, and is never written.
@triton.jit
def softmax(x_ptr, y_ptr, n, VECTOR: tl.constexpr, BLOCK: tl.constexpr):
    begin = tl.program_id(0) * n
    first = (begin + VECTOR - 1) // VECTOR * VECTOR
    last = (begin + n) // VECTOR * VECTOR
    body = first + tl.arange(0, BLOCK)
    x_body = tl.load(x_ptr + body, mask=body < last, other=-inf)

    lane = tl.arange(0, 2 * VECTOR)
    place = tl.where(lane < VECTOR, begin + lane, last + lane - VECTOR)
    edge = tl.where(lane < VECTOR, place < first, place < begin + n)
    x_edge = tl.load(x_ptr + place, mask=edge, other=-inf)

    m = tl.maximum(tl.max(x_body, axis=0), tl.max(x_edge, axis=0))
    e_body, e_edge = tl.exp(x_body - m), tl.exp(x_edge - m)
    d = tl.sum(e_body, axis=0) + tl.sum(e_edge, axis=0)
    tl.store(y_ptr + body, e_body / d, mask=body < last)
    tl.store(y_ptr + place, e_edge / d, mask=edge)


row = [1.0, 3.0, 0.0, 2.0, 4.0]
x = Tensor([row, row[::-1], row, row[::-1]], name="x")
y = empty((4, 5), name="y")
softmax[(4,)](x, y, 5, VECTOR=4, BLOCK=8)
