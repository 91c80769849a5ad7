"""From a question to its answer: which kernel, with which constants, why, and how long it takes.

Runs under MicroPython and CPython alike; what decides are the library's own files, unchanged.
"""

import math

from chooser import choose, space  # pyright: ignore[reportMissingImports]
from chooser.measured import ANY, TABLES  # pyright: ignore[reportMissingImports]
from chooser.space import Device, Traits, ceil_div  # pyright: ignore[reportMissingImports]

TRAITS = {
    "softmax": Traits(1, keeps_terms=True),
    "softmax_backward": Traits(2),
    "log_softmax": Traits(1),
    "log_softmax_backward": Traits(2, exp_in_finish=True),
    "logsumexp": Traits(1, reduces=True),
    "logsumexp_backward": Traits(1),
}

SIZES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}


def traits_of(operation, invariant):
    """Traits of an operation; where the bits must be the same in every batch, terms are rounded
    alike, and none is kept."""
    traits = TRAITS[operation]
    return traits._replace(any_order=True, keeps_terms=False) if invariant else traits


class Refused(ValueError):
    """A question that has no answer; the message is for the reader."""


class Tensor:
    """A tensor without numbers.

    Args:
        shape: its sizes.
        size: bytes of an element.
        strides: in elements; by default it is contiguous.
        address: of its first element, in bytes.
        dim: the softmax dimension, if it lacks that.
    """

    def __init__(self, shape, size, strides=None, address=0, dim=None):
        self.size, self.address, self.moved = size, address, dim is None
        wanted, step = [], 1
        for at in reversed(range(len(shape))):
            wanted.insert(0, step if at != dim else 0)
            step *= shape[at] if at != dim else 1
        self.strides = wanted if strides is None else list(strides)
        steps = [i for i in range(len(shape)) if shape[i] > 1 and self.strides[i] != wanted[i]]
        self.on_vectors = not steps and address % 16 == 0


asked = []


def noted(table, at, facts):
    """Note that a table was asked: the line that holds, if any, what it saw, and what it says."""
    seen, says = [], []
    for line in TABLES[table] if at is None else [TABLES[table][at]]:
        for limits in line.limits:
            if (limits.name, facts[limits.name]) not in seen:
                seen.append((limits.name, facts[limits.name]))
    if at is not None:
        says = [pair for pair in TABLES[table][at].values.items() if pair[1] < ANY]
    asked.append({"table": table, "line": at, "with": seen, "says": says})


def holding(table, facts):
    """As `measured.holding`, with a note of each line."""
    for at in range(len(TABLES[table])):
        if TABLES[table][at].holds(facts):
            noted(table, at, facts)
            yield TABLES[table][at].values


def first(table, facts):
    """As `measured.first`, with a note of it."""
    for values in holding(table, facts):
        return values
    noted(table, None, facts)
    return None


# --- from tensors to a choice


def collapse(shape, tensors, dim):
    """The dimensions other than `dim`, joined where all tensors allow it: sizes and strides."""
    groups = []
    for i in range(len(shape)):
        if i == dim or shape[i] == 1:
            continue
        steps = [each.strides[i] for each in tensors]
        if groups and groups[-1][1] == [shape[i] * step for step in steps]:
            groups[-1] = (groups[-1][0] * shape[i], steps)
        else:
            groups.append((shape[i], steps))
    return groups


def chosen(shape, dim, inputs, out, traits, device):
    """(choice, programs), as `triton_softmax.plan` asks for it; None if inputs are copied first."""
    tensors, n_cols = inputs + [out], shape[dim]
    moved = [i for i in range(len(tensors)) if tensors[i].moved]
    groups = collapse(shape, tensors, dim)
    cols = [1 if n_cols == 1 else each.strides[dim] for each in tensors]
    addresses = tuple([tensors[i].address for i in moved])
    size = min([tensors[i].size for i in moved])
    held = max([each.size for each in inputs if each.moved])
    if all([cols[i] == 1 for i in moved]) and len(groups) <= 1:
        if traits.any_order and n_cols > space.INVARIANT_TILE_COLS:
            if not all([each.on_vectors for each in inputs if each.moved]):
                return None
        one = (1, [n_cols if each.moved else 1 for each in tensors])
        n_rows, steps = groups[0] if groups else one
        steps = tuple([steps[i] for i in moved])
        rows = space.rows_of(n_rows, n_cols, size, addresses, steps, held)
        choice = choose.chosen(rows, traits, device)
        groups = ceil_div(n_rows, getattr(choice.how, "block_rows", 1))
        return choice, choice.programs(groups)
    if len(groups) > 2:
        return None
    groups = [(1, [0] * len(tensors))] * (2 - len(groups)) + groups
    outer, inner = groups
    if not (outer[1][0] >= inner[1][0] or outer[0] == 1):
        outer, inner = inner, outer
    steps = tuple([(outer[1][i], cols[i], inner[1][i]) for i in moved])
    columns = space.columns_of(outer[0], n_cols, inner[0], size, addresses, steps, held)
    choice = choose.chosen(columns, traits, device)
    return choice, choice.programs(outer[0] * ceil_div(inner[0], choice.how.block_inner))


def checked(question):
    """Shape, dimension and strides of a question, if there is such a tensor."""
    shape, dim, strides = question["shape"], question["dim"], question.get("strides") or None
    if not shape:
        raise Refused("A shape has at least one number.")
    if min(shape) < 1:
        raise Refused("Every size is at least 1: an empty tensor needs no kernel.")
    if strides is not None and len(strides) != len(shape):
        raise Refused(f"There is one stride for each of the {len(shape)} sizes.")
    if strides is not None and min(strides) < 0:
        raise Refused("PyTorch has no negative strides.")
    if product(shape) > 2**40:
        raise Refused("That is more than a trillion elements.")
    if not -len(shape) <= dim < len(shape):
        raise Refused(f"The dimension must be between {-len(shape)} and {len(shape) - 1}.")
    return shape, dim % len(shape), strides


def answer(question, measured=()):
    """What the library does with a tensor.

    Args:
        question: "shape" and "dim"; "dtype" by name; "operation". If given, "strides" and "offset"
            of the input in elements, "out_dtype", "multiprocessors", "invariant".
        measured: rows of the data, as `page.measured` makes them.

    Returns:
        Numbers, strings and lists of them only.

    Raises:
        Refused: there is no such tensor.
    """
    shape, dim, strides = checked(question)
    operation, name = question["operation"], question.get("out_dtype") or question["dtype"]
    backward, of_sums = operation.endswith("backward"), operation.startswith("logsumexp")
    mine, out = SIZES[question["dtype"]], SIZES[name]
    address = (question.get("offset") or 0) * mine
    # A gradient arrives in the dtype of the result; the gradient of the input has the input's.
    x = mine if of_sums or not backward else out
    sizes, result = [x] + [out] * backward, mine if backward else out
    around, wide = [], x if backward else out
    if 8 in sizes + [result] and any([each != wide for each in sizes + [result]]):
        around.append("convert")  # all in one dtype
        address, sizes, result = 0, [wide] * len(sizes), wide
    traits = traits_of(operation, question.get("invariant"))
    device = Device(question.get("multiprocessors") or 132, True)

    def tensors(strides, address):
        second = Tensor(shape, sizes[-1], strides, address)
        if of_sums:
            second = Tensor(shape, sizes[-1], dim=dim)
        return [Tensor(shape, sizes[0], strides, address)] + [second] * backward

    written = Tensor(shape, result, dim=dim if of_sums and not backward else None)
    del asked[:]
    own = choose.first, choose.holding
    choose.first, choose.holding = first, holding
    try:
        found = chosen(shape, dim, tensors(strides, address), written, traits, device)
        if found is None:
            around.append("copy")
            found = chosen(shape, dim, tensors(None, 0), written, traits, device)
    finally:
        choose.first, choose.holding = own
    choice, programs = found  # pyright: ignore[reportGeneralTypeIssues]
    n_cols, numel = shape[dim], product(shape)
    n_rows = numel // n_cols
    read = numel * x + (n_rows if of_sums else numel) * out * backward
    useful = read + (n_rows * out if traits.reduces else numel * (mine if backward else out))
    twice = choice.kernel == "two_pass" or (choice.kernel == "split_rows" and choice.two_launches)
    how = choice.how if choice.two_launches else choice.launches[0]
    got = {
        "kernel": choice.kernel,
        "constants": list(how._asdict().items()),
        "geometry": type(choice.how).__name__,
        "warps": choice.num_warps,
        "registers": choice.max_registers,
        "chunks": choice.n_chunks,
        "chunk_cols": choice.chunk_cols,
        "programs": [programs] * len(choice.launches),
        "around": around,
        "rows": n_rows,
        "columns": n_cols,
        "inner": product(shape[dim + 1 :]),
        "dtype": question["dtype"],
        "bytes": {
            "useful": useful,
            "again": read if twice and not traits.reduces else 0,
            "copied": 2 * read * len(around),
        },
        "why": list(asked),
        "modelled": not (device.tuned or traits.any_order),
    }
    got["time"] = expected(question, got, x, measured)
    return got


# --- time, from measurements


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


def expected(question, mine, itemsize, measured):
    """The time to expect on the GPU that was measured; None if nothing like it was.

    A time is what any launch takes, the shortest that was measured, and the bytes over a speed. The
    speeds of the two nearest cases of the same kernel, operation and width are averaged, the nearer
    one with more weight.
    """
    other = question.get("out_dtype") not in (None, question["dtype"])
    if other or mine["around"] or question.get("invariant"):
        return None
    near = []
    for row in measured:
        if row["operation"] == question["operation"] and row["itemsize"] == itemsize:
            if row["kernel"] == mine["kernel"]:
                near.append((distance(mine, row), row))
    near.sort(key=lambda pair: (pair[0], pair[1]["us"]))
    if not near:
        return None
    launch = 0.95 * min([row["us"] for row in measured])
    used = near[:1] if near[0][0] == 0 else near[:2]
    weights = [1 / max(away, 0.01) ** 2 for away, _ in used]
    logs = [math.log(row["bytes"] / (row["us"] - launch)) for _, row in used]
    total = sum([weights[i] * logs[i] for i in range(len(used))])
    copy = used[0][1]["copy"] if used[0][0] == 0 else None
    return {
        "us": launch + mine["bytes"]["useful"] / math.exp(total / sum(weights)),
        "copy": copy,
        "far": used[0][0],
        "near": [dict(row, far=away) for away, row in used],
    }
