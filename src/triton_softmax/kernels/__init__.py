"""The kernels, one idea per file, as a ladder: each rung changes one thing.

Elements moved for a matrix of M rows and N columns, in the forward and the backward pass;
`softmax_bench.traffic` derives and tests them.

| module | idea | forward | backward |
| --- | --- | --- | --- |
| `naive` | PyTorch lines, everything through memory | 8MN + 4M | 9MN + 2M |
| `three_loops` | tiles in registers: maximum, denominator, result | 4MN | (two loops) |
| `two_loops` | maximum and denominator in one loop, by the online recurrence | 3MN | 5MN |
| `single_block` | the whole row in registers | 2MN | 3MN |
| `packed_rows` | several short rows per program | 2MN | 3MN |
| `aligned_rows` | wide accesses whatever the row stride | 2MN | 3MN |
| `split_rows` | a long row over several programs, still read once | 2MN | 3MN |
| `strided` | the columns far apart, the rows side by side | 2MN | 3MN |
| `split_strided` | a long dimension of that kind over several programs | 2MN | 3MN |
| `strided_loops` | a very long one, walked twice in segments | 3MN | 5MN |

`online` holds the device functions they share, above all the merge of two (m, d) pairs; `rows` what
their launchers share; `flash_attention` carries the recurrence one step further. The rungs up to
`single_block` offer `softmax_forward(x, *, log, out_dtype)` and `softmax_backward(y, dy, *, log,
in_dtype)` on a matrix; the kernels of the others are launched by `triton_softmax.dispatch`.
"""
