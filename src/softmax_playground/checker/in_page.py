"""The check as a page asks for it: a request in JSON, and its answer in JSON. For MicroPython."""

import json

from .exercise_checks import EXERCISES
from .judge import verdict
from .with_small_triton import Lab


def answer(triton, line_of, request):
    """Whether a source solves an exercise, and what to say of it.

    Args:
        triton: the module `small_triton`.
        line_of: from an exception to its line, or None.
        request: JSON with "name" and "source".
    """
    asked = json.loads(request)
    source = asked["source"]
    (check,) = [each for name, _, _, each in EXERCISES if name == asked["name"]]
    solved, message, line = verdict(
        check, source, lambda: triton.run(source, "<text 0>"), Lab(triton), line_of
    )
    return json.dumps({"solved": solved, "message": message, "line": line})
