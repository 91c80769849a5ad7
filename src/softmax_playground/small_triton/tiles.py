"""Tiles of numbers, tiles of addresses, and what operators do with them.

A tile is a flat list with a shape and a type. Every operation computes in double precision and
rounds its result to the type, which gives the bits of IEEE arithmetic in that type.
"""

import builtins
import math

from .memory import INF, NAN, bfloat16, float16, float32, float64, int1, int32, int64, pointer_type

# ---- Operators, on lists of equal length ----


def add(a, b):
    return [x + y for x, y in zip(a, b)]


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


def both_ways(function, division=False):
    """An operator, and the same with a number on its left."""
    return (
        lambda self, other: arithmetic(self, other, function, division),
        lambda self, other: arithmetic(other, self, function, division),
    )


def comparison(function):
    return lambda self, other: compare(self, other, function)


# ---- Tiles ----


class Tile:
    """Numbers with a shape and a type; shape () is one number.

    Attributes:
        masked: None, or for each lane whether what it has comes from where a mask left it out.
    """

    def __init__(self, data, shape, dtype, masked=None):
        self.data = data
        self.shape = shape
        self.dtype = dtype
        self.masked = masked

    type = property(lambda self: self.dtype)
    T = property(lambda self: self.trans())

    def __repr__(self):
        return str(self.data)  # as the interpreter prints it

    def __bool__(self):
        if len(self.data) != 1:
            raise ValueError("a condition is one number, and this is a tile: use tl.where")
        return bool(self.data[0])

    def __int__(self):
        if len(self.data) != 1 or self.dtype.kind == "float":
            raise TypeError("Python's functions take no tile: tl.exp, tl.sum and the like do")
        return int(self.data[0])

    __index__ = __int__

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
        return Tile(self.data, tuple(shape + left), self.dtype, self.masked)

    def __getattr__(self, name):
        """`x.sum(axis=0)` is `tl.sum(x, axis=0)`."""
        from . import language

        function = getattr(language, name)
        return lambda *arguments, **named: function(self, *arguments, **named)

    def to(self, to, bitcast=False):
        if bitcast:
            return Tile(to.from_bits(self.dtype.bits(self.data)), self.shape, to, self.masked)
        if to is self.dtype:
            return self
        return Tile(to.cast(self.data), self.shape, to, self.masked)

    __add__, __radd__ = both_ways(add)
    __sub__, __rsub__ = both_ways(lambda a, b: [x - y for x, y in zip(a, b)])
    __mul__, __rmul__ = both_ways(lambda a, b: [x * y for x, y in zip(a, b)])
    __truediv__, __rtruediv__ = both_ways(_divide, division=True)
    __floordiv__, __rfloordiv__ = both_ways(_quotient)
    __mod__, __rmod__ = both_ways(_remainder)
    __and__, __rand__ = both_ways(lambda a, b: [x & y for x, y in zip(a, b)])
    __or__, __ror__ = both_ways(lambda a, b: [x | y for x, y in zip(a, b)])
    __xor__, __rxor__ = both_ways(lambda a, b: [x ^ y for x, y in zip(a, b)])
    __rshift__, __rrshift__ = both_ways(lambda a, b: [x >> y for x, y in zip(a, b)])

    __lt__ = comparison(lambda a, b: [x < y for x, y in zip(a, b)])
    __le__ = comparison(lambda a, b: [x <= y for x, y in zip(a, b)])
    __gt__ = comparison(lambda a, b: [x > y for x, y in zip(a, b)])
    __ge__ = comparison(lambda a, b: [x >= y for x, y in zip(a, b)])
    __eq__ = comparison(lambda a, b: [x == y for x, y in zip(a, b)])
    __ne__ = comparison(lambda a, b: [x != y for x, y in zip(a, b)])
    __hash__ = None

    def __lshift__(self, other):
        found = arithmetic(self, other, lambda a, b: [x << y for x, y in zip(a, b)])
        return Tile(found.dtype.cast(found.data), found.shape, found.dtype)

    def __invert__(self):
        if self.dtype is int1:
            return Tile([not x for x in self.data], self.shape, int1)
        return Tile([~x for x in self.data], self.shape, self.dtype)

    def __neg__(self):
        return Tile([-x for x in self.data], self.shape, self.dtype, self.masked)


class Pointer:
    """Addresses of elements of a tensor: its memory, and a tile of offsets in it."""

    def __init__(self, tensor, offsets, element_ty=None):
        self.tensor = tensor
        self.offsets = offsets
        self.shape = offsets.shape
        self.element_ty = element_ty or tensor.dtype
        self.dtype = pointer_type(self.element_ty)

    type = property(lambda self: self.dtype)
    data = property(lambda self: tile_of(self))  # says that it is not a number

    def __add__(self, other):
        return Pointer(self.tensor, self.offsets + tile_of(other), self.element_ty)

    def __radd__(self, other):
        return self + other

    def __sub__(self, other):
        return Pointer(self.tensor, self.offsets - other, self.element_ty)

    def __getitem__(self, key):
        if not self.shape:
            raise TypeError("a pointer has no elements: tl.load(x_ptr + i) reads one")
        return Pointer(self.tensor, self.offsets[key], self.element_ty)

    def __setitem__(self, key, value):
        raise TypeError("a pointer has no elements: tl.store(x_ptr + i, value) writes one")

    def to(self, to):
        """The same addresses of elements of another type."""
        if to.kind != "pointer":
            raise NotImplementedError("addresses as numbers do not exist here, only offsets")
        offsets = self.offsets * self.element_ty.size // to.element_ty.size
        return Pointer(self.tensor, offsets, to.element_ty)


class constexpr:  # noqa: N801 (its name in Triton)
    """A constant of a module. Beside a tile it is its value."""

    def __init__(self, value):
        self.value = value

    def __add__(self, other):
        return self.value + other

    def __mul__(self, other):
        return self.value * other

    __radd__, __rmul__ = __add__, __mul__

    def __rtruediv__(self, other):
        return other / self.value

    def __eq__(self, other):
        return self.value == other

    __hash__ = None


# ---- Two of them together ----


def tile_of(value, like=None):
    """A tile, or a number as a tile of the type that it takes beside another."""
    if isinstance(value, Tile):
        return value
    if isinstance(value, constexpr):
        value = value.value
    if isinstance(value, Pointer):
        raise TypeError("a pointer is not a number: tl.load reads what it points to")
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


def pair(a, b):
    """Both as tiles; a plain number takes the type of the other."""
    if isinstance(a, Tile):
        return a, tile_of(b, a.dtype)
    if isinstance(b, Tile):
        return tile_of(a, b.dtype), b
    return tile_of(a), tile_of(b)


def promoted(a, b):
    if a is b or a.rank > b.rank:
        # Neither of two 16-bit types holds the other.
        return float32 if (a is float16 and b is bfloat16) else a
    return float32 if (b is float16 and a is bfloat16) else b


def common_shape(*shapes):
    """The shape that all of them broadcast to."""
    found = builtins.max(shapes, key=len)
    if not [1 for shape in shapes if shape != found and shape != ()]:
        return tuple(found)
    rank = len(found)
    found = [1] * rank
    for shape in shapes:
        for i, size in enumerate((1,) * (rank - len(shape)) + tuple(shape)):
            if size != 1 and found[i] not in (1, size):
                found = " and ".join([str(s) for s in shapes])
                hint = "look for a [:, None] or [None, :] that is missing"
                raise ValueError(f"shapes do not fit: {found}; {hint}")
            if size != 1:
                found[i] = size
    return tuple(found)


def spread(tile, shape):
    """The numbers of a tile, broadcast to a shape."""
    if tile.shape == shape:
        return tile.data
    count = 1
    for size in shape:
        count *= size
    if len(tile.data) == count:
        return tile.data
    if len(tile.data) == 1:
        return tile.data * count
    padded = (1,) * (len(shape) - len(tile.shape)) + tile.shape
    places, step, steps = [0], 1, []
    for size in reversed(padded):
        steps.insert(0, 0 if size == 1 else step)
        step *= size
    for size, step in zip(shape, steps):
        places = [place + i * step for place in places for i in builtins.range(size)]
    data = tile.data
    return [data[place] for place in places]


def lost(shape, *tiles):
    """Which lanes of a result of that shape are masked: those that are masked in all tiles of the
    shape, or in one that is broadcast to it. A running maximum has met other tiles before."""
    if not [1 for each in tiles if each.masked]:
        return None
    own = [each.masked for each in tiles if each.shape == shape]
    found = [all(lanes) for lanes in zip(*own)] if own and None not in own else None
    for each in tiles:
        if each.masked and each.shape != shape:
            more = spread(Tile(each.masked, each.shape, int1), shape)
            found = [a or b for a, b in zip(found, more)] if found else more
    return found


def arithmetic(a, b, function, division=False):
    if isinstance(b, Pointer):
        return b + a
    a, b = pair(a, b)
    to = promoted(a.dtype, b.dtype)
    if function is _quotient and to.kind == "float":
        raise TypeError("Triton divides no floats by //: write /")
    if division and to not in (float32, float64):
        to = float32
    if a.dtype is not to:
        a = a.to(to)
    if b.dtype is not to:
        b = b.to(to)
    shape = common_shape(a.shape, b.shape)
    data = to.round(function(spread(a, shape), spread(b, shape)))
    return Tile(data, shape, to, lost(shape, a, b))


def compare(a, b, function):
    a, b = pair(a, b)
    shape = common_shape(a.shape, b.shape)
    return Tile(function(spread(a, shape), spread(b, shape)), shape, int1, lost(shape, a, b))
