"""From a question to its answer: which kernel, with which constants, why, and how long it takes.

Runs under MicroPython and CPython alike; what decides is the library's own `make_plan`.
"""

import math

from . import plan, runtime  # pyright: ignore[reportAttributeAccessIssue]  # the library's
from .runtime import Tensor, asked, forget_questions, torch

SMALLEST, LARGEST = 1, 2**40


class Refused(ValueError):
    """A question that has no answer; the message is for the reader."""


chosen = []


def _kept(function):
    def choose(*arguments, **named):
        choice = function(*arguments, **named)
        chosen.append(choice)
        return choice

    return choose


for _name in dir(plan):
    if _name.startswith("choose_"):
        setattr(plan, _name, _kept(getattr(plan, _name)))


def unwrapped(made):
    """The plan that launches, and what is done around it."""
    around = []
    while hasattr(made, "plan"):
        around.append(type(made).__name__)
        made = made.plan
    return made, around


def answer(question, measured=()):
    """What the library does with a tensor.

    Args:
        question: "shape" and "dim"; "dtype" by name; "operation", one of the planner's. If given,
            "strides" and "offset" of the input in elements, "out_dtype", "multiprocessors".
        measured: rows of the data, as `page.measured` makes them.

    Returns:
        Numbers, strings and lists of them only.

    Raises:
        Refused: there is no such tensor, or the library refuses it.
    """
    shape = tuple(question["shape"])
    if not shape:
        raise Refused("A shape has at least one number.")
    if min(shape) < SMALLEST:
        raise Refused("Every size is at least 1: an empty tensor needs no kernel.")
    operation = question["operation"]
    op = plan.OPERATIONS[operation]
    dtype = getattr(torch, question["dtype"])
    out_dtype = getattr(torch, question.get("out_dtype") or question["dtype"])
    strides = question.get("strides") or None
    if strides is not None:
        strides = tuple(strides)
        if len(strides) != len(shape):
            raise Refused(f"There is one stride for each of the {len(shape)} sizes.")
        if min(strides) < 0:
            raise Refused("PyTorch has no negative strides.")
    x = Tensor(shape, dtype, strides, (question.get("offset") or 0) * dtype.itemsize)
    if x.numel() > LARGEST:
        raise Refused("That is more than a trillion elements.")
    runtime.Properties.multi_processor_count = question.get("multiprocessors") or 132
    dim = question["dim"]
    if not -len(shape) <= dim < len(shape):
        raise Refused(f"The dimension must be between {-len(shape)} and {len(shape) - 1}.")
    at = dim % len(shape)
    backward = operation.endswith("backward")
    # A gradient arrives in the dtype of the result; the gradient of the input has the input's.
    inputs = [x]
    if backward:
        inputs[0] = Tensor(
            shape, x.dtype if operation == "logsumexp_backward" else out_dtype, strides, x.address
        )
        if operation == "logsumexp_backward":
            inputs.append(Tensor(shape[:at] + shape[at + 1 :], out_dtype))
        else:
            inputs.append(Tensor(shape, out_dtype, strides, x.address))
    implementation = plan.BATCH_INVARIANT if question.get("invariant") else None
    del chosen[:]
    forget_questions()
    try:
        made = plan.make_plan(
            operation, tuple(inputs), dim, dtype if backward else out_dtype, implementation
        )
    except (TypeError, ValueError, IndexError, RuntimeError) as error:
        raise Refused(str(error)) from error
    made, around = unwrapped(made)
    choice = chosen[-1]
    n_cols = shape[at]
    n_rows = x.numel() // n_cols
    launches = getattr(made, "launches", ())
    moved = _bytes(op, operation, choice, inputs, out_dtype, dtype, n_rows, around)
    out = {
        "kernel": choice.kernel,
        "constants": [
            (name, value) for name, value in (choice.how._asdict() if choice.how else {}).items()
        ],
        "geometry": type(choice.how).__name__ if choice.how else "",
        "warps": choice.num_warps,
        "registers": choice.max_registers,
        "chunks": choice.n_chunks,
        "chunk_cols": choice.chunk_cols,
        "programs": [launch.grid for launch in launches] or [n_rows],
        "around": around,
        "rows": n_rows,
        "columns": n_cols,
        "inner": product(shape[at + 1 :]),
        "dtype": question["dtype"],
        "bytes": moved,
        "why": list(asked),
    }
    out["time"] = expected(question, out, inputs[0].element_size(), measured)
    return out


def reads_twice(choice):
    """Whether every input is read a second time to write the result."""
    loops = choice.kernel == "strided_loops"
    return loops or (choice.kernel == "split_rows" and choice.two_launches)


def _bytes(op, operation, choice, inputs, out_dtype, dtype, n_rows, around):
    """Bytes that have to move, and that do."""
    read = sum(each.numel() * each.element_size() for each in inputs)
    backward = operation.endswith("backward")
    size = (dtype if backward else out_dtype).itemsize
    written = n_rows * size if op.reduces else inputs[0].numel() * size
    again = read if reads_twice(choice) and not op.reduces else 0
    copied = 0
    for name in around:
        if name in ("CopyFirst", "Convert"):
            copied += 2 * read
    return {"useful": read + written, "again": again, "copied": copied}


# ---- Time, from measurements ----


def log2(value):
    return math.log(value) / math.log(2)


def product(sizes):
    """Of no sizes: 1."""
    result = 1
    for size in sizes:
        result *= size
    return result


def distance(mine, row):
    """How far a measured case is, in doublings: of the length of a row, of the neighbours that lie
    between two of its elements, and of the whole tensor. A length that vectors do not divide is one
    further from one that they do; the other type of the same width is a little further than the
    same."""
    lengths = abs(log2(mine["columns"] / row["columns"]))
    sizes = abs(log2(mine["rows"] * mine["columns"] / row["rows"] / row["columns"]))
    width = 16 // row["itemsize"]
    edges = (mine["columns"] % width == 0) != (row["columns"] % width == 0)
    apart = abs(log2(mine["inner"] / row["inner"]))
    other = mine["dtype"] != row["dtype"]
    return lengths + (sizes + apart) / 2 + (1 if edges else 0) + (0.1 if other else 0)


def alike(question, mine, itemsize, measured):
    """Measured cases of the same kernel, operation and width of an element, nearest first."""
    found = []
    for row in measured:
        if row["operation"] != question["operation"] or row["itemsize"] != itemsize:
            continue
        if row["kernel"] == mine["kernel"]:
            found.append((distance(mine, row), row))
    found.sort(key=lambda pair: pair[0])
    return found


def expected(question, mine, itemsize, measured):
    """The time to expect on the GPU that was measured; None if nothing like it was.

    A time is what any launch takes, the shortest that was measured, and the bytes over a speed. The
    speeds of the two nearest cases are averaged, the nearer one with more weight.
    """
    other = question.get("out_dtype") not in (None, question["dtype"])
    if other or mine["around"] or question.get("invariant"):
        return None
    near = alike(question, mine, itemsize, measured)
    if not near:
        return None
    launch = 0.95 * min(row["us"] for row in measured)
    used = near[:1] if near[0][0] == 0 else near[:2]
    weights = [1 / max(away, 0.01) ** 2 for away, _ in used]
    logs = [math.log(row["bytes"] / (row["us"] - launch)) for _, row in used]
    speed = math.exp(sum(w * each for w, each in zip(weights, logs)) / sum(weights))
    copy = used[0][1]["copy"] if used[0][0] == 0 else None
    return {
        "us": launch + mine["bytes"]["useful"] / speed,
        "copy": copy,
        "far": used[0][0],
        "near": [dict(row, far=away) for away, row in used],
    }
