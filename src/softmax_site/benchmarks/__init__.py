"""From measurements to what the benchmark pages include: numbers, charts, tables and CSV. Sentences
stand in the pages themselves and take their numbers by name.

* `data`: the newest data file, and how its rows are named;
* `stand`: how ours stands over some cases; `quoted`: the numbers by name; `values`: how a page
  writes them and claims something of them;
* `words`, `tables`, `charts`: how a verdict, a table and a chart are written;
* `views`: the tables and charts of each suite; `rungs`, `attention`, `ranks`, `tuning`,
  `bookkeeping`: those of kernels, of several GPUs, of the constants, and of targets, machines and
  tests;
* `page`: what a page includes, and what a reader must know when numbers are old.

Everything depends on the committed data alone, but for what is said of their age.
"""
