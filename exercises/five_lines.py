"""Five lines of PyTorch

kind: predict
level: 2
minutes: 5
teaches: what one kernel per line costs

A PyTorch softmax has five lines, each its own kernel: the row's maximum, subtract it, exponentials,
the row's sum, divide. How many elements do they *read*, all together, for 10 rows and 100 columns?

hint: Two of the lines read a matrix and a column of row values; the other three a matrix.

hint: [Naive](../kernels/naive.md) counts 5MN + 2M.
"""

# start
ANSWER = ...
# solved
ANSWER = 5020
# end

# ---- check ----
from softmax_playground.checker.judge import number


def check(names, lab):
    rows, columns = 10, 100
    matrix = rows * columns
    read = [matrix, matrix + rows, matrix, matrix, matrix + rows]
    said = f"Right: {' + '.join([str(each) for each in read])}. One kernel reads {matrix}."
    return number(names, sum(read), said)


WRONG = [
    (5000, "Subtracting and dividing also read the row's maximum and sum: M elements each."),
    (7000, "7MN is what Triton's tutorial says; its own lines add up to 5MN + 2M."),
    (1000, "That is one fused kernel. Each line here reads its inputs from memory."),
    (8040, "That includes what they write, 3MN + 2M."),
    (3020, "Those are the elements that are written, 3MN + 2M."),
    (20080, "Elements, not bytes."),
    (5010, "Two lines read a column of row values: subtract and divide."),
]
