"""The check as a page asks for it: a request in JSON, and its answer in JSON. For MicroPython."""

import json

from .judge import Sheet
from .with_small_triton import Lab


def answer(triton, line_of, sheets, request):
    """Whether a source solves an exercise, and what to say of it.

    Args:
        triton: the module `small_triton`.
        line_of: from an exception to its line, or None.
        sheets: by name, the sources of an exercise's check and of its solution.
        request: JSON with "name" and "source".
    """
    asked = json.loads(request)
    solved, message, line = Sheet(*sheets[asked["name"]]).verdict(
        asked["source"], lambda source: triton.run(source, "<text 0>"), Lab(triton), line_of
    )
    return json.dumps({"solved": solved, "message": message, "line": line})
