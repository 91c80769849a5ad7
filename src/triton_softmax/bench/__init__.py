"""Benchmarks: one command measures everything and writes data; the site turns the data into pages.

In reading order:

* `cases`: what is measured, as plain data (no torch);
* `providers`: who is measured: the rungs of the ladder, the chooser, PyTorch, and other libraries;
* `measure`: how time and error are measured;
* `runner`: the loop that checks, times and writes a row per case and provider;
* `schema`: the published form of the data, and its validation (no torch);
* `sources`: a hash of each implementation's source, to see that a kernel changed since (no torch);
* `report`, `targets`, `charts`, `render`: from data to tables, charts and pages (no torch);
* `compare`: two runs side by side, for a regression guard (no torch).

`python -m triton_softmax.bench --help` lists the commands.
"""
