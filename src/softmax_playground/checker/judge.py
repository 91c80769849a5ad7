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
        return f"{value:.6g}"
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
    message = f"{name} is {shown(mine)} but should be {shown(right)}."
    word = known(at) if known else None
    if word:
        message += " " + word
    elif isinstance(mine, float) and mine != mine:
        message += " NaN comes from 0/0, inf - inf, or from a place that nobody wrote."
    if count > 1:
        message += f" {len(wrong)} of {count} numbers differ."
    raise Wrong(message)


def _differences(got, want, name, at):
    if isinstance(want, (list, tuple)):
        if not isinstance(got, (list, tuple)):
            raise Wrong(f"{name} is {got!r} but should be a list of {len(want)}.")
        if len(got) != len(want):
            raise Wrong(f"{name} has length {len(got)} and should have {len(want)}.")
        wrong, count = [], 0
        for i in range(len(want)):
            more, size = _differences(got[i], want[i], f"{name}[{i}]", at + (i,))
            wrong += more
            count += size
        return wrong, count
    if isinstance(got, bool) or not isinstance(got, (int, float)):
        raise Wrong(f"{name} is {got!r} but should be the number {shown(want)}.")
    return ([] if is_close(got, want) else [(name, at, got, want)]), 1


def outside(kind, name, program, place, size, between=False):
    """An access that must not happen, in words."""
    verb = "reads" if kind == "load" else "writes"
    text = f"Program {program} {verb} {name} out of range: "
    if between:
        return text + f"element {place} of its memory lies between two rows."
    if place < 0:
        return text + f"{-place} before its first element."
    return text + f"element {place}, and the last one is {size - 1}. Is the mask right?"


def needs(names, what):
    """A function of the reader's.

    Raises:
        Wrong: it is not there any more.
    """
    if what not in names:
        raise Wrong(f"There is no `{what}` any more; the check calls it by that name.")
    return names[what]


def unfilled(source):
    """Lines, from 1, that still have an ellipsis to fill in."""
    found = []
    for number, line in enumerate(source.split("\n")):
        if "..." in line.split("#")[0]:
            found.append(number + 1)
    return found


def verdict(check, source, load, lab, line_of):
    """(solved, message, line) for the reader's source; the line is where it fails, from 1, or 0.

    Args:
        check: a function of `exercise_checks`.
        source: what the reader wrote.
        load: runs it and answers its names.
        lab: where kernels run.
        line_of: from an exception to the line of the source where it happened, or None.
    """
    left = unfilled(source)
    if left:
        lines = "line " + str(left[0]) if len(left) == 1 else "lines " + _listed(left)
        return False, f"There is a ... left to fill in, in {lines}.", left[0]
    try:
        said = check(load(), lab)
    except Wrong as error:
        return False, str(error), 0
    except Exception as error:
        line = line_of(error) or 0
        return False, _failure(error, line), line
    return True, said, 0


def _listed(numbers):
    return ", ".join([str(each) for each in numbers[:-1]]) + " and " + str(numbers[-1])


def _failure(error, line):
    where = f" in line {line}" if line else ""
    text = str(error)
    return "{}{}{}".format(type(error).__name__, where, ": " + text if text else "")
