"""Every exercise in the order of the path, and what it has to do: runs under CPython and
MicroPython.

A check is given the names that the reader's file defines, and a lab in which kernels run. It
answers what to say of a right solution, and raises `Wrong` of any other. What is right is computed
here, in plain Python.
"""

import math

from .judge import Wrong, compare, needs, shown

INF = math.inf

ROWS = [
    [0.5, -1.0, 2.0, 0.0, 1.5, -0.25, 3.0, 0.75, -2.0, 1.0, 0.25],
    [-3.0, -2.5, -4.0, -3.5, -2.75, -3.25, -5.0, -2.0, -6.0, -2.25, -4.5],
    [
        -1000.0,
        -1001.0,
        -1002.5,
        -1000.5,
        -1003.0,
        -1001.5,
        -1000.25,
        -1004.0,
        -1000.0,
        -1001.0,
        -1002.0,
    ],
    [90.0, 100.0, -INF, 99.0, 95.0, -INF, 98.5, 100.0, 91.0, -INF, 97.0],
    [7.0, 1.0, 0.0, -1.0, 2.0, 3.0, 6.5, 1.0, 0.5, 0.25, 6.0],
]
"""Small, negative, far below zero, far above it with -inf among them, and one in no order."""


def softmax(row):
    m = max(row)
    terms = [math.exp(x - m) if x > -INF else 0.0 for x in row]
    total = sum(terms)
    return [term / total for term in terms]


# ---- Predict a number ----


def number(names, right, said):
    answer = needs(names, "ANSWER")
    if isinstance(answer, bool) or not isinstance(answer, (int, float)):
        raise Wrong(f"ANSWER is {answer!r} but should be a number.")
    if abs(answer - right) > 1e-3 * max(1, abs(right)) * (0 if isinstance(right, int) else 1):
        raise Wrong(f"It is not {shown(answer)}. Think again, or open a hint.")
    return said


def shift(names, lab):
    largest = (2 - 2**-23) * 2.0**127
    n = 0
    while math.exp(n + 1) <= largest:
        n += 1
    return number(
        names, n, f"Right: exp({n}) is {math.exp(n):.3g}, and float32 ends at {largest:.3g}."
    )


def jacobian(names, lab):
    y = [0.2, 0.3, 0.5]
    right = y[0] * (0.0 - y[1])
    return number(names, right, f"Right: off the diagonal it is -y[i] * y[j], here {right:.2f}.")


def lanes(names, lab):
    size = 1
    while size < 1000:
        size *= 2
    said = f"Right: the tile has {size} lanes, and {size - 1000} of them are idle."
    return number(names, size - 1000, said)


def edge(names, lab):
    first, width = 3 * 33, 16 // 4
    right = -first % width
    said = f"Right: row 3 starts at element {first}, and the next multiple of {width} is "
    return number(names, right, f"{said}{first + right}.")


def traffic(names, lab):
    x = lab.tensor([[float(i % 7) for i in range(100)] for _ in range(4)], "x")
    y = lab.empty((4, 100), "y")
    lab.launch(needs(names, "three_loops_kernel"), (4,), x, y, 100, BLOCK=32)
    read, written = lab.count("load"), lab.count("store")
    said = f"Right: counted, it reads {read} and writes {written}. The mask leaves out the rest."
    return number(names, read + written, said)


# ---- Plain Python ----


def vjp(names, lab):
    function = needs(names, "vjp")
    for x, dy in (
        ([1.0, 2.0, 3.0], [0.1, 0.2, 0.7]),
        ([0.0, -1.0, 4.0, 2.0], [1.0, -2.0, 0.5, 3.0]),
    ):
        y = softmax(x)
        n = len(y)
        right = [
            sum([dy[i] * y[i] * ((i == j) - y[j]) for i in range(n)]) for j in range(n)
        ]  # by the matrix
        compare(function(y, dy), right, "dx")
    return "Right: it is what the whole Jacobian gives, for a fraction of the work."


def rescale(names, lab):
    function = needs(names, "online")
    for row in ([3.0, 2.0, 1.0], [1.0, 2.0, 3.0], [1.0, 3.0, 2.0, 5.0], [-1000.0, -1001.0]):
        m = max(row)
        got = function(row)
        if not isinstance(got, (list, tuple)) or len(got) != 2:
            raise Wrong(f"online({row}) is {got!r} but should be a pair (m, d).")
        compare(got[0], m, f"For the row {row}, m")
        compare(got[1], sum([math.exp(x - m) for x in row]), f"For the row {row}, d")
    return "Right: an old sum is relative to an old maximum, and has to move with it."


def merge(names, lab):
    function = needs(names, "merge")
    parts = [(2.0, 1.5), (5.0, 1.0), (-1000.0, 2.0), (-INF, 0.0)]
    for a in parts:
        for b in parts:
            m = max(a[0], b[0])
            d = sum([d * math.exp(part - m) for part, d in (a, b) if part > -INF])
            got = function(a, b)
            compare(got[0], m, f"merge({a}, {b}): m")
            compare(got[1], d, f"merge({a}, {b}): d")
    return "Right, and (-inf, 0) is its neutral element."


# ---- Kernels ----


def rows_of(lab, kernel, rows, right, grid, gap=0, **constants):
    """Launch a kernel of x, y and n_cols on some rows, and compare y."""
    x = lab.tensor(rows, "x")
    y = lab.empty((len(rows), len(rows[0])), "y")
    lab.launch(kernel, grid, x, y, len(rows[0]), **constants)
    lab.compare(y, right)


def first_kernel(names, lab):
    kernel = needs(names, "double_kernel")
    rows = [row[:5] for row in ROWS]
    rows_of(lab, kernel, rows, [[2 * x for x in row] for row in rows], (5,), BLOCK=8)
    return "Right: five programs, eight lanes each, of which three are masked."


def padding(names, lab):
    kernel = needs(names, "softmax_kernel")
    for rows in ([row[:8] for row in ROWS], ROWS):
        rows_of(lab, kernel, rows, [softmax(row) for row in rows], (len(rows),), BLOCK=16)
    return "Right: a lane past the end must not change the maximum, nor the sum."


def single_block(names, lab):
    kernel = needs(names, "softmax_kernel")
    rows_of(lab, kernel, ROWS, [softmax(row) for row in ROWS], (5,), BLOCK=16)
    read, written = lab.count("load"), lab.count("store")
    if read > 55 or written > 55:
        raise Wrong(
            f"The result is right, but it reads {read} elements and writes {written} of 55."
        )
    return "Right: each number is read once and written once."


def stride(names, lab):
    kernel = needs(names, "softmax_kernel")
    right = [softmax(row) for row in ROWS]
    for x_gap, y_gap in ((0, 0), (5, 0), (3, 2)):
        x, y = lab.tensor(ROWS, "x", gap=x_gap), lab.empty((5, 11), "y", gap=y_gap)
        lab.launch(kernel, (5,), x, y, 11 + x_gap, 11 + y_gap, 11, BLOCK=16)
        lab.compare(y, right)
    return "Right: rows may lie further apart than they are long."


def backward(names, lab):
    kernel = needs(names, "backward_kernel")
    y = [softmax(row) for row in ROWS]
    dy = [[math.sin(3 * i + j) for j in range(11)] for i in range(5)]
    right = []
    for p, g in zip(y, dy):
        s = sum([a * b for a, b in zip(p, g)])
        right.append([a * (b - s) for a, b in zip(p, g)])
    dx = lab.empty((5, 11), "dx")
    lab.launch(kernel, (5,), lab.tensor(y, "y"), lab.tensor(dy, "dy"), dx, 11, BLOCK=16)
    lab.compare(dx, right)
    if lab.count("load") > 110:
        raise Wrong(
            f"The result is right, but it reads {lab.count('load')} elements, and 110 would do."
        )
    return "Right: two reads and one write."


def _tiles(names, lab, reads):
    kernel = needs(names, "softmax_kernel")
    right = [softmax(row) for row in ROWS]
    for height, width in ((1, 4), (2, 4), (4, 8), (2, 16)):
        x, y = lab.tensor(ROWS, "x"), lab.empty((5, 11), "y")
        lab.launch(kernel, (-(-5 // height),), x, y, 5, 11, ROWS=height, COLS=width)
        lab.compare(y, right)
        if lab.count("load") > reads * 55:
            times = lab.count("load") / 55
            raise Wrong(
                f"The result is right, but x is read {times:.1f} times; {reads} are enough."
            )


def long_softmax(names, lab):
    _tiles(names, lab, 3)
    return "Right: three reads and one write, for rows of any length."


def online_softmax(names, lab):
    _tiles(names, lab, 2)
    return "Right: two reads and one write; the first loop found both numbers."


def zero_start(names, lab):
    kernel = needs(names, "softmax_kernel")
    for rows in (ROWS[:1], [[-1000.0, -1001.0]], ROWS):
        rows_of(lab, kernel, rows, [softmax(row) for row in rows], (len(rows),), BLOCK=4)
    return "Right: before the first element the maximum is -inf, not 0."


def chunks(names, lab):
    publish, write = needs(names, "publish_kernel"), needs(names, "write_kernel")
    rows = [row for row in ROWS if -INF not in row]
    x, y = lab.tensor(rows, "x"), lab.empty((4, 11), "y")
    m, d = lab.empty((4, 3), "m"), lab.empty((4, 3), "d")
    lab.launch(publish, (4, 3), x, m, d, 11, 3, BLOCK=4)
    lab.launch(write, (4, 3), x, m, d, y, 11, 3, CHUNKS=4, BLOCK=4)
    lab.compare(y, [softmax(row) for row in rows])
    return "Right: this merge, with programs that wait for one another, is split rows."


def attention(names, lab):
    kernel = needs(names, "attention_kernel")
    n = 11
    q, k, v = ROWS[0], ROWS[1], ROWS[4]
    right = []
    for each in q:
        weights = softmax([each * key for key in k])
        right.append(sum([w * value for w, value in zip(weights, v)]))
    for queries, keys in ((1, 16), (4, 4), (8, 2)):
        o = lab.empty((n,), "o")
        inputs = lab.tensor(q, "q"), lab.tensor(k, "k"), lab.tensor(v, "v")
        grid = (-(-n // queries),)
        lab.launch(kernel, grid, inputs[0], inputs[1], inputs[2], o, n, QUERIES=queries, KEYS=keys)
        lab.compare(o, right)
    return "Right: FlashAttention is this loop, with vectors for numbers."


EXERCISES = (
    ("shift", "predict", "Where exp overflows", shift),
    ("jacobian", "predict", "One entry of the Jacobian", jacobian),
    ("vjp", "fill in", "The gradient without the matrix", vjp),
    ("rescale", "find the bug", "A sum that forgets to move", rescale),
    ("merge", "fill in", "Two parts become one", merge),
    ("lanes", "predict", "Idle lanes", lanes),
    ("first_kernel", "fill in", "A first kernel", first_kernel),
    ("padding", "find the bug", "What a masked lane contributes", padding),
    ("single_block", "fill in", "One read, one write", single_block),
    ("stride", "find the bug", "Rows that lie apart", stride),
    ("backward", "fill in", "The backward pass", backward),
    ("traffic", "predict", "Elements that move", traffic),
    ("long_softmax", "fill in", "Long softmax, in three loops", long_softmax),
    ("online_softmax", "fill in", "Long softmax, in two", online_softmax),
    ("zero_start", "find the bug", "Where a maximum starts", zero_start),
    ("edge", "predict", "Between two vectors", edge),
    ("chunks", "fill in", "A row on several programs", chunks),
    ("attention", "fill in", "Simple attention", attention),
)
"""(name, kind, title, check)"""
