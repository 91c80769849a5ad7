"""Benchmarks: one command measures everything and writes data; `softmax_site` makes pages of it.

In reading order:

* `roster`: who is measured: names, labels, colours (no torch);
* `case`, `cases`, `random_shapes`: what is measured, as plain data (no torch);
* `inputs`: the tensors of a case;
* `providers`, `loss_head`: how each one is called: the rungs, the chooser, PyTorch, and other
  libraries;
* `measure`: how time and error are measured;
* `tuning`: what a run does to Triton's own state;
* `runner`: the loop that checks, times and writes a row per case and provider;
* `schema`: the published form of the data, and its validation (no torch);
* `replay`: what measured calls launch at one commit and at another (no torch); `probe` asks for
  it;
* `report`, `targets`: from rows to ratios, means and targets (no torch);
* `compare`: two runs side by side, for a regression guard (no torch);
* `merge`: one file of several that were measured at once (no torch);
* `gpu_report`: the last run of the GPU tests as data (no torch needed to read it);
* `tune`, `tuned`: choices beside the library's own, timed; and the file of what was found;
* `compilation`: what the compiler makes of a kernel, without a GPU;
* `traffic`: the bytes each rung moves, as formulas and as counted;
* `ranks`: rows that are cut over two GPUs.

`python -m softmax_bench --help` lists the commands. Nothing here is installed with the library.
"""
