"""What checks an exercise, in a terminal and in a page.

* `course`: reads the exercises, each from its one file;
* `judge`: right or wrong, in words; runs the reader's code;
* `rows`: the inputs that find mistakes;
* `with_small_triton`: kernels in the small Triton of the site, which looks at each access;
* `with_triton`: those that are right there, in Triton itself: its interpreter, or a GPU;
* `timed`: how long a softmax should take.

All but `course` and `with_triton` run under MicroPython too.
"""
