"""Three programs hold one row, and you say who comes first

Each line of x is a chunk of one row. Run in turn, program 0 finds only its own summary and reads the other chunks itself; program 2 finds all. Choose another order, or launch only two programs, with [(2,)] in the call: every program that runs finishes, and only the third chunk stays unwritten.
"""
# code: src/softmax_tutorial/split_rows_simple.py:summary
# code: src/softmax_tutorial/split_rows_simple.py:kernel
# right: y = [softmax(flat(x))[i : i + 2] for i in range(0, 6, 2)]  # softmax of the row
# right: y = [softmax(flat(x))[2 * i : 2 * i + 2] if i < launched else [nan, nan] for i in range(3)]  # softmax of the row, as far as programs were launched
# right: y = [softmax(row) for row in x if len(row) == 5]  # softmax of both rows
# again: with two rows of five numbers
#   [[1.0, 2.0], [3.0, 0.0], [5.0, 4.0]]
#   [[-901.0, -902.0, -803.0, -700.0, -950.0], [4.0, 1.0, -901.0, 0.0, 950.0]]
#   empty((3, 2)
#   empty((2, 5)
#   [[0], [0], [0]]
#   [[0], [0], [0], [0], [0], [0]]
#   = 6, 3, 1
#   = 5, 3, 1
#   _kernel[(3,)]
#   _kernel[(6,)]
# try: let all publish first
#   order():
#   order(0, 1, 2):
#   Each publishes its word and is stopped. Then all words are there, and each chunk is read once.
# try: program 2 first, alone
#   order():
#   order(2, 2, 2, 2, 2, 2, 2):
#   It polls, gives up, computes the two missing parts itself, and ends before the others begin.
# try: program 0 comes last
#   order():
#   order(2, 2, 2, 1, 1, 1, 0):
#   Programs 2 and 1 have polled in vain before it publishes. Both read its chunk themselves.
x, y = Tensor([[1.0, 2.0], [3.0, 0.0], [5.0, 4.0]], name="x"), empty((3, 2), name="y")
words = Tensor([[0], [0], [0]], int64, name="words")  # the bits of a pair each: m, d

n_cols, n_chunks, max_polls = 6, 3, 1
with order():
    split_rows_simple_kernel[(3,)](x, y, words, n_cols, n_chunks, max_polls, BLOCK=2)
