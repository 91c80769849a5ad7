"""One kernel, several operations

Let OP be LOG_SOFTMAX, or ODDS, which is made here: softmax with another last line. Then write one of your own.
"""
# code: src/softmax_site/computed/one_row.py:kernel
# given: src/triton_softmax/operations/softmax.py: SOFTMAX
# given: src/triton_softmax/operations/softmax.py: LOG_SOFTMAX
# right: y = softmax(x)
# right: y = log_softmax(x)
# right: y = [[p / (1 - p) if p < 1 else inf for p in row] for row in softmax(x)]  # odds
# again: with negative numbers far apart
#   [1.0, 2.0, 3.0], [1.0, 3.0, 5.0]
#   [-901.0, -802.0, -703.0], [-1.0, -999.0, -500.0]
@triton.jit
def odds(values, terms, m, totals):
    return terms[0] / (totals[0] - terms[0])


ODDS = replace(SOFTMAX, name="odds", finish=odds)

x = Tensor([[1.0, 2.0, 3.0], [1.0, 3.0, 5.0]], name="x")
y = empty((2, 3), name="y")
one_row_kernel[(2,)]((x,), y, 3, OP=SOFTMAX, BLOCK=4)
