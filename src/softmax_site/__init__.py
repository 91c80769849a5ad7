"""The site: documents and data in, pages out.

* `equations`: labels, tests and kernel comments, read from the text of the repository;
* `markdown`: the Python-Markdown extension that shows them, and includes what is rendered;
* `rendered`: what follows from files: tables of `benchmarks`, `modules`;
* `build`: what MkDocs runs of ours;
* `computed`: what needs a compiler or a kernel run, committed and compared by a test.

Only `computed` imports the library, torch or triton, so the site is built where none is installed.
"""
