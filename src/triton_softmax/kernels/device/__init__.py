"""Device functions that the kernels share; each file holds one idea.

| module | idea |
| --- | --- |
| `monoid` | exp(x − m), and the merge of two (m, d) pairs |
| `vectors` | what the compiler must see to move whole vectors: multiples, and the edges of a row |
| `registers` | elements in registers: types, pairs of 16-bit elements, an optimisation barrier |
| `tiles` | a row in several tiles, one after the other |
| `sums` | the sum of a row's terms, and one that no order changes |
| `summaries` | a row's sums, and the numbers that go in and come out for it |
| `softcap` | c·tanh(u/c) and its derivative, to the last digit |
| `names` | what a compiled kernel is called |
| `exchange` | summaries as 64-bit words: publish, prefetch, poll, merge |
"""
