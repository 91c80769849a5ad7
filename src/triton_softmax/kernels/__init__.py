"""The kernels: one for each way that rows lie in memory, all for any operation.

What is computed is an operation, one of `triton_softmax.operations`; `triton_softmax.plan` launches
the kernels. Elements moved for a matrix of M rows and N columns, in the forward and the backward
pass; `softmax_bench.traffic` derives and tests them:

| geometry | module | idea | forward | backward |
| --- | --- | --- | --- | --- |
| `packed_rows` | `tile` | several short rows per program | 2MN | 3MN |
| `aligned_rows` | `tile` | wide accesses whatever the row stride | 2MN | 3MN |
| `split_rows` | `split_rows` | a long row over several programs, still read once | 2MN | 3MN |
| `strided` | `strided` | elements that lie apart: columns side by side | 2MN | 3MN |
| `split_strided` | `split_strided` | a long column over several programs | 2MN | 3MN |
| `two_pass` | `two_pass` | a very long one, walked twice in chunks | 3MN | 5MN |

`masked_rows` is a geometry of its own, for rows that are scaled, capped, biased or masked on their
way to an operation.

`row_scalars` are small kernels around a loss: what it has to know of its targets before it reads a
row; the multiplication of a gradient by what arrived for its rows; and the elements of a result
whose summaries are known already, kept from the forward pass or come from other GPUs.

`device` are the functions that kernels call. The kernels that only teach are in `softmax_tutorial`.
"""
