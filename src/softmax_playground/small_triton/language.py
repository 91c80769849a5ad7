"""What kernels call `tl`: what makes tiles, and everything of the modules beside this one."""

# ruff: noqa: A004, F401, I001  (a kernel finds these names here)

import builtins
import sys

from .access import State, atomic_add, atomic_cas, atomic_xchg, load, store
from .access import again, back, seen, turns
from .elementwise import abs, exp, exp2, log, log2, maximum, minimum, sqrt, where
from .memory import bfloat16, float16, float32, float64, int1, int16, int32, int64, pointer_type
from .memory import product
from .reductions import argmax, argmin, associative_scan, cumsum, dot, max, min, reduce, sort, sum
from .reductions import topk
from .tiles import Tile, constexpr, lost, spread, tile_of


def constexpr_function(function):
    return function


def program_id(axis):
    return Tile([State.place[axis]], (), int32)


def num_programs(axis):
    return Tile([State.grid[axis]], (), int32)


def arange(start, end):
    start, end = [getattr(each, "value", each) for each in (start, end)]
    count = end - start
    if count <= 0 or count & (count - 1):
        raise ValueError(f"arange's range must be a power of 2, and {count} is not")
    return Tile(list(builtins.range(start, end)), (count,), int32)


def full(shape, value, dtype):
    if isinstance(shape, int):
        raise TypeError("a shape is a tuple, such as (BLOCK,)")
    shape = powers_of_two(shape)
    return Tile(spread(tile_of(value, dtype).to(dtype), shape), shape, dtype)


def powers_of_two(shape):
    for size in shape:
        if size & (size - 1):
            raise ValueError(f"Triton's shapes are powers of 2, and {size} is none")
    return tuple(shape)


def zeros(shape, dtype):
    return full(shape, 0, dtype)


def zeros_like(x):
    return full(x.shape, 0, x.dtype)


def full_like(x, value):
    return full(x.shape, value, x.dtype)


def cast(x, to, bitcast=False):
    return tile_of(x).to(to, bitcast)


def broadcast_to(x, *shape):
    shape = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
    return Tile(spread(x, shape), powers_of_two(shape), x.dtype, lost(shape, x))


def expand_dims(x, axis):
    axis = axis if axis >= 0 else axis + len(x.shape) + 1
    return Tile(x.data, x.shape[:axis] + (1,) + x.shape[axis:], x.dtype, x.masked)


def reshape(x, *shape):
    shape = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
    if product(shape) != len(x.data):
        raise ValueError(f"a tile of shape {x.shape} has not the shape {shape}")
    return Tile(x.data, shape, x.dtype, x.masked)


def trans(x):
    rows, cols = x.shape
    turn = [i * cols + j for j in builtins.range(cols) for i in builtins.range(rows)]
    masked = x.masked and [x.masked[place] for place in turn]
    return Tile([x.data[place] for place in turn], (cols, rows), x.dtype, masked)


def sigmoid(x):
    return 1 / (1 + exp(-x))


def fdiv(x, y, ieee_rounding=False):
    return x / y


div_rn = fdiv
math = sys.modules[__name__]
"""`tl.math.exp` is `tl.exp`."""


def softmax(x, dim=None, keep_dims=False, ieee_rounding=False):
    """Of the first dimension, unless it is said which."""
    e = exp(x - max(x, dim or 0, keep_dims))
    return e / sum(e, dim or 0, keep_dims)


def static_range(*bounds):
    return range(*bounds)


def range(*bounds, num_stages=None):  # noqa: A001 (its name in Triton)
    return builtins.range(*[int(bound) for bound in bounds])


def cdiv(a, b):
    """How many parts of size b hold a."""
    return (a + (b - 1)) // b


# ---- What does nothing here, or cannot be done ----


def debug_barrier(*_, **__):
    pass


def device_print(prefix, *values, hex=False):
    if not isinstance(prefix, str):
        raise TypeError('Triton prints a text first, as in print("x", x)')


static_print = debug_barrier


def static_assert(condition, message=""):
    assert condition, message


def inline_asm_elementwise(*_, **__):
    raise NotImplementedError("inline assembly needs a GPU, and this is a page")


TRITONS = """
    advance assume atomic_and atomic_max atomic_min atomic_or atomic_xor broadcast cat ceil clamp
    cos cumprod device_assert dot_scaled erf flip float8e4nv float8e5 floor fma gather histogram
    int8 interleave join load_tensor_descriptor make_block_ptr make_tensor_descriptor max_constancy
    max_contiguous multiple_of permute philox rand randint randn ravel reduce_or rsqrt sin split
    sqrt_rn squeeze store_tensor_descriptor swizzle2d uint16 uint32 uint64 uint8 umulhi unsqueeze
    view xor_sum
"""
"""Names of Triton's that are not here."""

OWN = "again back builtins lost seen spread tile_of turns"  # here, and no kernel's


def __getattr__(name):
    if name in TRITONS.split():
        raise AttributeError(f"tl.{name} is Triton's; it does not run in the page")
    known = [each for each in globals() if each not in OWN.split()] + TRITONS.split()
    near = [f"tl.{each}" for each in sorted(known) if _near(each, name)]
    rest = f"; did you mean {' or '.join(near)}?" if near else ", in Triton neither"
    raise AttributeError(f"there is no tl.{name}{rest}")


def _near(a, b):
    """Whether two names differ in one letter, or in two neighbours that have changed places."""
    while a and b and a[0] == b[0]:
        a, b = a[1:], b[1:]
    while a and b and a[-1] == b[-1]:
        a, b = a[:-1], b[:-1]
    return (len(a) < 2 and len(b) < 2) or (len(a) == 2 and a == b[1:] + b[:1])


def _of_python(name, of_two=None):
    """Python's function of a name, which in a kernel may mean one of Triton's of two values."""
    plain = getattr(builtins, name)

    def found(*values, **options):
        if not [value for value in values if isinstance(value, Tile)]:
            return plain(*values, **options)
        if of_two and (len(values) == 2 or name == "print"):
            return of_two(*values)
        raise TypeError(f"Python's {name} takes no tile: tl.{name} does")

    return found


PYTHONS = {
    "max": _of_python("max", maximum),
    "min": _of_python("min", minimum),
    "print": _of_python("print", device_print),
    "range": range,
}
"""What Python's own names mean in a kernel."""
