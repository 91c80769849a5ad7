"""Charts from rows: an interactive Vega-Lite specification, and the same picture as SVG for want of
JavaScript."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from html import escape

from triton_softmax.bench.cases import PROVIDERS

NAMES = {
    "copy": "copy",
    "triton_softmax": "triton_softmax",
    "torch": "torch",
    "torch.compile": "torch.compile",
    "liger": "Liger",
    "flag_gems": "FlagGems",
    "quack": "QuACK",
    "naive": "naive",
    "three_loops": "three loops",
    "two_loops": "two loops",
    "single_block": "single block",
    "packed_rows": "packed rows",
    "aligned_rows": "aligned rows",
    "split_rows": "split rows",
    "strided": "strided",
}
"""Providers as the pages name them."""

LIGHT = {
    "copy": "#757575",
    "triton_softmax": "#c2185b",
    "torch": "#d84315",
    "torch.compile": "#9a7400",
    "liger": "#00796b",
    "flag_gems": "#1565c0",
    "quack": "#6a1b9a",
    "naive": "#5d4037",
    "three_loops": "#827717",
    "two_loops": "#0277bd",
    "single_block": "#2e7d32",
    "packed_rows": "#8e24aa",
    "aligned_rows": "#37474f",
    "split_rows": "#b8860b",
    "strided": "#283593",
}
DARK = {
    "copy": "#9e9e9e",
    "triton_softmax": "#f06292",
    "torch": "#ff8a65",
    "torch.compile": "#fdd835",
    "liger": "#4db6ac",
    "flag_gems": "#64b5f6",
    "quack": "#ce93d8",
    "naive": "#bcaaa4",
    "three_loops": "#dce775",
    "two_loops": "#4fc3f7",
    "single_block": "#81c784",
    "packed_rows": "#e1a5f0",
    "aligned_rows": "#b0bec5",
    "split_rows": "#ffd54f",
    "strided": "#9fa8da",
}
SHAPES = (
    "circle",
    "square",
    "cross",
    "diamond",
    "triangle-up",
    "triangle-down",
    "triangle-right",
    "triangle-left",
)


@dataclass
class Chart:
    """One picture: points of several providers over an axis."""

    name: str
    alt: str
    x_title: str
    y_title: str
    points: list[dict]
    """Each with `provider`, `x`, `y` and what the tooltip shows."""
    runs: list[dict] = field(default_factory=list)
    categories: list[str] | None = None
    """The order of `x` where it is a name rather than a number."""
    y_log: bool = False
    y_half: str | None = None
    """Title of the y axis when half of the bytes are counted; adds a switch between the two
    ways."""

    @property
    def providers(self) -> list[str]:
        """Those with a point, in a fixed order."""
        there = {point["provider"] for point in self.points}
        return [name for name in PROVIDERS if name in there]


def shape_of(provider: str) -> str:
    """The mark that stands for a provider, beside its colour."""
    return SHAPES[PROVIDERS.index(provider) % len(SHAPES)]


TOOLTIP = (
    ("provider", "provider"),
    ("case", "case"),
    ("gbs", "GB/s"),
    ("p50", "µs, median"),
    ("p20", "µs, 20th percentile"),
    ("p80", "µs, 80th percentile"),
    ("samples", "samples"),
    ("of_copy", "of the copy"),
    ("max_abs_error", "largest error"),
    ("max_rel_error", "largest error of a row, relative"),
    ("kernels", "kernels"),
    ("source", "hash of the source"),
    ("gpu", "GPU"),
    ("driver", "driver"),
    ("cuda", "CUDA"),
    ("torch", "torch"),
    ("triton", "triton"),
    ("commit", "commit"),
    ("utc", "measured, UTC"),
)


def vega_lite(chart: Chart) -> dict:
    """The specification: hover shows the whole row, a click in the legend turns a line on or
    off."""
    names = [NAMES[name] for name in chart.providers]
    values = [{**point, "provider": NAMES[point["provider"]]} for point in chart.points]
    x: dict = {"field": "x", "title": chart.x_title}
    if chart.categories:
        x |= {"type": "nominal", "sort": chart.categories, "axis": {"labelAngle": -35}}
    else:
        x |= {
            "type": "quantitative",
            "scale": {"type": "log", "base": 2, "nice": False},
            "axis": {"format": ",d"},
        }
    y: dict = {"field": "shown_y", "type": "quantitative", "title": chart.y_title}
    y["scale"] = {"type": "log"} if chart.y_log else {"zero": True}
    params: list[dict] = [
        {
            "name": "shown",
            "select": {"type": "point", "fields": ["provider"], "toggle": "true"},
            "bind": "legend",
            "value": [{"provider": name} for name in names],
        }
    ]
    share = "1"
    if chart.y_half:
        params.append(
            {
                "name": "counted",
                "value": 2,
                "bind": {
                    "input": "radio",
                    "options": [2, 1],
                    "labels": ["2·M·N", "M·N"],
                    "name": "elements counted ",
                },
            }
        )
        share = "counted / 2"
    first = {key: value for point in values for key, value in point.items()}
    tooltip = []
    for key, title in TOOLTIP:
        if key in first or key in ("gpu", "driver", "cuda", "torch", "triton", "commit"):
            tooltip.append({"field": key, "title": title})
    color = {
        "field": "provider",
        "type": "nominal",
        "scale": {"domain": names, "range": [LIGHT[name] for name in chart.providers]},
        "legend": {
            "title": None,
            "orient": "bottom",
            "columns": {"expr": "width < 420 ? 3 : 4"},
            "symbolLimit": 0,
        },
    }
    shape = {
        "field": "provider",
        "type": "nominal",
        "scale": {"domain": names, "range": [shape_of(name) for name in chart.providers]},
    }
    marks: list[dict] = [
        {
            "mark": {"type": "point", "filled": True, "size": 55, "opacity": 1},
            "params": params[:1],
            "encoding": {"shape": shape, "tooltip": tooltip},
        }
    ]
    if not chart.categories:
        marks.insert(0, {"mark": {"type": "line", "strokeWidth": 1.5}})
    spec: dict = {
        "description": chart.alt,
        "width": "container",
        "height": 360,
        "autosize": {"type": "fit", "contains": "padding"},
        "data": {"values": values},
        "transform": [
            {
                "lookup": "run",
                "from": {
                    "data": {"values": chart.runs},
                    "key": "run",
                    "fields": ["gpu", "driver", "cuda", "torch", "triton", "commit"],
                },
            },
            {"calculate": f"datum.y * {share}", "as": "shown_y"},
            {"filter": {"param": "shown"}},
        ],
        "encoding": {"x": x, "y": y, "color": color},
        "layer": marks,
        "usermeta": {"dark": [DARK[name] for name in chart.providers]},
    }
    if params[1:]:
        spec["params"] = params[1:]
    return spec


def spec_text(chart: Chart) -> str:
    """The specification as JSON, one point per line."""
    spec = vega_lite(chart)
    values = spec["data"]["values"]
    spec["data"] = {"values": []}
    text = json.dumps(spec, indent=1, ensure_ascii=False, allow_nan=False)
    lines = ",\n".join(
        "  " + json.dumps(value, ensure_ascii=False, allow_nan=False) for value in values
    )
    return text.replace('"values": []', '"values": [\n' + lines + "\n]", 1) + "\n"


# The same picture without JavaScript.

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

    if chart.categories:
        step = inner_w / len(chart.categories)

        def x_at(value) -> float:
            return LEFT + step * (chart.categories.index(value) + 0.5)
    else:
        xs = [point["x"] for point in chart.points]
        x_low, x_high = math.log(min(xs)), math.log(max(xs))
        if x_low == x_high:
            x_low, x_high = x_low - 1, x_high + 1

        def x_at(value) -> float:
            return LEFT + inner_w * (0.02 + 0.96 * (math.log(value) - x_low) / (x_high - x_low))

    out = [
        f'<svg class="bench-chart" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(chart.alt)}">',
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
        f'<text x="{middle:.0f}" y="{base_y + bottom - 8}" text-anchor="middle">{escape(chart.x_title)}</text>'
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
        out.append(f'<text x="{x + 16:.1f}" y="{y}">{escape(NAMES[name])}</text>')
    out.append("</svg>")
    return "\n".join(out)


def style_sheet() -> str:
    """The colours of the providers, for the SVG, in light and dark."""
    lines = ["/* Written by `python -m triton_softmax.bench render`: the colours of the charts. */"]
    for scheme, colours in (("default", LIGHT), ("slate", DARK)):
        for name in PROVIDERS:
            where = f'[data-md-color-scheme="{scheme}"] .bench-chart .{class_of(name)}'
            lines.append(f"{where} {{ --c: {colours[name]}; }}")
    return "\n".join(lines) + "\n"
