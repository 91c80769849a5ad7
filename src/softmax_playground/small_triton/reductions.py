"""Along an axis: sums in the order of NumPy, as Triton's own interpreter adds; maxima; `reduce`,
scans and sorting."""

import builtins

from .elementwise import larger, smaller
from .memory import bfloat16, float32, int32, product
from .tiles import Tile, add, tile_of


def _lie(shape, axis):
    """(The axis from the front, its size, how far its elements lie apart)."""
    front = axis if axis >= 0 else axis + len(shape)
    if not 0 <= front < len(shape):
        raise ValueError(f"a tile of shape {shape} has no axis {axis}")
    return front, shape[front], product(shape[front + 1 :])


def _along(x, axis, function, keep_dims, to=None):
    """`function` of the numbers of every line along an axis; of all numbers if axis is None."""
    if axis is None:
        shape = (1,) * len(x.shape) if keep_dims else ()
        return Tile([function(x.data, True)], shape, to or x.dtype)
    axis, size, inner = _lie(x.shape, axis)
    lanes, block = builtins.range(len(x.data)), size * inner
    starts = [start + i for start in lanes[::block] for i in builtins.range(inner)]
    data = [function(x.data[i : i + block : inner], inner == 1) for i in starts]
    masked = x.masked and [all(x.masked[i : i + block : inner]) for i in starts]
    shape = x.shape[:axis] + ((1,) if keep_dims else ()) + x.shape[axis + 1 :]
    return Tile(data, shape, to or x.dtype, masked)


def sum(x, axis=None, keep_dims=False):  # noqa: A001 (its name in Triton)
    if tile_of(x).dtype.kind != "float":
        x = x.to(int32) if x.dtype.rank < int32.rank else x
        return _along(x, axis, lambda line, near: builtins.sum(line), keep_dims)
    add_up = lambda line, near: (_pairwise if near else _in_turn)(line, x.dtype.round)  # noqa: E731
    return _along(x, axis, add_up, keep_dims)


def _in_turn(line, rounded):
    total = 0.0
    for number in line:
        total = rounded([total + number])[0]
    return total


def _pairwise(line, rounded):
    """The order in which NumPy adds numbers that lie side by side: eight sums at a time."""
    count = len(line)
    if count < 8:
        return _in_turn(line, rounded)
    if count > 128:
        half = count // 2
        half -= half % 8
        return rounded([_pairwise(line[:half], rounded) + _pairwise(line[half:], rounded)])[0]
    sums = line[:8]
    whole = count - count % 8
    for start in builtins.range(8, whole, 8):
        sums = rounded(add(sums, line[start : start + 8]))
    while len(sums) > 1:
        sums = rounded(add(sums[0::2], sums[1::2]))
    total = sums[0]
    for number in line[whole:]:
        total = rounded([total + number])[0]
    return total


def max(x, axis=None, keep_dims=False):  # noqa: A001 (its name in Triton)
    """The largest number; a NaN is not one, unless all are."""
    return _along(x, axis, lambda line, near: _best(line, larger), keep_dims)


def min(x, axis=None, keep_dims=False):  # noqa: A001 (its name in Triton)
    return _along(x, axis, lambda line, near: _best(line, smaller), keep_dims)


def _best(line, better):
    found = line[0]
    for number in line:
        found = better(found, number)
    return found


def argmax(x, axis, keep_dims=False):
    return _along(x, axis, lambda line, near: line.index(builtins.max(line)), keep_dims, int32)


def argmin(x, axis, keep_dims=False):
    return _along(x, axis, lambda line, near: line.index(builtins.min(line)), keep_dims, int32)


def reduce(x, axis, combine):
    """A jitted function of two numbers, or of two tuples of numbers, along an axis, in order."""
    found = _running(x, axis, combine)[-1]
    return found if isinstance(x, tuple) else found[0]


def _running(x, axis, combine, reverse=False):
    """What a function makes of the slices across an axis up to each one, a list of tuples."""
    lines = list(zip(*[_lines(part, axis) for part in (x if isinstance(x, tuple) else (x,))]))
    lines = lines[::-1] if reverse else lines
    found = [lines[0]]
    for line in lines[1:]:
        now = combine(*found[-1], *line)
        found.append(now if isinstance(now, tuple) else (now,))
    return found[::-1] if reverse else found


def _lines(x, axis):
    """The slices of a tile across an axis, each a tile without it."""
    axis, size, inner = _lie(x.shape, axis)
    shape = x.shape[:axis] + x.shape[axis + 1 :]
    starts = builtins.range(0, len(x.data), size * inner)

    def line(numbers, i):
        return [n for at in starts for n in numbers[at + i * inner : at + (i + 1) * inner]]

    return [
        Tile(line(x.data, i), shape, x.dtype, x.masked and line(x.masked, i))
        for i in builtins.range(size)
    ]


def _joined(lines, like, axis):
    """A tile of its slices across an axis."""
    inner, data = _lie(like.shape, axis)[2], []
    for start in builtins.range(0, len(lines[0].data), inner):
        for line in lines:
            data += line.data[start : start + inner]
    return Tile(data, like.shape, lines[0].dtype, like.masked)


def associative_scan(x, axis, combine, reverse=False):
    """What a jitted function makes of all numbers up to each one along an axis, or of tuples."""
    parts = x if isinstance(x, tuple) else (x,)
    found = zip(*_running(x, axis, combine, reverse))
    made = [_joined(lines, part, axis) for lines, part in zip(found, parts)]
    return tuple(made) if isinstance(x, tuple) else made[0]


def cumsum(x, axis=0, reverse=False, dtype=None):
    small = x.dtype.kind != "float" and x.dtype.rank < int32.rank
    to = dtype or (int32 if small else float32 if x.dtype is bfloat16 else x.dtype)
    return associative_scan(x.to(to), axis, lambda a, b: a + b, reverse)


def sort(x, dim=None, descending=False):
    """Along the last dimension, as Triton."""
    return _sorted(x, dim, x.shape[-1], descending)


def topk(x, k, dim=None):
    """The k largest along the last dimension, the largest first."""
    return _sorted(x, dim, k, True)


def _sorted(x, dim, k, descending):
    if dim not in (None, -1, len(x.shape) - 1):
        raise ValueError("only the last dimension is sorted")
    width, data = x.shape[-1], []
    for start in builtins.range(0, len(x.data), width):
        data += sorted(x.data[start : start + width], reverse=bool(descending))[:k]
    return Tile(data, x.shape[:-1] + (k,), x.dtype)


def dot(a, b, acc=None, **_):
    """A product of matrices, each sum rounded once to float32."""
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"tl.dot of shapes {a.shape} and {b.shape}")
    columns = [b.data[j :: b.shape[1]] for j in builtins.range(b.shape[1])]
    data = []
    for start in builtins.range(0, len(a.data), a.shape[1]):
        row = a.data[start : start + a.shape[1]]
        data += [builtins.sum([x * y for x, y in zip(row, column)]) for column in columns]
    to = float32 if a.dtype.kind == "float" and a.dtype.size < 8 else a.dtype
    found = Tile(to.round(data), (a.shape[0], b.shape[1]), to)
    return found if acc is None else acc + found
