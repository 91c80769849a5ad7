"""The kernels, one idea per file, as a ladder: each rung changes one thing.

Elements moved for a matrix of M rows and N columns, in the forward and the backward pass;
`softmax_bench.traffic` derives and tests them. The first four rungs are written out, and offer
`softmax_forward(x, *, log, out_dtype)` and `softmax_backward(y, dy, *, log, in_dtype)` on a matrix:

| module | idea | forward | backward |
| --- | --- | --- | --- |
| `naive` | PyTorch lines, everything through memory | 8MN + 4M | 9MN + 2M |
| `three_loops` | tiles in registers: maximum, denominator, result | 4MN | (two loops) |
| `two_loops` | maximum and denominator in one loop, by the online recurrence | 3MN | 5MN |
| `single_block` | the whole row in registers | 2MN | 3MN |

The others say where a row lies, and leave to an operation what is computed: each is one kernel for
all of `triton_softmax.operations`, launched by `triton_softmax.plan`.

| module | idea | forward | backward |
| --- | --- | --- | --- |
| `packed_rows` | several short rows per program | 2MN | 3MN |
| `aligned_rows` | wide accesses whatever the row stride | 2MN | 3MN |
| `split_rows` | a long row over several programs, still read once | 2MN | 3MN |
| `strided` | elements that lie apart: strands side by side | 2MN | 3MN |
| `split_strided` | a long dimension of that kind over several programs | 2MN | 3MN |
| `strided_loops` | a very long one, walked twice in chunks | 3MN | 5MN |

`mapped_rows` is a geometry of its own, for rows that are scaled, capped, biased or masked on their
way to an operation; `triton_softmax.mapped` launches it.

Beside a loss stand two small kernels: `targets`, what it has to know before it reads a row, and
`scale_rows`, which multiplies a gradient if that is needed. `finish_rows` writes elements where the
summaries of rows are known already: kept from the forward pass, or come from other GPUs.

Not called by the library: `split_rows_simple`, the idea of `split_rows` in some forty lines, and
`flash_attention`, which takes the online recurrence one step further. `rows` is what the launchers
of the first four share, and `device` are the functions that kernels call.
"""
