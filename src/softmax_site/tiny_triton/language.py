"""What kernels call `tl`: tiles of numbers and the operations on them.

A tile is a flat list with a shape and a type. Every operation computes in double precision and
rounds its result to the type, which gives the bits of IEEE arithmetic in that type. A sum adds in
the order of NumPy, as Triton's own interpreter does.
"""

import builtins
import math

from .memory import (
    INF,
    NAN,
    Access,
    Trace,
    bfloat16,
    float16,
    float32,
    float64,
    int1,
    int32,
    int64,
    pointer_type,
)


class _State:
    """What runs now: the program, its place in the grid, and where accesses are recorded."""

    program = 0
    place = (0, 0, 0)
    grid = (1, 1, 1)
    trace = Trace()
    line, path = 0, ""


# ---- Tiles ----


class Tile:
    """Numbers with a shape and a type; shape () is one number."""

    def __init__(self, data, shape, dtype):
        self.data = data
        self.shape = shape
        self.dtype = dtype

    type = property(lambda self: self.dtype)

    def __repr__(self):
        return f"<tile {self.shape} {self.dtype} {self.data}>"

    def __bool__(self):
        if len(self.data) != 1:
            raise ValueError("a condition is one number, and this is a tile: use tl.where")
        return bool(self.data[0])

    def __int__(self):
        return int(self.data[0])

    def __index__(self):
        return int(self.data[0])

    def __getitem__(self, key):
        """`x[:, None]` and the like: dimensions of size 1, put in between."""
        shape, left = [], list(self.shape)
        for each in key if isinstance(key, tuple) else (key,):
            if each is None:
                shape.append(1)
            elif isinstance(each, slice) and left:
                shape.append(left.pop(0))
            else:
                raise TypeError("a tile takes [:, None] and [None, :], not single elements")
        return Tile(self.data, tuple(shape + left), self.dtype)

    def to(self, to, bitcast=False):
        if bitcast:
            return Tile(to.from_bits(self.dtype.bits(self.data)), self.shape, to)
        return Tile(to.cast(self.data), self.shape, to) if to is not self.dtype else self

    def __add__(self, other):
        return _arithmetic(self, other, _add)

    def __radd__(self, other):
        return _arithmetic(other, self, _add)

    def __sub__(self, other):
        return _arithmetic(self, other, _subtract)

    def __rsub__(self, other):
        return _arithmetic(other, self, _subtract)

    def __mul__(self, other):
        return _arithmetic(self, other, _multiply)

    def __rmul__(self, other):
        return _arithmetic(other, self, _multiply)

    def __truediv__(self, other):
        return _arithmetic(self, other, _divide, division=True)

    def __rtruediv__(self, other):
        return _arithmetic(other, self, _divide, division=True)

    def __floordiv__(self, other):
        return _arithmetic(self, other, _quotient)

    def __rfloordiv__(self, other):
        return _arithmetic(other, self, _quotient)

    def __mod__(self, other):
        return _arithmetic(self, other, _remainder)

    def __rmod__(self, other):
        return _arithmetic(other, self, _remainder)

    def __and__(self, other):
        return _arithmetic(self, other, lambda a, b: [x & y for x, y in zip(a, b)])

    def __rand__(self, other):
        return self & other

    def __or__(self, other):
        return _arithmetic(self, other, lambda a, b: [x | y for x, y in zip(a, b)])

    def __ror__(self, other):
        return self | other

    def __xor__(self, other):
        return _arithmetic(self, other, lambda a, b: [x ^ y for x, y in zip(a, b)])

    def __lshift__(self, other):
        found = _arithmetic(self, other, lambda a, b: [x << y for x, y in zip(a, b)])
        return Tile(found.dtype.cast(found.data), found.shape, found.dtype)

    def __rshift__(self, other):
        return _arithmetic(self, other, lambda a, b: [x >> y for x, y in zip(a, b)])

    def __invert__(self):
        if self.dtype is int1:
            return Tile([not x for x in self.data], self.shape, int1)
        return Tile([~x for x in self.data], self.shape, self.dtype)

    def __neg__(self):
        return Tile([-x for x in self.data], self.shape, self.dtype)

    def __lt__(self, other):
        return _compare(self, other, lambda a, b: [x < y for x, y in zip(a, b)])

    def __le__(self, other):
        return _compare(self, other, lambda a, b: [x <= y for x, y in zip(a, b)])

    def __gt__(self, other):
        return _compare(self, other, lambda a, b: [x > y for x, y in zip(a, b)])

    def __ge__(self, other):
        return _compare(self, other, lambda a, b: [x >= y for x, y in zip(a, b)])

    def __eq__(self, other):
        return _compare(self, other, lambda a, b: [x == y for x, y in zip(a, b)])

    def __ne__(self, other):
        return _compare(self, other, lambda a, b: [x != y for x, y in zip(a, b)])

    __hash__ = None


class Pointer:
    """Addresses of elements of a tensor: its memory, and a tile of offsets in it."""

    def __init__(self, tensor, offsets, element_ty=None):
        self.tensor = tensor
        self.offsets = offsets
        self.shape = offsets.shape
        self.element_ty = element_ty or tensor.dtype
        self.dtype = pointer_type(self.element_ty)

    type = property(lambda self: self.dtype)

    def __add__(self, other):
        return Pointer(self.tensor, self.offsets + other, self.element_ty)

    def __radd__(self, other):
        return self + other

    def __sub__(self, other):
        return Pointer(self.tensor, self.offsets - other, self.element_ty)

    def __getitem__(self, key):
        return Pointer(self.tensor, self.offsets[key], self.element_ty)

    def to(self, to):
        """The same addresses of elements of another type."""
        if to.kind != "pointer":
            raise NotImplementedError("addresses as numbers do not exist here, only offsets")
        offsets = self.offsets * self.element_ty.size // to.element_ty.size
        return Pointer(self.tensor, offsets, to.element_ty)


def _tile(value, like=None):
    """A tile, or a number as a tile of the type that it takes beside another."""
    if isinstance(value, Tile):
        return value
    if isinstance(value, constexpr):
        value = value.value
    if isinstance(value, Pointer):
        raise TypeError("a pointer is no number: tl.load reads what it points to")
    if isinstance(value, bool):
        return Tile([value], (), int1)
    if isinstance(value, int):
        if like is not None and like.kind != "bool":
            return Tile(like.cast([value]), (), like)
        return Tile([value], (), int32 if -(2**31) <= value < 2**31 else int64)
    if isinstance(value, float):
        to = like if like is not None and like.kind == "float" else float32
        return Tile(to.round([value]), (), to)
    raise TypeError(f"not a tile and not a number: {value!r}")


def _pair(a, b):
    """Both as tiles; a plain number takes the type of the other."""
    if isinstance(a, Tile):
        return a, _tile(b, a.dtype)
    if isinstance(b, Tile):
        return _tile(a, b.dtype), b
    return _tile(a), _tile(b)


def _promoted(a, b):
    if a is b or a.rank > b.rank:
        # Neither of two 16-bit types holds the other.
        return float32 if (a is float16 and b is bfloat16) else a
    return float32 if (b is float16 and a is bfloat16) else b


def _shape(*shapes):
    """The shape that all of them broadcast to."""
    rank = builtins.max([len(shape) for shape in shapes])
    found = [1] * rank
    for shape in shapes:
        for i, size in enumerate((1,) * (rank - len(shape)) + tuple(shape)):
            if size != 1 and found[i] not in (1, size):
                raise ValueError(
                    "shapes do not fit: " + " and ".join([str(tuple(s)) for s in shapes])
                )
            if size != 1:
                found[i] = size
    return tuple(found)


def _spread(tile, shape):
    """The numbers of a tile, broadcast to a shape."""
    if tile.shape == shape:
        return tile.data
    count = 1
    for size in shape:
        count *= size
    if len(tile.data) == 1:
        return tile.data * count
    padded = (1,) * (len(shape) - len(tile.shape)) + tile.shape
    if len(tile.data) == count:
        return tile.data
    places, step, steps = [0], 1, []
    for size in reversed(padded):
        steps.insert(0, 0 if size == 1 else step)
        step *= size
    for size, step in zip(shape, steps):
        places = [place + i * step for place in places for i in builtins.range(size)]
    data = tile.data
    return [data[place] for place in places]


def _arithmetic(a, b, function, division=False):
    if isinstance(b, Pointer):
        return b + a
    a, b = _pair(a, b)
    to = _promoted(a.dtype, b.dtype)
    if division and to not in (float32, float64):
        to = float32
    if a.dtype is not to:
        a = a.to(to)
    if b.dtype is not to:
        b = b.to(to)
    shape = _shape(a.shape, b.shape)
    return Tile(to.round(function(_spread(a, shape), _spread(b, shape))), shape, to)


def _compare(a, b, function):
    a, b = _pair(a, b)
    shape = _shape(a.shape, b.shape)
    return Tile(function(_spread(a, shape), _spread(b, shape)), shape, int1)


def _add(a, b):
    return [x + y for x, y in zip(a, b)]


def _subtract(a, b):
    return [x - y for x, y in zip(a, b)]


def _multiply(a, b):
    return [x * y for x, y in zip(a, b)]


def _divide(a, b):
    return [x / y if y else _over_zero(x, y) for x, y in zip(a, b)]


def _over_zero(x, zero):
    if x != x or x == 0:
        return NAN
    return math.copysign(INF, x) * math.copysign(1.0, zero)


def _quotient(a, b):
    """Rounded towards zero, as on a GPU."""
    return [x // y if (x < 0) == (y < 0) else -(-x // y) for x, y in zip(a, b)]


def _remainder(a, b):
    return [x - y * q for x, y, q in zip(a, b, _quotient(a, b))]


def _elementwise(x, function):
    x = _tile(x)
    to = x.dtype if x.dtype.kind == "float" else float32
    return Tile(to.round([function(v) for v in x.to(to).data]), x.shape, to)


# ---- What makes tiles ----


class constexpr:  # noqa: N801 (its name in Triton)
    """A constant of a module. Beside a tile it is its value."""

    def __init__(self, value):
        self.value = value

    def __add__(self, other):
        return self.value + other

    def __radd__(self, other):
        return other + self.value

    def __sub__(self, other):
        return self.value - other

    def __rsub__(self, other):
        return other - self.value

    def __mul__(self, other):
        return self.value * other

    def __rmul__(self, other):
        return other * self.value

    def __lshift__(self, other):
        return self.value << other

    def __rlshift__(self, other):
        return other << self.value

    def __eq__(self, other):
        return self.value == other

    __hash__ = None


def constexpr_function(function):
    return function


def program_id(axis=0):
    return Tile([_State.place[axis]], (), int32)


def num_programs(axis=0):
    return Tile([_State.grid[axis]], (), int32)


def arange(start, end):
    start, end = [getattr(each, "value", each) for each in (start, end)]
    count = end - start
    if count <= 0 or count & (count - 1):
        raise ValueError(f"arange's range must be a power of 2, and {count} is none")
    return Tile(list(builtins.range(start, end)), (count,), int32)


def full(shape, value, dtype):
    shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    return Tile(_spread(_tile(value, dtype).to(dtype), shape), shape, dtype)


def zeros(shape, dtype):
    return full(shape, 0, dtype)


def zeros_like(x):
    return full(x.shape, 0, x.dtype)


def full_like(x, value):
    return full(x.shape, value, x.dtype)


def cast(x, to, bitcast=False):
    return _tile(x).to(to, bitcast)


def broadcast_to(x, *shape):
    shape = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
    return Tile(_spread(x, shape), shape, x.dtype)


def expand_dims(x, axis):
    axis = axis if axis >= 0 else axis + len(x.shape) + 1
    return Tile(x.data, x.shape[:axis] + (1,) + x.shape[axis:], x.dtype)


def static_range(*bounds):
    return range(*bounds)


def range(*bounds, num_stages=None):  # noqa: A001 (its name in Triton)
    return builtins.range(*[int(bound) for bound in bounds])


def cdiv(a, b):
    return (a + (b - 1)) // b


# ---- Element by element ----


def where(condition, x, y):
    condition = _tile(condition)
    x, y = _pair(x, y)
    to = _promoted(x.dtype, y.dtype)
    shape = _shape(condition.shape, x.shape, y.shape)
    x, y = _spread(x.to(to), shape), _spread(y.to(to), shape)
    data = [b if a else c for a, b, c in zip(_spread(condition, shape), x, y)]
    return Tile(data, shape, to)


def maximum(x, y):
    """The larger one; a NaN is not one, unless both are."""
    return _arithmetic(x, y, lambda a, b: [_larger(x, y) for x, y in zip(a, b)])


def minimum(x, y):
    return _arithmetic(x, y, lambda a, b: [_smaller(x, y) for x, y in zip(a, b)])


def _larger(x, y):
    return x if x >= y or y != y else y


def _smaller(x, y):
    return x if x <= y or y != y else y


def exp2(x):
    return _elementwise(x, _power_of_two)


def exp(x):
    return _elementwise(x, _exponential)


def log(x):
    return _elementwise(x, _logarithm)


def log2(x):
    return _elementwise(x, lambda v: _logarithm(v) / 0.6931471805599453)


def sqrt(x):
    return _elementwise(x, lambda v: math.sqrt(v) if v >= 0 else NAN)


def abs(x):  # noqa: A001 (its name in Triton)
    return Tile([builtins.abs(v) for v in x.data], x.shape, x.dtype)


def _power_of_two(v):
    return 2.0**v if v < 1024 or v != v else INF


def _exponential(v):
    return math.exp(v) if v < 709 or v != v else INF


def _logarithm(v):
    if v > 0:
        return math.log(v) if v != INF else INF
    return -INF if v == 0 else NAN


# ---- Along an axis ----


def _along(x, axis, function, keep_dims, to=None):
    """`function` of the numbers of every line along an axis; of all numbers if axis is None."""
    if axis is None:
        return Tile(
            [function(x.data, True)], (1,) * len(x.shape) if keep_dims else (), to or x.dtype
        )
    axis = axis if axis >= 0 else axis + len(x.shape)
    size, inner = x.shape[axis], 1
    for each in x.shape[axis + 1 :]:
        inner *= each
    data, block = [], size * inner
    for start in builtins.range(0, len(x.data), block):
        for i in builtins.range(start, start + inner):
            data.append(
                function(
                    x.data[i : i + block : inner] if inner > 1 else x.data[i : i + block],
                    inner == 1,
                )
            )
    shape = x.shape[:axis] + ((1,) if keep_dims else ()) + x.shape[axis + 1 :]
    return Tile(data, shape, to or x.dtype)


def sum(x, axis=None, keep_dims=False):  # noqa: A001 (its name in Triton)
    if x.dtype.kind != "float":
        x = x.to(int32) if x.dtype.rank < int32.rank else x
        return _along(x, axis, lambda line, near: builtins.sum(line), keep_dims)
    rounded = x.dtype.round
    return _along(
        x, axis, lambda line, near: (_pairwise if near else _in_turn)(line, rounded), keep_dims
    )


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
        sums = rounded(_add(sums, line[start : start + 8]))
    while len(sums) > 1:
        sums = rounded(_add(sums[0::2], sums[1::2]))
    total = sums[0]
    for number in line[whole:]:
        total = rounded([total + number])[0]
    return total


def max(x, axis=None, keep_dims=False):  # noqa: A001 (its name in Triton)
    """The largest number; a NaN is not one, unless all are."""
    return _along(x, axis, lambda line, near: _best(line, _larger), keep_dims)


def min(x, axis=None, keep_dims=False):  # noqa: A001 (its name in Triton)
    return _along(x, axis, lambda line, near: _best(line, _smaller), keep_dims)


def _best(line, better):
    found = line[0]
    for number in line:
        found = better(found, number)
    return found


def argmax(x, axis, keep_dims=False):
    return _along(x, axis, lambda line, near: line.index(builtins.max(line)), keep_dims, int32)


def argmin(x, axis, keep_dims=False):
    return _along(x, axis, lambda line, near: line.index(builtins.min(line)), keep_dims, int32)


def cumsum(x, axis=0):
    """Sums of all numbers up to each; of a tile with one dimension."""
    total, data = Tile([0], (), x.dtype), []
    for number in x.data:
        total = total + Tile([number], (), x.dtype)
        data.append(total.data[0])
    return Tile(data, x.shape, x.dtype)


def reduce(x, axis, combine):
    """A jitted function of two numbers, or of two tuples of numbers, along an axis, in order."""
    parts = x if isinstance(x, tuple) else (x,)
    axis = axis if axis >= 0 else axis + len(parts[0].shape)
    lines = [_lines(part, axis) for part in parts]
    found = tuple([line[0] for line in lines])
    for i in builtins.range(1, len(lines[0])):
        found = combine(*found, *[line[i] for line in lines])
        found = found if isinstance(found, tuple) else (found,)
    return found if isinstance(x, tuple) else found[0]


def _lines(x, axis):
    """The slices of a tile across an axis, each a tile without it."""
    size, inner = x.shape[axis], 1
    for each in x.shape[axis + 1 :]:
        inner *= each
    shape = x.shape[:axis] + x.shape[axis + 1 :]
    starts = builtins.range(0, len(x.data), size * inner)
    return [
        Tile(
            [n for start in starts for n in x.data[start + i * inner : start + (i + 1) * inner]],
            shape,
            x.dtype,
        )
        for i in builtins.range(size)
    ]


# ---- Memory ----


def at(line, path):
    """What reads and writes; the access is recorded as made in that line of that text."""
    _State.line, _State.path = line, path
    return _Here


def _places(pointer, mask, what):
    """(offset, mask) for each element of an access; whatever leaves the tensor raises."""
    if not isinstance(pointer, Pointer):
        raise TypeError(f"tl.{what} takes a pointer, such as x_ptr + offsets")
    shape = pointer.shape
    live = [True] * len(pointer.offsets.data)
    if mask is not None:
        mask = _tile(mask)
        if _shape(mask.shape, shape) != shape:
            raise ValueError(f"a mask of shape {mask.shape} for pointers of shape {shape}")
        live = _spread(mask, shape)
    tensor = pointer.tensor
    tensor.view(pointer.element_ty)
    for offset, wanted in zip(pointer.offsets.data, live):
        if wanted and not 0 <= offset < len(tensor.data):
            raise IndexError(
                f"tl.{what} leaves {tensor.name}: program {_State.program} asks for element "
                f"{offset}, and there are {len(tensor.data)}"
            )
    return pointer.offsets.data, live


def _record(kind, tensor, places, values):
    _State.trace.accesses.append(
        Access(_State.program, kind, tensor, places, values, _State.line, _State.path)
    )
    _State.line, _State.path = 0, ""


def load(pointer, mask=None, other=None, cache_modifier="", eviction_policy="", volatile=False):
    """Read. What the mask leaves out is `other`, or NaN (0 for integers) if there is none: on a GPU
    it may be anything."""
    offsets, live = _places(pointer, mask, "load")
    tensor, to = pointer.tensor, pointer.tensor.dtype
    if other is None:
        other = NAN if to.kind == "float" else 0
    data = _spread(_tile(other, to).to(to), pointer.shape)
    memory = tensor.data
    data = [memory[at] if wanted else rest for at, wanted, rest in zip(offsets, live, data)]
    places = [at for at, wanted in zip(offsets, live) if wanted]
    _record("load", tensor, places, [memory[at] for at in places])
    return Tile(data, pointer.shape, to)


def store(pointer, value, mask=None, cache_modifier="", eviction_policy=""):
    """Write, rounded to the type of the tensor."""
    offsets, live = _places(pointer, mask, "store")
    tensor, to = pointer.tensor, pointer.tensor.dtype
    value = _tile(value, to)
    if _shape(value.shape, pointer.shape) != pointer.shape:
        raise ValueError(f"a value of shape {value.shape} for pointers of shape {pointer.shape}")
    places, values = [], []
    for at, wanted, number in zip(offsets, live, _spread(value.to(to), pointer.shape)):
        if wanted:
            tensor.data[at] = number
            places.append(at)
            values.append(number)
    _record("store", tensor, places, values)


def _atomic(pointer, value, mask, what, function):
    offsets, live = _places(pointer, mask, what)
    tensor, to = pointer.tensor, pointer.tensor.dtype
    before, places, values = [], [], []
    for at, wanted, number in zip(offsets, live, _spread(_tile(value, to).to(to), pointer.shape)):
        before.append(tensor.data[at] if wanted else to.cast([0])[0])
        if wanted:
            tensor.data[at] = to.cast([function(tensor.data[at], number)])[0]
            places.append(at)
            values.append(tensor.data[at])
    _record("atomic", tensor, places, values)
    return Tile(before, pointer.shape, to)


def atomic_add(pointer, value, mask=None, sem=None, scope=None):
    return _atomic(pointer, value, mask, "atomic_add", lambda old, new: old + new)


def atomic_xchg(pointer, value, mask=None, sem=None, scope=None):
    return _atomic(pointer, value, mask, "atomic_xchg", lambda old, new: new)


def atomic_max(pointer, value, mask=None, sem=None, scope=None):
    return _atomic(pointer, value, mask, "atomic_max", _larger)


def atomic_cas(pointer, expected, value, sem=None, scope=None):
    """Write where the memory has what is expected; answer what it had."""
    offsets, _ = _places(pointer, None, "atomic_cas")
    tensor, to = pointer.tensor, pointer.tensor.dtype
    expected, value = [_spread(_tile(v, to).to(to), pointer.shape) for v in (expected, value)]
    before = [tensor.data[at] for at in offsets]
    for at, old, wanted, new in zip(offsets, before, expected, value):
        if old == wanted:
            tensor.data[at] = new
    _record("atomic", tensor, list(offsets), [tensor.data[at] for at in offsets])
    return Tile(before, pointer.shape, to)


# ---- What does nothing here, or cannot be done ----


def debug_barrier():
    pass


def multiple_of(x, values):
    return x


def max_contiguous(x, values):
    return x


def static_assert(condition, message=""):
    assert condition, message


def static_print(*values):
    print(*values)


def device_print(prefix, *values):
    print(prefix, *values)


def inline_asm_elementwise(*_, **__):
    raise NotImplementedError("inline assembly needs a GPU, and this is a page")


def dot(*_, **__):
    raise NotImplementedError("tl.dot does not exist here: tl.sum(a * b, axis) does the same")


class _Here:
    """The functions that `at` gives a line number."""

    load = staticmethod(load)
    store = staticmethod(store)
    atomic_add = staticmethod(atomic_add)
    atomic_xchg = staticmethod(atomic_xchg)
    atomic_max = staticmethod(atomic_max)
    atomic_cas = staticmethod(atomic_cas)
