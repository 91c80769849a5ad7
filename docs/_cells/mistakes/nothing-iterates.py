"""A row is longer than a block may be. Does Triton cut it into pieces?

The article says so (A9). A kernel does what is written: one load here, however long the row. What does not fit into registers spills.
"""
@triton.jit
def row_max(x_ptr, m_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + cols, mask=cols < n, other=-inf)
    tl.store(m_ptr, tl.max(x, axis=0))


loads = []
for n in [4, 64]:
    with record() as trace:
        row_max[(1,)](Tensor([0.0] * n), empty((1,), name="m"), n, BLOCK=n)
    loads.append(len([each for each in trace.accesses if each.kind == "load"]))

expect(loads, [1, 64 // 4])  # wrong
expect(loads, [1, 1])  # right
