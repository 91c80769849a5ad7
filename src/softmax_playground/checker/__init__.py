"""What checks an exercise, in a terminal and in a page.

* `course`: reads the exercises, each from its one file;
* `judge`: right or wrong, in words; runs the reader's code;
* `lab`: what both places where kernels run have in common;
* `rows`: the inputs that find mistakes;
* `with_triton`: kernels in Triton's own interpreter;
* `with_small_triton`: kernels in the small Triton of the site, as in a page.

`judge`, `lab` and `rows` run under MicroPython too.
"""
