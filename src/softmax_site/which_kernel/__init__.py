"""Which kernel a shape gets, answered by the library's own planner in the reader's browser.

* `bundle`: the planner's source, made by mechanical steps into what MicroPython runs;
* `runtime`: the few names that those steps lean on, and what stands where torch and triton stood;
* `answer`: a question as numbers in, an answer as numbers and words out, in the browser too;
* `words`: the planner's questions as a reader would ask them;
* `page`: what the page shows without a script, and the files that its script loads.
"""
