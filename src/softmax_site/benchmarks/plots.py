"""Plots as SVG, drawn when the site is built.

Places are percentages, so a plot fits any width without its words shrinking; colours come from the
style sheet, so it follows light and dark. A small script adds what moves: which series show, and
what stands under the pointer. Without it the plot is complete, but for the series that wait.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape

from softmax_bench.report import best_peer, by_case, ratio, timed
from softmax_bench.roster import CHOOSER, COPY, LIBRARIES, label_of
from softmax_site.benchmarks.data import anchor

HEIGHT = 250
"""Of the plotted area, in CSS pixels; the labels need it to keep apart."""

BEST = "best"
LETTERS = {
    "torch.compile": "C",
    "liger": "L",
    "flag_gems": "F",
    "quack": "Q",
    "naive": "N",
    "three_loops": "3",
    "two_loops": "2",
    "single_block": "1",
    "packed_rows": "P",
    "aligned_rows": "A",
    "split_rows": "S",
    "strided": "S",
    "megatron": "M",
    "pushed": "P",
}
"""The mark of everyone who has no sign of its own: told apart without colours."""


@dataclass
class Series:
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


@dataclass
class Plot:
    """A picture with marks over the columns, or with lines through them."""

    title: str
    alt: str
    columns: list[Column]
    series: list[Series]
    unit: str = "share"
    lines: bool = False
    log: bool = False
    """Equal factors are equally far apart, for values of several powers of ten."""
    spread: bool = False
    """Each series at a place of its own within a column, so that equal values stay apart."""

    @property
    def drawn(self) -> list[Series]:
        """Series with a value."""
        return [s for s in self.series if any(s.key in column.values for column in self.columns)]


def nice_ticks(top: float, count: int = 4) -> list[float]:
    """Round numbers from zero to at least `top`.

    >>> nice_ticks(4180.0)
    [0.0, 2000.0, 4000.0, 6000.0]
    """
    if top <= 0:
        return [0.0, 1.0]
    rough = top / count
    size = 10 ** math.floor(math.log10(rough))
    steps = (size * factor for factor in (1, 2, 2.5, 5, 10))
    step = next(step for step in steps if step >= rough)
    return [float(step * index) for index in range(math.ceil(top / step - 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Numbers that grow about threefold, from at most the lower to at least the higher one.

    >>> log_ticks(37.6, 2828.9)
    [30.0, 100.0, 300.0, 1000.0, 3000.0]
    """
    found = [factor * 10.0**power for power in range(-3, 9) for factor in (1, 3)]
    first = max(i for i, tick in enumerate(found) if tick <= low)
    last = min(i for i, tick in enumerate(found) if tick >= high)
    return found[first : last + 1]


class _Scale:
    def __init__(self, plot: Plot):
        values = [v for column in plot.columns for v in column.values.values()] or [1.0]
        top = max(values)
        self.log = plot.log
        if plot.log:
            self.ticks = log_ticks(min(values), top)
            self.top = self.ticks[-1]
        elif plot.unit == "share":
            self.ticks = [0.0, 0.25, 0.5, 0.75, 1.0]
            while self.ticks[-1] + 0.09 < top:
                self.ticks.append(self.ticks[-1] + 0.25)
            self.top = self.ticks[-1] + 0.09
        else:
            self.ticks = nice_ticks(top)
            self.top = self.ticks[-1]

    def y(self, value: float) -> float:
        """Per cent from the top."""
        if self.log:
            return 100 * math.log(self.top / value) / math.log(self.top / self.ticks[0])
        return 100 * (1 - value / self.top)


def _mark(key: str, x: float, y: float, side: str = "") -> str:
    at = f'"{x:.2f}%"', f'"{y:.2f}%"'
    if key == CHOOSER:
        return f'<circle class="ours" cx={at[0]} cy={at[1]} r="5.5"/>'
    if key == BEST:
        return (
            f'<rect class="best" x={at[0]} y={at[1]} width="8" height="8" '
            'transform="translate(-4 -4)"/>'
        )
    if key == "torch":
        return f'<circle class="torch" cx={at[0]} cy={at[1]} r="4"/>'
    if key == COPY:
        return (
            f'<rect class="copy" x={at[0]} y={at[1]} width="10" height="3" '
            'transform="translate(-5 -1.5)"/>'
        )
    letter = LETTERS.get(key, key[0].upper())
    return f'<text class="letter{side}" x={at[0]} y={at[1]}>{letter}</text>'


def _key(key: str) -> str:
    """The mark beside the name, in the row of buttons."""
    return f'<svg class="key" aria-hidden="true">{_mark(key, 50, 50)}</svg>'


def _labels(plot: Plot, scale: _Scale) -> str:
    """Names of the first series, beside their last marks and clear of each other."""
    wanted = []
    for series in plot.drawn:
        last = [c.values[series.key] for c in plot.columns[-1:] if series.key in c.values]
        if series.shown and last and series.key not in LETTERS and not plot.spread:
            wanted.append((scale.y(last[0]) * HEIGHT / 100, series))
    wanted.sort(key=lambda item: item[0])
    out, floor = [], -8.0
    for y, series in wanted:
        y = max(y, floor + 17)
        floor = y
        css = series.key if series.key in (BEST, "torch", COPY) else "ours"
        out.append(
            f'<text class="label {css}" x="100%" dx="14" y="{y:.0f}" dy="4">'
            f"{escape(series.label)}</text>"
        )
    return "".join(out)


def _tick(plot: Plot, value: float) -> str:
    return f"{value:.0%}".replace("%", " %") if plot.unit == "share" else f"{value:,.0f}"


def draw(plot: Plot) -> str:
    """The plot as HTML."""
    scale, count = _Scale(plot), len(plot.columns)

    def x_of(index: int, series: Series | None = None) -> float:
        aside = 0.0
        if plot.spread and series:
            aside = 0.8 * ((plot.drawn.index(series) + 0.5) / len(plot.drawn) - 0.5)
        return 100 * (index + 0.5 + aside) / count

    longest = max(len(column.label) for column in plot.columns)
    out = [
        f'<div class="plot{" lines" if plot.lines else ""}">',
        f'<p class="plot-title">{escape(plot.title)}</p>',
        '<p class="plot-keys">'
        + "".join(
            f'<button type="button" disabled aria-pressed="{str(s.shown).lower()}" '
            f'data-series="{s.key}">{_key(s.key)}{escape(s.label)}</button>'
            for s in plot.drawn
        )
        + "</p>",
        f'<div class="plot-area" data-label="{escape(plot.title)}" style="--longest: {longest}">'
        f'<svg role="img" aria-label="{escape(plot.alt)}">',
    ]
    for tick in scale.ticks:
        y = scale.y(tick)
        out.append(f'<line class="grid" x1="0" x2="100%" y1="{y:.2f}%" y2="{y:.2f}%"/>')
        out.append(
            f'<text class="tick-y" x="0" dx="-8" y="{y:.2f}%" dy="4">{_tick(plot, tick)}</text>'
        )
    width = 100 / count
    every = max(1, round(count / 22))
    for index, column in enumerate(plot.columns):
        if column.bold and not plot.lines:
            out.append(
                f'<rect class="odd" x="{index * width:.2f}%" width="{width:.2f}%" '
                'y="0" height="100%"/>'
            )
        if index % every and not column.bold:
            continue
        css = ' class="bold"' if column.bold else ""
        out.append(
            f'<svg class="tick" x="{x_of(index):.2f}%" y="100%">'
            f"<text{css}>{escape(column.label)}</text></svg>"
        )
    if plot.lines:
        out.append('<svg viewBox="0 0 100 100" preserveAspectRatio="none">')
        for series in plot.drawn:
            points = " ".join(
                f"{x_of(i):.2f},{scale.y(c.values[series.key]):.2f}"
                for i, c in enumerate(plot.columns)
                if series.key in c.values
            )
            css = series.key if series.key in (CHOOSER, BEST, "torch", COPY) else "other"
            css = "ours" if css == CHOOSER else css
            hidden = "" if series.shown else ' class="off"'
            out.append(
                f'<g data-series="{series.key}"{hidden}><polyline class="{css}" '
                f'points="{points}"/></g>'
            )
        out.append("</svg>")
    else:
        for index, column in enumerate(plot.columns):
            ys = [
                scale.y(column.values[s.key])
                for s in plot.drawn
                if s.shown and s.key in column.values and s.key not in LETTERS
            ]
            if len(ys) > 1 and not plot.spread:
                x = f"{x_of(index):.2f}%"
                out.append(
                    f'<line class="stem" x1="{x}" x2="{x}" y1="{min(ys):.2f}%" '
                    f'y2="{max(ys):.2f}%"/>'
                )
    for order, series in reversed(list(enumerate(plot.drawn))):
        marks = plot.columns
        side = "" if plot.spread or plot.lines else (" left", " right")[order % 2]
        if plot.lines:  # one mark, which says whose line it is
            marks = [next(c for c in reversed(plot.columns) if series.key in c.values)]
        hidden = "" if series.shown else ' class="off"'
        out.append(
            f'<g data-series="{series.key}"{hidden}>'
            + "".join(
                _mark(
                    series.key,
                    x_of(plot.columns.index(c), series),
                    scale.y(c.values[series.key]),
                    side,
                )
                for c in marks
                if series.key in c.values
            )
            + "</g>"
        )
    out.append(_labels(plot, scale))
    for index, column in enumerate(plot.columns):
        tip = escape("\n".join(column.tip[:4]), quote=True).replace("\n", "&#10;")
        out.append(
            f'<rect class="band" x="{index * width:.2f}%" width="{width:.2f}%" y="0" '
            f'height="100%" data-tip="{tip}" data-href="{escape(column.href)}"/>'
        )
    out.append('</svg><div class="plot-tip" role="status"></div></div></div>')
    return "\n".join(out)


# From rows to columns


def share_of(name: str | None) -> Callable[[dict[str, dict]], float | None]:
    """How to find a provider's share of the copy's speed in a group."""

    def share(group: dict[str, dict]) -> float | None:
        copy, own = timed(group.get(COPY)), timed(group.get(name)) if name else None
        return copy / own if copy and own else None

    return share


def _spoken(group: dict[str, dict], name: str, share) -> str:
    value = share(group, name)
    return f"{label_of(name)} {value:.2f}" if value else label_of(name)


def columns_of(
    rows: list[dict],
    label: Callable[[dict], str],
    bold: Callable[[dict], bool] = lambda row: False,
    share: Callable[[dict[str, dict], str], float | None] = lambda group, name: share_of(name)(
        group
    ),
    others: tuple[str, ...] = LIBRARIES,
    words: Callable[[dict], str] | None = None,
) -> list[Column]:
    """One column per case: ours, the best other library, and everyone else."""
    found = []
    for group in by_case(rows).values():
        some = group.get(CHOOSER) or next(iter(group.values()))
        names = [name for name in (CHOOSER, *others) if name in group]
        values = {name: value for name in names if (value := share(group, name))}
        peer = best_peer(group) if set(others) & set(LIBRARIES[1:]) else None
        if peer and (value := share(group, peer)):
            values[BEST] = value
        ours = group.get(CHOOSER)
        tip = [(words or label)(some)]
        if ours and timed(ours):
            tip.append(f"{_spoken(group, CHOOSER, share)} of a copy, {timed(ours):,.1f} µs")
        if peer and (value := ratio(group, peer)):
            tip.append(f"{_spoken(group, peer, share)}, the best other: ours {value:.2f} ×")
        rest = [name for name in others if name != peer and timed(group.get(name))]
        if rest:
            tip.append(", ".join(_spoken(group, name, share) for name in rest))
        found.append(Column(label(some), values, tip, f"#{anchor(some)}", bold(some)))
    return found


def library_series(rows: list[dict]) -> list[Series]:
    """Ours, the best other and torch; the other libraries on demand."""
    there = {row["provider"] for row in rows}
    return [
        Series(CHOOSER, label_of(CHOOSER)),
        Series(BEST, "best other"),
        Series("torch", "torch"),
        *(Series(name, label_of(name), False) for name in LIBRARIES[1:] if name in there),
    ]
