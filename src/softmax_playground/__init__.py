"""Kernels that run in a page: a small Triton in plain Python, cells, and what checks exercises.

* `small_triton`: runs kernels as they are written, under CPython and MicroPython;
* `kernel_source`: the library's kernels as text that it runs;
* `cells`: code on a page that a reader can edit and run there;
* `checker`: what checks an exercise, in a terminal and in a page.

Only `checker.with_triton` imports torch or triton.
"""
