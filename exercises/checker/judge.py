"""Right or wrong, and where: runs under CPython and MicroPython."""

import math


class Wrong(Exception):
    """The reader's code does not do what it should; the message says what differs and where."""


def shown(value):
    """A number as messages write it.

    >>> shown(0.5), shown(float("-inf")), shown(1e-7), shown(3)
    ('0.5', '-inf', '1e-07', '3')
    """
    if isinstance(value, float) and value == value and abs(value) != math.inf:
        return "%.6g" % value
    return str(value)


def is_close(got, want):
    if want != want:
        return got != got
    if abs(want) == math.inf or abs(got) == math.inf:
        return got == want
    return abs(got - want) <= 1e-5 + 1e-4 * abs(want)


def compare(got, want, what="the result", known=None):
    """Nothing if `got`, a number or nested lists, is `want`.

    Args:
        known: a function from a position to a word of what is known of that element, or None.

    Raises:
        Wrong: it is not; says which element is the first that differs, and how many do.
    """
    wrong, count = _differences(got, want, what, ())
    if not wrong:
        return
    name, at, mine, right = wrong[0]
    message = "%s is %s and should be %s." % (name, shown(mine), shown(right))
    word = known(at) if known else None
    if word:
        message += " " + word
    elif isinstance(mine, float) and mine != mine:
        message += " NaN comes from 0/0, inf - inf, or from a place that nobody wrote."
    if count > 1:
        message += " %d of %d numbers differ." % (len(wrong), count)
    raise Wrong(message)


def _differences(got, want, name, at):
    if isinstance(want, (list, tuple)):
        if not isinstance(got, (list, tuple)):
            raise Wrong("%s is %r and should be a list of %d." % (name, got, len(want)))
        if len(got) != len(want):
            raise Wrong("%s has length %d and should have %d." % (name, len(got), len(want)))
        wrong, count = [], 0
        for i in range(len(want)):
            more, size = _differences(got[i], want[i], "%s[%d]" % (name, i), at + (i,))
            wrong += more
            count += size
        return wrong, count
    if isinstance(got, bool) or not isinstance(got, (int, float)):
        raise Wrong("%s is %r and should be the number %s." % (name, got, shown(want)))
    return ([] if is_close(got, want) else [(name, at, got, want)]), 1


def outside(kind, name, program, place, size, between=False):
    """An access that must not happen, in words."""
    verb = "reads" if kind == "load" else "writes"
    text = "Program %s %s %s out of range: " % (program, verb, name)
    if between:
        return text + "element %d of its memory lies between two rows." % place
    if place < 0:
        return text + "%d before its first element." % -place
    return text + "element %d, and the last one is %d. Is the mask right?" % (place, size - 1)


def needs(names, what):
    """A function of the reader's.

    Raises:
        Wrong: it is not there any more.
    """
    if what not in names:
        raise Wrong("There is no `%s` any more; the check calls it by that name." % what)
    return names[what]


def unfilled(source):
    """Lines, from 1, that still have an ellipsis to fill in."""
    found = []
    for number, line in enumerate(source.split("\n")):
        if "..." in line.split("#")[0]:
            found.append(number + 1)
    return found


def verdict(check, source, load, lab, line_of):
    """(solved, message) for the reader's source.

    Args:
        check: a function of `checks`.
        source: what the reader wrote.
        load: runs it and answers its names.
        lab: where kernels run.
        line_of: from an exception to the line of the source where it happened, or None.
    """
    left = unfilled(source)
    if left:
        lines = "line " + str(left[0]) if len(left) == 1 else "lines " + _listed(left)
        return False, "There is a ... left to fill in, in %s." % lines
    try:
        said = check(load(), lab)
    except Wrong as error:
        return False, str(error)
    except Exception as error:
        return False, _failure(error, line_of(error))
    return True, said or "Right."


def _listed(numbers):
    return ", ".join([str(each) for each in numbers[:-1]]) + " and " + str(numbers[-1])


def _failure(error, line):
    where = " in line %d" % line if line else ""
    text = str(error)
    return "%s%s%s" % (type(error).__name__, where, ": " + text if text else "")
