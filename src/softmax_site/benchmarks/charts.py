"""Charts as SVG, drawn when the site is built.

Places are percentages, so a chart fits any width without its words shrinking; colours come from the
style sheet, so it follows light and dark. A small script adds what moves: which series show, and
what stands under the pointer. Without it the chart is complete, but for the series that wait.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import NamedTuple

from softmax_bench.roster import CHOOSER, COPY

HEIGHT = 250
"""Of the area with series over columns, in CSS pixels; the labels need it to keep apart."""

BEST = "best"
SIGNED = {CHOOSER: "ours", BEST: "best", "torch": "torch", COPY: "copy"}
"""Whoever has a mark and a colour, by class; the others are letters, told apart without colours."""

LETTERS = {
    **{"torch.compile": "C", "three_loops": "3", "two_loops": "2", "single_block": "1"},
    "descriptors": "T",
}
"""A letter is the first of the name, but for these."""


class Series(NamedTuple):
    """One provider, or the best of several."""

    key: str
    label: str
    shown: bool = True


@dataclass
class Column:
    """A place on the x axis: a length, or a shape."""

    label: str
    values: dict[str, float]
    """By series."""
    tip: list[str] = field(default_factory=list)
    """At most four lines."""
    href: str = ""
    bold: bool = False


def halves(title: str, said: Sequence[str]) -> list[str]:
    """A tip of three lines: the title, and two of what is said."""
    half = (len(said) + 1) // 2
    return [title, ", ".join(said[:half]), ", ".join(said[half:])]


def tag(name: str, content: str = "", /, **attributes) -> str:
    """An element; numbers are rounded, and what is None is left out.

    >>> tag("text", "1", class_="tick", x=0.333, dy=None)
    '<text class="tick" x="0.33">1</text>'
    """
    written = ""
    for key, value in attributes.items():
        if value is not None:
            text = f"{value:.2f}" if isinstance(value, float) else value
            written += f' {key.rstrip("_").replace("_", "-")}="{text}"'
    return f"<{name}{written}>{content}</{name}>" if content else f"<{name}{written}/>"


def per_cent(value: float) -> str:
    """A place as an attribute."""
    return f"{value:.2f}%"


class Scale:
    """Where values are on an axis, in per cent of its length from the first tick to the end."""

    def __init__(self, ticks: Sequence[float], log: bool = False, end: float | None = None):
        self.ticks, self.log = ticks, log
        self.low, self.high = self._at(ticks[0]), self._at(ticks[-1] if end is None else end)

    def _at(self, value: float) -> float:
        return math.log(value) if self.log else value

    def __call__(self, value: float) -> float:
        """What lies beyond an end of a logarithmic axis stands on it."""
        at = math.inf if math.isinf(value) else self._at(value) if value > 0 else -math.inf
        if self.log:
            at = min(max(at, self.low), self.high)
        return 100 * (max(at, self.low) - self.low) / (self.high - self.low)


def rising(top: float, low: float = 0.0, log: bool = False) -> list[float]:
    """Round numbers from zero to at least `top`; or, growing about threefold, from at most `low`.

    >>> rising(4180.0), rising(2828.9, 37.6, log=True)
    ([0.0, 2000.0, 4000.0, 6000.0], [30.0, 100.0, 300.0, 1000.0, 3000.0])
    """
    if log:
        every = [factor * 10.0**power for power in range(-3, 9) for factor in (1, 3)]
        below = [tick for tick in every if tick <= low][-1:]
        within = [tick for tick in every if low < tick < top]
        return [*below, *within, next(tick for tick in every if tick >= top)]
    size = 10 ** math.floor(math.log10(top / 4))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= top / 4)
    return [float(step * at) for at in range(math.ceil(top / step - 1e-9) + 1)]


def mark(key: str, x: float, y: float, side: str = "") -> str:
    """The mark of a series: a dot, a square, a ring, a dash or a letter."""
    at = {"x": per_cent(x), "y": per_cent(y)}
    css = SIGNED.get(key)
    if css in ("ours", "torch"):
        return tag("circle", class_=css, cx=at["x"], cy=at["y"], r=5.5 if css == "ours" else 4)
    if css:
        w, h = (8, 8) if css == BEST else (10, 3)
        middle = f"translate({-w / 2:g} {-h / 2:g})"
        return tag("rect", class_=css, **at, width=w, height=h, transform=middle)
    return tag("text", LETTERS.get(key, key[0].upper()), class_=f"letter{side}", **at)


FLAT = 110
"""Characters that fit side by side below a chart; more of them take two lines, or are turned."""


def over_columns(
    title: str,
    alt: str,
    columns: Sequence[Column],
    series: Sequence[Series],
    unit: str = "share",
    lines: bool = False,
    log: bool = False,
    spread: bool = False,
) -> str:
    """Series over columns, as marks or as lines; `spread` gives each series a place of its own
    within a column, so that equal values stay apart."""
    drawn = [s for s in series if any(s.key in column.values for column in columns)]
    values = [value for column in columns for value in column.values.values()] or [1.0]
    if unit == "share" and not log:
        most = 1.0
        while most + 0.09 < max(values):
            most += 0.25
        scale = Scale([at * 0.25 for at in range(round(most * 4) + 1)], end=most + 0.09)
    else:
        scale = Scale(rising(max(values), min(values), log), log)

    def tick(value: float) -> str:
        return f"{value:.0%}".replace("%", " %") if unit == "share" else f"{value:,.0f}"

    parts, bands = [_grid(scale, tick)], []
    width, every = 100 / len(columns), max(1, round(len(columns) / 22))
    named = [at for at, column in enumerate(columns) if column.bold or at % every == 0]
    longest = max(len(column.label) for column in columns)
    of_lines = len(named) * (longest + 1) / FLAT
    for at, column in enumerate(columns):
        place = {"x": per_cent(at * width), "y": 0, "width": per_cent(width), "height": "100%"}
        middle = per_cent((at + 0.5) * width)
        if column.bold and not lines:
            parts.append(tag("rect", class_="odd", **place))
        if at in named:
            text = tag("text", escape(column.label), class_="bold" if column.bold else None)
            css = "tick" + " low" * (of_lines > 1 and named.index(at) % 2)
            parts.append(tag("svg", text, class_=css, x=middle, y="100%"))
        there = (s for s in drawn if s.shown and s.key in column.values and s.key in SIGNED)
        seen = [scale(column.values[s.key]) for s in there]
        if len(seen) > 1 and not lines and not spread:
            ends = {"y1": per_cent(100 - min(seen)), "y2": per_cent(100 - max(seen))}
            parts.append(tag("line", class_="stem", x1=middle, x2=middle, **ends))
        tip = escape("\n".join(column.tip[:4]), quote=True).replace("\n", "&#10;")
        href = escape(column.href)
        bands.append(tag("rect", class_="band", **place, data_tip=tip, data_href=href))
    for order, each in reversed(list(enumerate(drawn))):
        # Those shown at first share a column, which fits on a phone; the others stand between.
        alike = [one for one in drawn if one.shown == each.shown]
        place = (alike.index(each) + (0.5 if each.shown else 1)) / len(alike)
        aside = 0.95 * (place - 0.5) if spread else 0.0
        found = [
            ((at + 0.5 + aside) * width, 100 - scale(column.values[each.key]))
            for at, column in enumerate(columns)
            if each.key in column.values
        ]
        side, content = "" if spread or lines else (" left", " right")[order % 2], ""
        if lines:
            path = " ".join(f"{x:.2f},{y:.2f}" for x, y in found)
            line = tag("polyline", class_=SIGNED.get(each.key, "other"), points=path)
            content = tag("svg", line, viewBox="0 0 100 100", preserveAspectRatio="none")
            found = found[-1:]  # one mark, which says whose line it is
        content += "".join(mark(each.key, x, y, side) for x, y in found)
        parts.append(tag("g", content, data_series=each.key, class_=None if each.shown else "off"))
    if not spread:
        parts.append(_labels(drawn, columns[-1], scale))
    keys = ""
    for each in drawn:
        sample = tag("svg", mark(each.key, 50, 50), class_="key", aria_hidden="true")
        keys += (
            f'<button type="button" disabled aria-pressed="{str(each.shown).lower()}" '
            f'data-series="{each.key}">{sample}{escape(each.label)}</button>'
        )
    css = "plot" + " lines" * lines + " flat" * (of_lines <= 2.2)
    picture = tag("svg", "\n".join(parts + bands), role="img", aria_label=escape(alt))
    name = escape(title)
    return (
        f'<div class="{css}">\n<p class="plot-title">{name}</p>\n'
        f'<p class="plot-keys">{keys}</p>\n'
        f'<div class="plot-area" data-label="{name}" style="--longest: {longest}">{picture}'
        '<div class="plot-tip" role="status"></div></div></div>'
    )


def _grid(scale: Scale, name) -> str:
    """The lines of an upright axis with their names."""
    return "".join(
        tag("line", class_="grid" + " one" * (scale.log and tick == 1), x1=0, x2="100%", y1=y, y2=y)
        + tag("text", name(tick), class_="tick-y", x=0, dx=-8, y=y, dy=4)
        for tick in scale.ticks
        for y in [per_cent(100 - scale(tick))]
    )


def _labels(drawn: Sequence[Series], last: Column, scale: Scale) -> str:
    """Names of the first series, beside their last marks and clear of each other."""
    wanted = [s for s in drawn if s.shown and s.key in last.values and s.key in SIGNED]
    out, floor = "", -8.0
    for each in sorted(wanted, key=lambda s: -scale(last.values[s.key])):
        floor = max((100 - scale(last.values[each.key])) * HEIGHT / 100, floor + 17)
        css, text = f"label {SIGNED[each.key]}", escape(each.label)
        out += tag("text", text, class_=css, x="100%", dx=14, y=f"{floor:.0f}", dy=4)
    return out


def _framed(title: str, rest: str, css: str, height: int, parts: Iterable[str]) -> str:
    said = {"role": "img", "aria_label": escape(f"{title}. {rest}")}
    picture = tag("svg", "\n".join(parts), **said, style=f"height: {height + 30}px")
    return f'<div class="{css}"><p class="plot-title">{escape(title)}</p>{picture}</div>'


def strip(
    title: str,
    alt: str,
    errors: dict[str, list[float]],
    ours: str,
    powers: tuple[int, int],
    endless: bool,
) -> str:
    """A mark per value on a logarithmic axis of powers of ten, a line per name; the worst is
    ringed. What is below the axis stands at its left end, and with `endless` ∞ at its right."""
    low, high = powers
    scale = Scale([10.0**power for power in range(low, high + 1)], log=True)
    height = 26 * len(errors)
    parts = []
    for power, tick in zip(range(low, high + 1), scale.ticks, strict=True):
        name = "10" + str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        name = "∞" if power == high and endless else f"≤{name}" if power == low else name
        x = per_cent(scale(tick))
        parts.append(tag("line", class_="grid", x1=x, x2=x, y1=0, y2=height))
        css = "tick-x" + " first" * (power == low)
        parts.append(tag("text", name, class_=css, x=x, y=height + 20))
    for at, (label, found) in enumerate(errors.items()):
        y, css = 26 * at + 14, "ours" if label == ours else "other"
        parts.append(tag("text", label, class_="tick-y", x=0, dx=-12, y=y + 4))
        places = dict.fromkeys(f"{scale(value):.1f}%" for value in sorted(found))
        parts += [tag("rect", class_=css, x=x, y=y - 6, width=2, height=12) for x in places]
        if found:
            worst = f"{scale(max(found)):.1f}%"
            parts.append(tag("circle", class_=f"{css} worst", cx=worst, cy=y, r=5))
    return _framed(title, alt, "strip", height, parts)


def scatter(
    title: str,
    alt: str,
    points: Iterable[tuple[float, float, str, str]],
    longest: int,
    ends: tuple[float, float],
) -> str:
    """A mark per (length, factor, words, class): a dot, or a triangle of the class `behind`. The
    axis of lengths ends at the power `longest` of two."""
    height = 280
    across = Scale([2.0**power for power in range(1, longest + 1)], log=True)
    first, last = (round(math.log2(end)) for end in ends)
    up = Scale([2.0**power for power in range(first, last + 1)], log=True)
    parts = [_grid(up, lambda tick: f"{tick:g} ×")]
    for length, factor, words, css in points:
        x, y = per_cent(across(length)), per_cent(100 - up(factor))
        said = tag("title", escape(words))
        if css.startswith("behind"):
            triangle = tag("path", said, class_=css, d="M-5 -4h10l-5 9z")
            parts.append(tag("svg", triangle, x=x, y=y, class_="at"))
        else:
            parts.append(tag("circle", said, class_=css, cx=x, cy=y, r=3.5))
    ticks = [
        tag("text", f"{tick:,.0f}", class_="tick-x", x=per_cent(across(tick)), y=height + 20)
        for tick in across.ticks[::3]
    ]
    area = tag("svg", "\n".join(parts), class_="area", height=height, width="100%")
    return _framed(title, alt, "strip scatter", height, [area, *ticks])
