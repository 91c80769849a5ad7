"""Benchmarks: one command measures everything and writes data; `softmax_site` makes pages of it.

In reading order:

* `roster`: who is measured: names and labels (no torch);
* `case`, `cases`, `random_shapes`: what is measured, as plain data (no torch);
* `inputs`: the tensors of a case;
* `providers`: how each one is called, in every suite;
* `measure`: how time and error are measured;
* `warmup`: what is compiled before anything is timed;
* `runner`, `results`: the loop that checks, times and writes a row per case and provider;
* `schema`: the files of the data: their published form, read, validated and written (no torch);
* `report`, `targets`: from rows to ratios, means, slowdowns and targets (no torch);
* `gpu_report`: the last run of the GPU tests as data (no torch needed to read it);
* `gpus`, `recording`: what calls launch on a GPU that is not there;
* `compilation`: what the compiler makes of it;
* `launches`, `replay`: what measured calls launched, as data (no torch), and what they launch at
  another commit;
* `everywhere`: all kernels, compiled for many GPUs by each Triton;
* `tune`, `slow`, `tuned`: what the library chooses between, timed; the kinds of calls to search;
  and the file of what was found;
* `traffic`: the bytes each rung moves, as formulas and as counted;
* `ranks`, `attention`, `training`, `invariance`, `profile`: suites with a file of their own;
* `everything`: all of them, on all GPUs of a machine.

`python -m softmax_bench --help` lists the commands. Nothing here is installed with the library.
"""
