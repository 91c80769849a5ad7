"""What checks an exercise, in a terminal and in a page.

* `exercise_checks`: each exercise, in order, and what it has to do;
* `judge`: right or wrong, in words; runs the reader's code;
* `with_triton`: kernels in Triton's own interpreter;
* `with_small_triton`: kernels in the small Triton of the site, as in a page.

`exercise_checks` and `judge` run under MicroPython too.
"""
