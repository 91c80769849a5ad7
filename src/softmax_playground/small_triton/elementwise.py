"""Functions of each element: `tl.where`, `tl.exp` and their like."""

import builtins
import math

from .memory import INF, NAN, float32, float64
from .tiles import Tile, arithmetic, common_shape, lost, pair, promoted, spread, tile_of


def where(condition, x, y):
    condition = tile_of(condition)
    x, y = pair(x, y)
    to = promoted(x.dtype, y.dtype)
    shape = common_shape(condition.shape, x.shape, y.shape)
    masked = lost(shape, *[each for each in (x, y) if each.shape])
    x, y = spread(x.to(to), shape), spread(y.to(to), shape)
    data = [b if a else c for a, b, c in zip(spread(condition, shape), x, y)]
    return Tile(data, shape, to, masked)


def maximum(x, y):
    """The larger one; a NaN is not one, unless both are."""
    return arithmetic(x, y, lambda a, b: [larger(x, y) for x, y in zip(a, b)])


def minimum(x, y):
    return arithmetic(x, y, lambda a, b: [smaller(x, y) for x, y in zip(a, b)])


def larger(x, y):
    return x if x >= y or y != y else y


def smaller(x, y):
    return x if x <= y or y != y else y


def abs(x):  # noqa: A001 (its name in Triton)
    return Tile([builtins.abs(v) for v in x.data], x.shape, x.dtype, x.masked)


def _power_of_two(v):
    return 2.0**v if v < 1024 or v != v else INF


def _exponential(v):
    return math.exp(v) if v < 709 or v != v else INF


def _logarithm(v):
    if v > 0:
        return math.log(v) if v != INF else INF
    return -INF if v == 0 else NAN


def _elementwise(function):
    def of(x):
        x = tile_of(x)
        if x.dtype not in (float32, float64):
            raise TypeError(
                f"Triton takes this of float32 only, not of {x.dtype}: x.to(tl.float32)"
            )
        return Tile(x.dtype.round([function(v) for v in x.data]), x.shape, x.dtype, x.masked)

    return of


exp2, exp, log = _elementwise(_power_of_two), _elementwise(_exponential), _elementwise(_logarithm)
log2 = _elementwise(lambda v: _logarithm(v) / 0.6931471805599453)
sqrt = _elementwise(lambda v: math.sqrt(v) if v >= 0 else NAN)
