"""The kernels: one per memory layout (a geometry), each for any operation.

`triton_softmax.operations` defines what they compute; `triton_softmax.plan` launches them. The
table counts the elements moved for a matrix of M rows and N columns, forward and backward;
`softmax_bench.traffic` derives and tests these counts:

| geometry | module | idea | forward | backward |
| --- | --- | --- | --- | --- |
| `packed_rows` | `tile` | several short rows per program | 2MN | 3MN |
| `aligned_rows` | `tile` | wide accesses whatever the row stride | 2MN | 3MN |
| `split_rows` | `split_rows` | a long row over several programs, still read once | 2MN | 3MN |
| `strided` | `strided` | non-inner reductions: columns side by side | 2MN | 3MN |
| `split_strided` | `split_strided` | a long column over several programs | 2MN | 3MN |
| `two_pass` | `two_pass` | a very long column in chunks, or a small slice, read twice | 3MN | 5MN |

`modified_rows` is one more geometry, for rows with score modifiers: scale, soft cap, bias, masks.

`row_scalars` holds the small kernels around a loss: they prepare the targets, and multiply a
gradient by the incoming gradient of each row.

`token_rows` computes log-probabilities of tokens, entropies of rows, and their gradient.

`device` holds the functions that kernels share. Kernels that only teach are in `softmax_tutorial`.
"""
