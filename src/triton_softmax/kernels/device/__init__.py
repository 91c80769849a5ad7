"""Device functions that the kernels share; each file holds one idea.

| module | idea |
| --- | --- |
| `monoid` | exp(x − m), and the merge of two (m, d) pairs |
| `vectors` | what the compiler must see to move whole vectors: multiples, and the edges of a row |
| `registers` | elements in registers: types, pairs of 16-bit elements, an optimisation barrier |
| `tiles` | a row in several tiles, one after the other |
| `sums` | the sum of a row's terms, and one that no order changes |
| `summaries` | what there is one of for a row: its sums, and numbers that go in or come out |
| `names` | what a compiled kernel is called |
| `exchange` | summaries as 64-bit words: publish, prefetch, poll, merge |
"""
