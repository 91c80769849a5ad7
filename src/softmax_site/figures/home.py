"""What the front page shows of the data: the figure, and a small picture per door."""

from __future__ import annotations

from math import log
from pathlib import Path

from softmax_bench.report import best_peer, by_case, ratio, standing
from softmax_site.benchmarks.charts import tag
from softmax_site.benchmarks.data import n_cols, newest, of_suite
from softmax_site.benchmarks.page import Fragment, block, measured_by
from softmax_site.figures import share
from softmax_site.figures.drawings import drawing

SUITES = ("forward", "backward")
SVG = '<svg viewBox="0 0 88 56" width="88" height="56" aria-hidden="true">'


def figure(data: dict) -> str:
    """The figure in two widths, of which the style sheet shows one."""
    every = share.rows(data)
    alt = f'role="img" aria-label="{share.alt(every)}"'
    title = '<p class="figure-title">Share of a plain copy’s speed, by row length</p>'
    wide = share.svg(every, 640, 16, f'class="for-wide" {alt}')
    narrow = share.svg(share.few(every), 358, 18, f'class="for-narrow" {alt}')
    return block(f"{title}\n{wide}\n{narrow}", "copy-share") + "\n"


def _door(picture: str) -> str:
    return block(picture, "door-picture") + "\n"


def heat(data: dict) -> str:
    """Ours against the best other library: a row per direction and type, a column per length."""
    lines = [(suite, dtype) for suite in SUITES for dtype in ("float32", "bfloat16")]
    cells = []
    for i, (suite, dtype) in enumerate(lines):
        groups = list(by_case(of_suite(data, suite, dtype=dtype, op="softmax")).values())
        groups.sort(key=lambda group: n_cols(next(iter(group.values()))))
        for j, group in enumerate(groups):
            peer = best_peer(group)
            factor = ratio(group, peer) if peer else None
            stand = standing(factor)
            colour = {"ahead": "ours", "level": "torch", "behind": "behind"}[stand]
            tint = 0.25 if stand == "level" else min(1, 0.35 + 0.8 * abs(log(factor or 0.5)))
            fill = {"fill": f"var(--{colour})", "fill_opacity": tint}
            at = {"x": 4.4 * j, "y": 14.3 * i, "width": 3.6, "height": 12.6, "rx": 1.5}
            cells.append(tag("rect", **at, **fill))
    return _door(f"{SVG}{''.join(cells)}</svg>")


def fragments(root: Path) -> dict[str, Fragment]:
    """What the front page includes."""
    data = newest(root)[1]
    out = {f"door-{name}": Fragment(_door(drawing(name))) for name in ("matrix", "bars")}
    if not share.rows(data):
        return out | {"home-figure": Fragment(""), "door-heat": Fragment("")}
    measured = measured_by([row for suite in SUITES for row in of_suite(data, suite)])
    return out | {
        "home-figure": Fragment(figure(data), measured),
        "door-heat": Fragment(heat(data)),
    }
