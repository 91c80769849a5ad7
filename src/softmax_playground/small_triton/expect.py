"""What programs state of their results."""

from .memory import INF


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
    _compare(_plain(actual), _plain(expected), within, ())


def _plain(value):
    return value.tolist() if hasattr(value, "tolist") else value


def _compare(actual, expected, within, place):
    if isinstance(expected, (list, tuple)):
        if not isinstance(actual, (list, tuple)) or len(actual) != len(expected):
            raise AssertionError(f"{_at(place)} has another shape than expected")
        for i in range(len(expected)):
            _compare(actual[i], expected[i], within, place + (i,))
        return
    same = actual == expected or (actual != actual and expected != expected)
    finite = abs(actual) < INF and abs(expected) < INF
    if not same and not (finite and abs(actual - expected) <= within):
        wanted = _short(expected)
        raise AssertionError(f"{_at(place)} is {_short(actual)} but should be {wanted}")


def _at(place):
    return "element " + ", ".join([str(i) for i in place]) if place else "the result"


def _short(number):
    return f"{number:.5g}" if abs(number) < INF and number != int(number) else str(number)
