"""The check as a page asks for it: a request in JSON, and its answer in JSON. For MicroPython."""

import json

from . import timed
from .judge import Sheet
from .with_small_triton import Lab


def answer(triton, line_of, sheets, request, basis=None):
    """Whether a source solves an exercise, and what to say of it; of a softmax that is right also
    how long it should take, what to say of that, and what the rungs took.

    Args:
        triton: the module `small_triton`.
        line_of: from an exception to its line, or None.
        sheets: by name, the sources of an exercise's check and of its solution.
        request: JSON with "name" and "source".
        basis: what predictions start from; see `timed.predicted`.
    """
    asked, lab = json.loads(request), Lab(triton)
    solved, message, line = Sheet(*sheets[asked["name"]]).verdict(
        asked["source"], lambda source: triton.run(source, "<text 0>"), lab, line_of
    )
    answered = {"solved": solved, "message": message, "line": line}
    if solved and basis and lab.on_matrix:
        answered["us"], answered["predicted"] = timed.said(basis, lab.on_matrix, lab)
        answered["rungs"] = basis["rungs"]
    return json.dumps(answered)
