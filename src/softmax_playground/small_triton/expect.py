"""What programs state of their results."""

from .memory import INF
from .verdict import differences, plain


def expect(actual, expected, within=1e-4):
    """Raise AssertionError, and say where, unless numbers agree.

    Args:
        actual, expected: numbers, (lists of) lists of them, or tensors of one shape.
        within: largest difference. Two NaN are equal, and so are two infinities of one sign.

    >>> expect([1.0, 2.0], [1.0, 2.5])
    Traceback (most recent call last):
        ...
    AssertionError: element 1 is 2.0 but should be 2.5
    """
    found = differences(plain(actual), plain(expected), lambda a, b: abs(a - b) <= within)
    if found is None:
        raise AssertionError("the result has another shape than expected")
    for place, is_, should in found[:1]:
        where = "element " + ", ".join([str(i) for i in place]) if place else "the result"
        raise AssertionError(f"{where} is {_short(is_)} but should be {_short(should)}")


def _short(number):
    return f"{number:.5g}" if abs(number) < INF and number != int(number) else str(number)
