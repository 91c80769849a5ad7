"""Cells: run what a reader has written, and answer with what it printed, showed, read and wrote.

The page asks in JSON and so does the build, which puts the answers into the page that is read
without scripts.
"""

import json
import sys
import time

from . import access, empty, memory, order, record, run, show, steps, verdict
from .access import State
from .library import Library, Operation, replace
from .refusals import refused

NAMES = {
    "empty": empty,
    "record": record,
    "order": order,
    "expect": verdict.expect,
    "TensorDescriptor": access.TensorDescriptor,
    "Operation": Operation,
    "replace": replace,
    "inf": memory.INF,
    "nan": memory.NAN,
}
for _name in "Tensor float16 bfloat16 float32 float64 int32 int64".split():
    NAMES[_name] = getattr(memory, _name)
"""What a cell finds, beside `print` and `show`, which are its run's own."""

SIGNS = {True: ("right", "✓"), False: ("wrong", "✗"), None: ("open", "?")}

_library = Library([])


def provide(parts):
    """Take the library's kernels, as JSON or as a list."""
    global _library
    _library = Library(json.loads(parts) if isinstance(parts, str) else parts)


def answer(request):
    """`run_cell` in JSON."""
    return json.dumps(run_cell(json.loads(request)))


def run_cell(request):
    """Run the texts of a cell.

    Args:
        request: a dictionary with "texts", a list of Python texts that run one after another with
            common names; "given", modules of the library by the names that are wanted of them;
            "right", what holds of a right result, see `verdict.judge`; and "again", other inputs
            on which a right result has to be so too, see `_again`; and "rehearse", whether no more
            programs and turns of loops run than it takes to tell how long all of them would.

    Returns:
        A dictionary: "html", what there is to see; "printed", the output; "tensors", the names of
        those that kernels touched; "steps", what their programs did, see `steps.listed`, and
        "values", what its steps refer to; "error", None or a dictionary with "text" (which of the
        texts, or None), "line" and "message"; "verdict", None or a dictionary with "right" and
        "step", how many steps have run when the first wrong number is written. A rehearsal that has
        left something out answers "seconds" and nothing else.
    """
    begun, State.ahead, State.rehearses = time.time(), 0.0, bool(request.get("rehearse"))
    names, trace, error, printed, shown = _ran(request, request["texts"])
    State.rehearses, found = False, None
    if not error and request.get("right"):
        found = verdict.judge(request["right"], names, trace)
        found = (found["right"] and _again(request)) or found
    answered = _answer(printed, shown, trace, error, request["texts"], found)
    return {"seconds": time.time() - begun + State.ahead} if State.ahead else answered


def _again(request):
    """What is wrong on other inputs, or None: "again" lists (words, pairs) for each, and the second
    of a pair takes the place of the first. If the reader has changed that, the run is left out."""
    for words, pairs in request.get("again", ()):
        texts = request["texts"]
        for old, new in pairs:
            texts = [text.replace(old, new) for text in texts if "".join(texts).count(old) == 1]
        if texts:
            names, trace, error, *_ = _ran(request, texts, again=True)
            other = verdict.judge(request["right"], names, trace) if not error else {"right": False}
            if not other["right"]:
                why = error["message"] if error else other["says"].split(": ", 1)[1]
                return {"right": False, "says": f"Right here, but {words} it is wrong. {why}"}
    return None


def _ran(request, texts, again=False):
    """What texts have defined, the trace, the error or None, what was printed, and what shown."""
    printed, shown, error = [], [], None
    access.NAN = memory.INF if again else memory.NAN

    def write(*values, sep=" ", end="\n", **_):
        printed.append(sep.join([str(value) for value in values]) + end)

    names = dict(NAMES)
    names["print"] = write
    names["show"] = lambda value, name="": shown.append(show.plain(value, name))
    with record() as trace:
        try:
            for name, module in request.get("given", {}).items():
                names[name] = _library[module][name]
            for i in range(len(texts)):
                says = None if again else refused(texts[i], f"<text {i}>")
                if says:
                    error = {"text": i, "line": says[1], "message": says[0]}
                    break
                names.update(run(texts[i], f"<text {i}>", probes=True, **names))
        except Exception as problem:
            error = _where(problem)
    access.NAN = memory.NAN
    return names, trace, error, "".join(printed), shown


def _where(problem):
    """Which line of which text an error comes from, and what it says."""
    text, line = None, 0
    for each in _traceback(problem).split("\n"):
        if 'File "<text ' in each:
            text, rest = each.split('File "<text ')[1].split(">", 1)
            text, line = int(text), int(rest.split("line ")[1].split(",")[0])
    says = getattr(problem, "msg", None) or str(problem)
    message = type(problem).__name__ + (": " + says if says else "")
    if isinstance(problem, SyntaxError):
        message += "; here, or in the line before"
    return {"text": text, "line": line, "message": message}


def _traceback(problem):
    if hasattr(sys, "print_exception"):  # MicroPython
        import io

        text = io.StringIO()
        sys.print_exception(problem, text)
        return text.getvalue()
    import traceback

    return "".join(traceback.format_exception(problem))


def _answer(printed, shown, trace, error, texts, found):
    tensors = trace.tensors
    html = ""
    if found:
        kind, sign = SIGNS[found["right"]]
        says = f'<span aria-hidden="true">{sign}</span> {show.escape(found["says"])}'
        html += f'<p class="run-verdict {kind}">{says}</p>'
    if printed:
        html += f'<pre class="run-printed"><code>{show.escape(printed)}</code></pre>'
    if error:
        named = len(texts) > 1 and error["text"] is not None
        which = ("The kernel, line", "The call, line")[error["text"]] if named else "Line"
        says = (f"{which} {error['line']}: " if error["line"] else "") + error["message"]
        html += f'<p class="run-error" role="alert">{show.escape(says)}</p>'
        for text, hint in verdict.LOOK.items():
            html += f'<p class="run-look">{hint}</p>' * (text in error["message"])
    figures = []
    for i in range(len(tensors)):
        wrong = found is not None and found.get("name") == tensors[i].name
        figures.append(show.tensor(tensors[i], i, found["wrong"] if wrong else ()))
        if wrong:
            figures.append(show.plain(found["wanted"], found["name"] + ", as it should be"))
    figures += shown
    if figures:
        html += '<div class="run-tensors">' + "".join(figures) + "</div>"
    if trace.accesses:
        html += show.counter(trace)
    listed, values = steps.listed(trace)
    return {
        "html": html,
        "printed": printed,
        "tensors": [[each.name, each.dtype.size] for each in tensors],
        "steps": listed,
        "values": values,
        "error": error,
        "verdict": {"right": found["right"], "step": found.get("step")} if found else None,
    }
