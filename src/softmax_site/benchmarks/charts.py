"""Charts, and their interactive form as a Vega-Lite specification; `drawing` has the still one."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from softmax_bench.roster import PROVIDERS, label_of

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
    return SHAPES[tuple(PROVIDERS).index(provider) % len(SHAPES)]


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
    names = [label_of(name) for name in chart.providers]
    values = [{**point, "provider": label_of(point["provider"])} for point in chart.points]
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
        "scale": {"domain": names, "range": [PROVIDERS[name].light for name in chart.providers]},
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
        "usermeta": {"dark": [PROVIDERS[name].dark for name in chart.providers]},
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
