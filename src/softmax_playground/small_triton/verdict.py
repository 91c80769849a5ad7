"""What a cell's run is worth: right or wrong, where and why, and whether it moves too much.

A cell says what is right as text, `y = softmax(x)`, in which tensors are lists and the functions
are those of `right`; after two spaces and a # it may say so in words. Of several lines for one
name the first that fits counts.
"""

# ruff: noqa: F401, I001  (what the lines of cells call)

from . import show
from .memory import INF, NAN, Tensor, float32
from .right import attention, attention_backward, is_close, is_list, listed, pairs, scores
from .right import log_softmax, logsumexp, softmax, softmax_backward, statistics
from .tiles import Tile


def flat(x):
    """The numbers of a list, or of a list of lists."""
    return [each for row in x for each in (row if is_list(row) else [row])]


# ---- The verdict ----


def judge(lines, names, trace):
    """What a run is worth.

    Args:
        lines: texts such as "y = softmax(x)".
        names: what the cell's run has defined.
        trace: what it did.

    Returns:
        A dictionary: "right", None where nothing can be compared any more; "says", that and why, in
        a sentence or two; of a wrong result "name", "wanted" (what it should be), "wrong"
        (positions that differ) and "step", how many steps have run when the first of them was last
        written, or None.
    """
    known = {name: plain(value) for name, value in names.items()}
    known.update(globals())
    known.update({"launched": trace.programs, "nan": NAN})
    choices, order = {}, []  # MicroPython's dictionaries have no order
    for line in lines:
        name = line.split(" = ")[0]
        order += [name] * (name not in order)
        choices.setdefault(name, []).append(line)
    fits = []
    for name in order:
        found, failed = [], None
        for line in choices[name]:
            if found and found[-1][0] == []:
                break  # it fits
            try:
                wanted = eval(line.split(" = ", 1)[1], known)
                half = getattr(names[name], "dtype", float32).size == 2
                off = differences(known[name], wanted, 1e-2 if half else 1e-4, 1.0)
                found.append((off, line, wanted))
            except (NameError, LookupError, TypeError, ValueError, ArithmeticError) as error:
                failed = error  # the reader has other inputs, or none
        shaped = [each for each in found if each[0] is not None]
        if not shaped:
            what = choices[name][0].split(" = ", 1)[1].split("  # ")[-1]
            why = f"{name} has not the shape of {what}."
            if failed is not None and not found:
                why = f"{what} cannot be computed from these inputs ({failed})."
            return {"right": None, "says": f"Not checked: {why}"}
        found = shaped
        wrong, line, wanted = ([each for each in found if not each[0]] or found)[0]
        if wrong:
            return _wrong(name, names.get(name), line, wanted, wrong, trace)
        fits.append(f"{name} is {line.split(' = ', 1)[1].split('  # ')[-1]}")
    moved = " " + _moved(trace, order) if trace.accesses else ""
    return {"right": True, "says": f"Right: {listed(fits)}.{moved}"}


LOOK = {
    " leaves ": "Look at the mask, and at the offset of the row.",
    "o module named": "Only plain Python runs here, beside triton, triton.language and math.",
    "Tensor object": "A kernel runs by kernel[grid](…), such as softmax[(2,)](x, y, 3, BLOCK=4).",
}
"""What to look at, by what an error says."""


def plain(value):
    return value.tolist() if isinstance(value, Tensor) else value


def differences(got, wanted, within, relative=0.0):
    """(position, got, wanted) of the numbers that differ by more than `within`, and by more than
    that share of what is wanted if `relative` is 1; None for another shape."""
    found = pairs(got, wanted)
    if [1 for each in found if is_list(each[1]) or is_list(each[2])]:
        return None
    return [each for each in found if not is_close(*each[1:], within * relative, within)]


def expect(actual, expected, within=1e-4):
    """For programs that state their results: raise AssertionError, and say where, unless numbers
    agree.

    Args:
        actual, expected: numbers, (lists of) lists of them, or tensors of one shape.
        within: largest difference. Two NaN are equal, and so are two infinities of one sign.

    >>> expect([1.0, 2.0], [1.0, 2.5])
    Traceback (most recent call last):
        ...
    AssertionError: element 1 is 2 but should be 2.5
    """
    found = differences(plain(actual), plain(expected), within)
    if found is None:
        raise AssertionError("the result has another shape than expected")
    for place, is_, should in found[:1]:
        where = "element " + ", ".join([str(i) for i in place]) if place else "the result"
        raise AssertionError(f"{where} is {_short(is_)} but should be {_short(should)}")


def _moved(trace, results):
    """What moved beside the least possible: each input read once, each result written once."""
    least, extra, between = 0, [], []
    for tensor in trace.tensors:
        read, written = trace.of("load", tensor), trace.of("store", tensor)
        if tensor.name in results:
            kind, places = "writes", written
        elif read and not written and not trace.of("atomic", tensor):
            kind, places = "reads", read
        else:
            between.append(tensor.name)
            continue
        least += tensor.numel() * tensor.dtype.size
        counts = {}
        for place in places:
            counts[place] = counts.get(place, 0) + 1
        most = max([0] + list(counts.values()))
        if most > 1:
            times = "twice" if most == 2 else f"{most} times"
            part, up_to = ("parts of ", "up to ") if len(set(counts.values())) > 1 else ("", "")
            extra.append(f"{kind} {part}{tensor.name} {up_to * (most > 2)}{times}")
    if between:
        extra.append("keeps " + listed(between) + " in memory")
    total = sum([trace.bytes(kind) for kind in ("load", "store", "atomic")])
    if extra:
        return f"It {listed(extra)}: {total} bytes, where {least} would do."
    fewest = ", the fewest possible" if total == least else ""
    return f"No element is read or written twice: {total} bytes{fewest}."


def _wrong(name, tensor, line, wanted, wrong, trace):
    at, got, should = wrong[0]
    count = len(pairs(wanted, wanted))
    where = f"{name}[{', '.join([str(i) for i in at])}]" if at else name
    says = f"Wrong: {where} is {_short(got)} and should be {_short(should)}"
    says += f"; {len(wrong)} of {count} differ." if count > 1 else "."
    found = {"right": False, "name": name, "wanted": wanted, "wrong": [each[0] for each in wrong]}
    if isinstance(tensor, Tensor):
        place, writers = _place(tensor, at), []
        for i in range(len(trace.steps)):
            for access in trace.steps[i].accesses:
                if access.tensor is tensor and access.kind != "load" and place in access.places:
                    writers.append(trace.steps[i])
                    found["step"] = i + 1
        says += " " + _hint(at, got, wanted, tensor, writers, trace, line)
    found["says"] = says
    return found


def _place(tensor, at):
    return sum([i * stride for i, stride in zip(at, tensor.strides)])


def _short(number):
    return show.number(number) if number - number != 0 else f"{number:.5g}"


def _hint(at, got, wanted, tensor, writers, trace, line):
    """What to look at."""
    if not writers:
        return "No program has written it: look at the grid, and at the mask of the store."
    who = {(step.launch, step.program) for step in writers}
    if len(who) > 1 and len({launch for launch, _ in who}) == 1:
        programs = listed([program for _, program in sorted(who)])
        return f"Programs {programs} write it: look at the offsets."
    last = writers[-1]
    mine = [s for s in trace.steps if (s.launch, s.program) == (last.launch, last.program)]
    did = [(access, place) for s in mine for access in s.accesses for place in access.places]
    # A row of results belongs to the row of the input.
    by_rows = "softmax([" not in line and "flat" not in line
    for i in range(len(wanted) if by_rows and at[1:] else 0):
        if i != at[0] and differences(tensor.tolist()[at[0]], wanted[i], 1e-4, 1.0) == []:
            return f"Row {at[0]} has the results of row {i}: look at the offset of the row."
    rows = [(tensor.index(place) or at)[0] for access, place in did if access.tensor is tensor]
    for access, place in did if by_rows else ():
        index = access.tensor.index(place)
        if access.kind == "load" and access.tensor.shape[1:] and (index or at)[0] not in rows:
            element = f"{access.tensor.name}{list(index)}"
            return f"Program {last.program}, which wrote it, has read {element}: look at the mask."
        if index is None:
            return f"Program {last.program} moves what lies between two rows: look at the mask."
    for step in [step for step in mine if step.accesses]:
        for name, value in step.names:
            masked = isinstance(value, Tile) and value.masked or []
            rest = value.data[masked.index(True)] if True in masked else -INF
            if rest != -INF and (rest == rest or got != got) and (rest or "backward" not in line):
                rest = _short(rest)
                return f"Masked lanes of {name} hold {rest}, which takes part: look at other."
    for each in trace.tensors if by_rows else ():
        loads = trace.of("load", each)
        if loads and not trace.of("store", each) and len(each.shape) == 2:
            missing = [i for i in range(each.shape[1]) if _place(each, (at[0], i)) not in loads]
            if missing:
                element = f"{each.name}[{at[0]}, {missing[0]}]"
                return f"No program reads {element}: look at the mask, and at the tile's length."
    if got != got:
        return "NaN comes from 0/0, ∞ − ∞, ∞/∞, or from a place that nobody wrote."
    return "Step back from where it is written, and look for the first value that surprises you."
