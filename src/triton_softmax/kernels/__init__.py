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
| `strided_loops` | a very long one, walked twice in chunks | 3MN | 5MN |

From `packed_rows` on a kernel is a geometry: it takes any of `operations`, and is launched as
`triton_softmax.plan` says. The rungs before it spell softmax out, and offer `softmax_forward(x, *,
log, out_dtype)` and `softmax_backward(y, dy, *, log, in_dtype)` on a matrix; `rows` is what their
launchers share. `device` holds the device functions of both, above all the merge of two (m, d)
pairs; `logsumexp` the gradient of log-sum-exp; `flash_attention` carries the recurrence one step
further.
"""
