"""A chart as SVG, for want of JavaScript; its colours come from the style sheet."""

from __future__ import annotations

import math
from html import escape

from softmax_bench.roster import PROVIDERS, label_of
from softmax_site.benchmarks.charts import Chart, shape_of

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 12, 46
LEGEND_ROW = 20


def class_of(provider: str) -> str:
    """The style class of a provider."""
    return "s-" + provider.replace(".", "-").replace("_", "-")


def nice_ticks(top: float, count: int = 5) -> list[float]:
    """Round numbers from zero to at least `top`.

    >>> nice_ticks(4180.0)
    [0.0, 1000.0, 2000.0, 3000.0, 4000.0, 5000.0]
    """
    if top <= 0:
        return [0.0, 1.0]
    rough = top / count
    size = 10 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough)
    return [float(step * index) for index in range(math.ceil(top / step) + 1)]


def log_ticks(low: float, high: float, base: int) -> list[float]:
    """Powers of the base around the range, thinned to at most nine."""
    first, last = math.floor(math.log(low, base) + 1e-9), math.ceil(math.log(high, base) - 1e-9)
    every = max(1, math.ceil((last - first) / 8))
    return [float(base) ** power for power in range(first, last + 1, every)]


def _label(value: float) -> str:
    if value >= 1 and float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:g}"


def _mark(shape: str, x: float, y: float, css: str) -> str:
    r = 3.6
    if shape == "circle":
        return f'<circle class="{css}" cx="{x:.1f}" cy="{y:.1f}" r="{r}"/>'
    corners = {
        "square": [(-1, -1), (1, -1), (1, 1), (-1, 1)],
        "diamond": [(0, -1.4), (1.4, 0), (0, 1.4), (-1.4, 0)],
        "triangle-up": [(0, -1.2), (1.2, 1), (-1.2, 1)],
        "triangle-down": [(0, 1.2), (1.2, -1), (-1.2, -1)],
        "triangle-right": [(1.2, 0), (-1, 1.2), (-1, -1.2)],
        "triangle-left": [(-1.2, 0), (1, 1.2), (1, -1.2)],
        "cross": [
            (-0.5, -1.3), (0.5, -1.3), (0.5, -0.5), (1.3, -0.5), (1.3, 0.5), (0.5, 0.5),
            (0.5, 1.3), (-0.5, 1.3), (-0.5, 0.5), (-1.3, 0.5), (-1.3, -0.5), (-0.5, -0.5),
        ],
    }[shape]  # fmt: skip
    points = " ".join(f"{x + r * dx:.1f},{y + r * dy:.1f}" for dx, dy in corners)
    return f'<polygon class="{css}" points="{points}"/>'


def svg(chart: Chart) -> str:
    """The picture as inline SVG; its colours come from the page's style sheet, so it follows light
    and dark."""
    per_row = 4
    legend_rows = math.ceil(len(chart.providers) / per_row)
    bottom = BOTTOM + (42 if chart.categories else 0)
    height = HEIGHT + legend_rows * LEGEND_ROW + (42 if chart.categories else 0)
    inner_w, inner_h = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    base_y = TOP + inner_h
    ys = [point["y"] for point in chart.points]
    if chart.y_log:
        y_ticks = log_ticks(min(ys), max(ys), 10)
        low, high = math.log(y_ticks[0]), math.log(max(y_ticks[-1], max(ys)))
        if high == low:
            high = low + 1

        def y_at(value: float) -> float:
            return base_y - inner_h * (math.log(value) - low) / (high - low)
    else:
        y_ticks = nice_ticks(max(ys))

        def y_at(value: float) -> float:
            return base_y - inner_h * value / y_ticks[-1]

    if categories := chart.categories:
        step = inner_w / len(categories)

        def x_at(value) -> float:
            return LEFT + step * (categories.index(value) + 0.5)
    else:
        xs = [point["x"] for point in chart.points]
        x_low, x_high = math.log(min(xs)), math.log(max(xs))
        if x_low == x_high:
            x_low, x_high = x_low - 1, x_high + 1

        def x_at(value) -> float:
            return LEFT + inner_w * (0.02 + 0.96 * (math.log(value) - x_low) / (x_high - x_low))

    out = [
        f'<svg class="bench-chart" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(chart.alt)}">',
    ]
    for tick in y_ticks:
        y = y_at(tick)
        out.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        out.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_label(tick)}</text>')
    if chart.categories:
        for name in chart.categories:
            x = x_at(name)
            out.append(
                f'<text x="{x:.1f}" y="{base_y + 14}" text-anchor="end" '
                f'transform="rotate(-30 {x:.1f} {base_y + 14})">{escape(name)}</text>'
            )
    else:
        for tick in log_ticks(min(xs), max(xs), 2):
            if not min(xs) <= tick <= max(xs):
                continue
            x = x_at(tick)
            out.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{base_y}"/>')
            out.append(
                f'<text x="{x:.1f}" y="{base_y + 16}" text-anchor="middle">{_label(tick)}</text>'
            )
    middle = LEFT + inner_w / 2
    out.append(
        f'<text x="{middle:.0f}" y="{base_y + bottom - 8}" '
        f'text-anchor="middle">{escape(chart.x_title)}</text>'
    )
    out.append(
        f'<text x="14" y="{TOP + inner_h / 2:.0f}" text-anchor="middle" '
        f'transform="rotate(-90 14 {TOP + inner_h / 2:.0f})">{escape(chart.y_title)}</text>'
    )
    for name in chart.providers:
        points = [point for point in chart.points if point["provider"] == name]
        css = class_of(name)
        places = [(x_at(point["x"]), y_at(point["y"])) for point in points]
        if not chart.categories:
            places.sort()
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            out.append(f'<polyline class="line {css}" points="{path}"/>')
        out += [_mark(shape_of(name), x, y, f"mark {css}") for x, y in places]
    for index, name in enumerate(chart.providers):
        x = LEFT + (index % per_row) * (inner_w / per_row)
        y = base_y + bottom + 8 + LEGEND_ROW * (index // per_row)
        out.append(_mark(shape_of(name), x + 6, y - 4, f"mark {class_of(name)}"))
        out.append(f'<text x="{x + 16:.1f}" y="{y}">{escape(label_of(name))}</text>')
    out.append("</svg>")
    return "\n".join(out)


def style_sheet() -> str:
    """The colours of the providers, for the SVG, in light and dark."""
    lines = []
    for scheme, colour in (("default", "light"), ("slate", "dark")):
        for name, provider in PROVIDERS.items():
            where = f'[data-md-color-scheme="{scheme}"] .bench-chart .{class_of(name)}'
            lines.append(f"{where} {{ --c: {getattr(provider, colour)}; }}")
    return "\n".join(lines) + "\n"
