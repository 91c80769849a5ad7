"""Device functions that the kernels share; each file holds one idea.

| module | idea |
| --- | --- |
| `monoid` | exp(x − m), and the merge of two (m, d) pairs |
| `vectors` | vector access: multiples that the compiler can see, and the edges of a row |
| `registers` | elements in registers: upcasts, 16-bit pairs, an optimisation barrier |
| `tiles` | a row in several adjacent tiles |
| `sums` | the sums of a row's terms, also independent of order |
| `summaries` | merging a row's sums, and its row scalars |
| `softcap` | c·tanh(u/c) and its derivative, to the last digit |
| `names` | names of compiled kernels |
| `exchange` | summaries as 64-bit status words: publish, prefetch, poll, merge |
"""
