"""From measurements to what the benchmark pages include: text, charts, tables and CSV.

* `data`: the newest data file, and how its rows are named;
* `tables`, `sentences`, `export`: cells and tables, words, CSV;
* `charts`, `points`, `drawing`: charts with JavaScript and without;
* `page`: what a page includes; `suites`, `summaries`: what each one shows;
* `gpu_tests`: the last run of the GPU tests;
* `notice`: what a reader must know when numbers are old or the code has changed.

Everything but `notice` depends on the committed data alone: not on the date, and not on the kernels
as they stand now.
"""
