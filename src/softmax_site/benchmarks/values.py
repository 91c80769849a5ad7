"""Numbers that pages quote by name.

A page writes `{{ forward.over_best:.2f }}`, and the build puts the number there. Names lead through
attributes and, in brackets, through keys; what follows a colon is a format of Python's. A name that
does not exist, or a number without a value, stops the build. So does a line `[[holds odd.over_best
> 1.1]]` whose comparison no longer holds: the sentence below it has to be written anew.

Whoever brings new data cannot do that at once. `python -m softmax_site.publish` lists what the
pages no longer have a right to say, and until the sentence has been written anew the build shows a
remark in the place of what is listed.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Collection, Iterator, Mapping
from statistics import geometric_mean, median
from string import Formatter
from typing import Any

from softmax_site.benchmarks.words import times


class Factor(float):
    """A ratio of speeds, which is never rounded to the other side of level."""

    def __format__(self, spec: str) -> str:
        return format(float(self), spec) if spec else times(self)


class Values(list[float]):
    """Some numbers: the ends, the middle, the geometric mean."""

    low = property(min)
    high = property(max)
    median = property(median)
    mean = property(geometric_mean)


class QuoteError(ValueError):
    """A number that a page asks for and that does not exist, or a claim that does not hold."""


QUOTE = re.compile(r"`[^`]*`|\{\{ ([a-z_][^{}:]*?)(?::([^{}]+))? \}\}")
HOLDS = re.compile(r"`[^`]*`|\[\[holds (\S+) (<=|>=|<|>|==) (\S+)\]\]")
_COMPARE = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
}
_LOOK_UP = Formatter()


def value_of(name: str, names: Mapping[str, Any]) -> Any:
    """The value of a name, or the number that it is.

    Raises:
        QuoteError: there is none.
    """
    if re.fullmatch(r"-?[\d.]+", name):
        return float(name)
    try:
        found = _LOOK_UP.get_field(name, (), names)[0]
    except (AttributeError, LookupError, TypeError, ValueError, ZeroDivisionError) as error:
        raise QuoteError(
            f"no number is named {name!r} ({error or type(error).__name__})"
        ) from error
    if found is None:
        raise QuoteError(f"{name!r} has no value: write the sentence anew")
    return found


def written(value: Any, spec: str | None) -> str:
    """A value as a page shows it: a number in an element that says it in full; of some numbers the
    ends.

    >>> written(1.2345, ".2f"), written("Liger", None), written(Values([0.02, 0.02]), ".0%")
    ('<data value="1.2345">1.23</data>', 'Liger', '<data value="0.02">2 %</data>')
    >>> re.sub("<[^>]*>", "", written(Values([3.2, 9.8, 4.0]), ".0f"))
    '3 to 10'
    """
    if isinstance(value, Values):
        ends = {format(end, spec or ""): written(end, spec) for end in (value.low, value.high)}
        return " to ".join(ends.values())
    if isinstance(value, str):
        return format(value, spec or "")
    if not isinstance(value, (int, float)) or (type(value) is float and not spec):
        raise QuoteError(f"{value!r} is no number, or needs a format as `:.2f`")
    text = format(value, spec or ("," if isinstance(value, int) else "")).replace("%", " %")
    return f'<data value="{float(value):.5g}">{text}</data>'


UNSAID = "docs/benchmarks/unsaid.json"
"""What the pages say and the newest data do not: claims and numbers as they are written there, and
what they include."""


def filled(
    text: str, names: Mapping[str, Any], bare: bool = False, unsaid: Collection[str] = ()
) -> str:
    """A text with its numbers; `bare` of HTML. Inline code stays as it is, and of what is `unsaid`
    a remark takes the place.

    >>> filled("[[holds a > 1]]`{{ a:.1f }}` is {{ a:.1f }}.", {"a": 2.04}, bare=True)
    '`{{ a:.1f }}` is 2.0.'
    >>> filled("[[holds a > 3]]It is {{ b }}.", {"a": 2}, True, ["[[holds a > 3]]", "{{ b }}"])
    '(The newest measurement does not bear this out: `a > 3`.) It is (not measured).'

    Raises:
        QuoteError: a name does not exist, or a claim does not hold or does not compare two.
    """

    def remark(words: str) -> str:
        return words if bare else f'<span class="behind">{words}</span>'

    def number(found: re.Match) -> str:
        if not found[1]:
            return found[0]
        if found[0] in unsaid:
            return remark("(not measured)")
        shown = written(value_of(found[1], names), found[2])
        return re.sub("<[^>]+>", "", shown) if bare else shown

    def claim(found: re.Match) -> str:
        if not found[1]:
            return found[0]
        if found[0] in unsaid:
            what = found[0][len("[[holds ") : -2]
            return remark(f"(The newest measurement does not bear this out: `{what}`.)") + " "
        left, right = (value_of(found[at], names) for at in (1, 3))
        if not _COMPARE[found[2]](left, right):
            raise QuoteError(f"{found[0]}: it is {left} and {right}; write the sentence anew")
        return ""

    text = HOLDS.sub(claim, text)
    if "[[holds " in re.sub(r"`[^`]*`", "", text):
        raise QuoteError(f"{text!r} does not compare two numbers")
    return QUOTE.sub(number, text)


def faults(text: str, names: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The claims of a text that do not hold and the numbers that it has not got, as they are
    written there, each with what is wrong with it.

    >>> list(faults("[[holds a > 3]]It is {{ a }}, not {{ a.b }}.", {"a": 2}))[0]
    ('[[holds a > 3]]', '[[holds a > 3]]: it is 2 and 3.0; write the sentence anew')
    """
    for pattern in (HOLDS, QUOTE):
        for found in pattern.finditer(text):
            if found[1]:
                try:
                    filled(found[0], names)
                except QuoteError as error:
                    yield found[0], str(error)
