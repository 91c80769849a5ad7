"""What a cell's run is worth: right or wrong, where and why, and whether it moves too much.

A cell says what is right as text, `y = softmax(x)`, in which tensors are lists and the functions
below are plain Python; after two spaces and a # it may say so in words. Of several lines for one
name the first that fits counts.
"""

import math

from . import show
from .memory import INF, NAN, Tensor, float32
from .tiles import Tile

# ---- What is right ----


def softmax(x, sink=-INF):
    """Softmax of a row, or of each row of a list; the sink takes its share of the sum."""
    if x and isinstance(x[0], (list, tuple)):
        return [softmax(row, sink) for row in x]
    lse = logsumexp(list(x) + [sink])
    return [math.exp(v - lse) if lse != -INF else NAN for v in x]


def log_softmax(x):
    """Likewise, of a list of rows."""
    return [[v - logsumexp(row) for v in row] for row in x]


def statistics(row):
    """(m, d): the maximum, and the sum of exponentials from it."""
    m = max(row)
    return m, sum([math.exp(v - m) if m != -INF else 0.0 for v in row])


def logsumexp(row):
    m, d = statistics(row)
    return m + math.log(d) if d else m


def softmax_backward(y, dy):
    """The gradient of x, of lists of rows."""
    sums = [sum([a * b for a, b in zip(*rows)]) for rows in zip(y, dy)]
    return [[a * (b - s) for a, b in zip(*rows)] for s, *rows in zip(sums, y, dy)]


def log_softmax_backward(y, dy):
    return [[b - math.exp(a) * sum(rows[1]) for a, b in zip(*rows)] for rows in zip(y, dy)]


def attention(q, k, v):
    """A number for each query: the values, each with its softmax weight."""
    weights = [softmax([each * key for key in flat(k)]) for each in flat(q)]
    return [sum([w * value for w, value in zip(row, flat(v))]) for row in weights]


def cross_entropy(x, target, share):
    """The loss of each row; 0 where the target is none of its columns."""
    rows = zip(x, target, share)
    return [s * (logsumexp(row) - row[t]) if t >= 0 else 0.0 for row, t, s in rows]


def cross_entropy_gradient(x, target, share):
    found = []
    for row, t, s in zip(softmax(x), target, share):
        found.append([s * (p - (j == t)) if t >= 0 else 0.0 for j, p in enumerate(row)])
    return found


def causal(x, scale, sink):
    """Row i has its first i + 1 elements, scaled."""
    n = len(x)
    rows = [[scale * v for v in x[i][: i + 1]] for i in range(n)]
    return [softmax(rows[i], sink) + [0.0] * (n - 1 - i) for i in range(n)]


def transposed(x):
    return [list(column) for column in zip(*x)]


def flat(x):
    """The numbers of a list, or of a list of lists."""
    return [each for row in x for each in (row if isinstance(row, (list, tuple)) else [row])]


REFERENCES = {
    "softmax": softmax,
    "log_softmax": log_softmax,
    "statistics": statistics,
    "logsumexp": logsumexp,
    "softmax_backward": softmax_backward,
    "log_softmax_backward": log_softmax_backward,
    "attention": attention,
    "cross_entropy": cross_entropy,
    "cross_entropy_gradient": cross_entropy_gradient,
    "causal": causal,
    "transposed": transposed,
    "flat": flat,
}

# ---- The verdict ----


class Verdict:
    """Attributes:
    right: whether all is as it should be; None where nothing can be compared any more.
    says: that, and why, in a sentence or two.
    name, wanted: of a wrong result, what it is called and what it should be.
    wrong: positions that differ.
    step: how many steps have run when the first of them was last written, or None.
    """

    def __init__(self, right, says, name="", wanted=None, wrong=(), step=None):
        self.right, self.says, self.name = right, says, name
        self.wanted, self.wrong, self.step = wanted, wrong, step


def judge(lines, names, trace):
    """A `Verdict`.

    Args:
        lines: texts such as "y = softmax(x)".
        names: what the cell's run has defined.
        trace: what it did.
    """
    known = {name: _plain(value) for name, value in names.items()}
    known.update(REFERENCES)
    choices = {}
    for line in lines:
        choices.setdefault(line.split(" = ")[0], []).append(line)
    fits = []
    for name in choices:
        found = []
        for line in choices[name]:
            try:
                wanted = eval(line.split(" = ", 1)[1], known)
                within = 1e-2 if getattr(names[name], "dtype", float32).size == 2 else 1e-4
                found.append((differences(known[name], wanted, within), line, wanted))
            except (NameError, KeyError, TypeError, ValueError, IndexError):
                pass  # the reader has other inputs, or none
        found = [each for each in found if each[0] is not None]
        if not found:
            what = choices[name][0].split(" = ", 1)[1].split("  # ")[-1]
            return Verdict(None, f"Not checked: {name} has not the shape of {what}.")
        wrong, line, wanted = ([each for each in found if not each[0]] or found)[0]
        if wrong:
            return _wrong(name, names.get(name), line, wanted, wrong, trace)
        fits.append(f"{name} is {line.split(' = ', 1)[1].split('  # ')[-1]}")
    moved = " " + _moved(trace, list(choices)) if trace.accesses else ""
    return Verdict(True, f"Right: {_listed(fits)}.{moved}")


def of_error(message):
    """What to look at when a run has failed."""
    if " leaves " in message:
        return "Look at the mask, and at the offset of the row."
    if "shapes do not fit" in message:
        return "Look for a [:, None] or [None, :] that is missing."
    return ""


def _plain(value):
    return value.tolist() if isinstance(value, Tensor) else value


def differences(got, wanted, within=1e-4, at=()):
    """(position, got, wanted) of the numbers that differ; None for another shape."""
    if isinstance(wanted, (list, tuple)):
        if not isinstance(got, (list, tuple)) or len(got) != len(wanted):
            return None
        parts = [differences(got[i], wanted[i], within, at + (i,)) for i in range(len(wanted))]
        return None if None in parts else [each for part in parts for each in part]
    if isinstance(got, (list, tuple)):
        return None
    same = got == wanted or (got != got and wanted != wanted)
    finite = abs(got) < INF and abs(wanted) < INF
    close = finite and abs(got - wanted) <= within * (1 + abs(wanted))
    return [] if same or close else [(at, got, wanted)]


def _listed(names):
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else names[0]


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
        most = max([places.count(place) for place in set(places)] + [0])
        if most > 1:
            times = "twice" if most == 2 else f"{most} times"
            extra.append(f"{kind} {tensor.name} {times}")
    if between:
        extra.append("keeps " + _listed(between) + " in memory")
    total = sum([trace.bytes(kind) for kind in ("load", "store", "atomic")])
    if extra:
        return f"It {_listed(extra)}: {total} bytes, where {least} would do."
    fewest = ", the fewest possible" if total == least else ""
    return f"No element is read or written twice: {total} bytes{fewest}."


def _wrong(name, tensor, line, wanted, wrong, trace):
    at, got, should = wrong[0]
    count = len(flat(wanted)) if isinstance(wanted, (list, tuple)) else 1
    where = f"{name}[{', '.join([str(i) for i in at])}]" if at else name
    says = f"Wrong: {where} is {_short(got)} and should be {_short(should)}"
    says += f"; {len(wrong)} of {count} differ." if count > 1 else "."
    step, hint = None, ""
    if isinstance(tensor, Tensor):
        place = _place(tensor, at)
        writers = []
        for i in range(len(trace.steps)):
            for access in trace.steps[i].accesses:
                if access.tensor is tensor and access.kind != "load" and place in access.places:
                    writers.append(trace.steps[i])
                    step = i + 1
        hint = _hint(at, got, wanted, tensor, writers, trace, line)
    return Verdict(False, says + " " + hint, name, wanted, [each[0] for each in wrong], step)


def _place(tensor, at):
    return sum([i * stride for i, stride in zip(at, tensor.strides)])


def _short(number):
    return show.number(number) if number - number != 0 else f"{number:.5g}"


def _hint(at, got, wanted, tensor, writers, trace, line):
    """What to look at."""
    if not writers:
        return (
            "No program has written it. Does the grid have a program for each row, and the tiles "
            "a lane for each column?"
        )
    who = {(step.launch, step.program) for step in writers}
    if len(who) > 1 and len({launch for launch, _ in who}) == 1:
        programs = _listed([str(program) for _, program in sorted(who)])
        return f"Programs {programs} write it: look at the offsets."
    # Else a row of results does not belong to the row of the input.
    by_rows = "transposed" not in line and "flat" not in line
    if by_rows and len(tensor.shape) == 2:
        for i in range(len(wanted)):
            if i != at[0] and differences(tensor.tolist()[at[0]], wanted[i]) == []:
                return f"Row {at[0]} has the results of row {i}: look at the offset of the row."
    last = writers[-1]
    mine = [s for s in trace.steps if (s.launch, s.program) == (last.launch, last.program)]
    rows = {
        (tensor.index(place) or at)[0]
        for step in mine
        for access in step.accesses
        if access.tensor is tensor and access.kind == "store"
        for place in access.places
    }
    for step in mine:
        for access in [each for each in step.accesses if each.kind == "load"]:
            if not by_rows or len(access.tensor.shape) < 2 or access.tensor.shape[0] < 2:
                continue
            for place in access.places:
                index = access.tensor.index(place)
                if index is None or index[0] not in rows:
                    element = list(index) if index else "the memory between two rows"
                    name = access.tensor.name if index else ""
                    return (
                        f"Program {last.program}, which wrote it, has read {name}{element}: look "
                        "at the mask, and at the offset of the row."
                    )
        for name, value in step.names if step.accesses else []:
            if isinstance(value, Tile) and value.masked and True in value.masked:
                rest = value.data[value.masked.index(True)]
                if rest != -INF and (rest or "backward" not in line):
                    return (
                        f"Masked lanes of {name} hold {_short(rest)}: do they change a maximum or "
                        "a sum? Look at other."
                    )
    for each in trace.tensors if by_rows and len(tensor.shape) == 2 else ():
        loads = trace.of("load", each)
        if loads and not trace.of("store", each) and each.shape == tensor.shape:
            missing = [i for i in range(each.shape[1]) if _place(each, (at[0], i)) not in loads]
            if missing:
                element = f"{each.name}[{at[0]}, {missing[0]}]"
                return f"No program reads {element}: look at the mask, and at the tile's length."
    if got != got:
        return "NaN comes from 0/0, ∞ − ∞, ∞/∞, or from a place that nobody wrote."
    return "Step back from where it is written, and look for the first value that surprises you."
