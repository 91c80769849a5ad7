"""Three programs hold one row

A chunk stands in each line of x. Programs run one after another here, so program 0 finds no word but its own and reads the other chunks itself, program 2 finds all. Launch only two, by [(2,)]: they still finish, and the third chunk stays unwritten.
"""
# code: src/softmax_tutorial/split_rows_simple.py:summary
# code: src/softmax_tutorial/split_rows_simple.py:kernel
# right: y = [softmax(flat(x))[i : i + 2] for i in range(0, 6, 2)]  # softmax of the row
x, y = Tensor([[1.0, 2.0], [3.0, 0.0], [5.0, 4.0]], name="x"), empty((3, 2), name="y")
words = Tensor([[0], [0], [0]], int64, name="words")  # a pair each: m above, d below

n_cols, n_chunks, max_polls = 6, 3, 1
split_rows_simple_kernel[(3,)](x, y, words, n_cols, n_chunks, max_polls, BLOCK=2)
