"""From measurements to what the benchmark pages include: text, plots, tables and CSV.

* `data`: the newest data file, and how its rows are named;
* `words`: verdicts, sentences and reasons; `tables`, `heat`, `plots`: what they look like;
* `page`: what a page includes; `suites`, `overview`, `bookkeeping`, `rungs`: what each one shows;
* `export`: CSV; `render`: all of it by name;
* `notice`: what a reader must know when numbers are old or the code has changed.

Everything but `notice` depends on the committed data alone: not on the date, and not on the kernels
as they stand now.
"""
