"""The first figure: how much of a plain copy's speed each length of row reaches."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import NamedTuple

from softmax_bench.report import best_peer, by_case, ratio, standing
from softmax_bench.roster import CHOOSER, COPY
from softmax_site.benchmarks.charts import tag
from softmax_site.benchmarks.data import n_cols, of_suite
from softmax_site.benchmarks.words import times

SUITE, DTYPE = "forward", "bfloat16"


class Row(NamedTuple):
    """One length of row: speeds as shares of the copy's, and how ours compares."""

    length: int
    ours: float
    best: float
    torch: float
    factor: float
    """Ours over the best other library."""
    state: str


def rows(data: dict) -> list[Row]:
    """What is drawn, by length; a length without all four answers is left out."""
    found = []
    for group in by_case(of_suite(data, SUITE, dtype=DTYPE, op="softmax")).values():
        peer = best_peer(group)
        ours, factor = ratio(group, COPY), ratio(group, peer) if peer else None
        over_torch = ratio(group, "torch")
        if peer and ours and factor and over_torch:
            length = n_cols(group[CHOOSER])
            state = standing(group, peer)
            found.append(Row(length, ours, ours / factor, ours / over_torch, factor, state))
    return sorted(found)


def alt(every: list[Row]) -> str:
    """The figure in words."""

    def span(shares: list[float]) -> str:
        return f"{min(shares):.2f} to {max(shares):.2f}"

    return (
        f"Share of a plain copy's speed at {len(every)} row lengths from {every[0].length:,} to "
        f"{every[-1].length:,}, {DTYPE}, forward. triton_softmax reaches "
        f"{span([row.ours for row in every])}, the best other library "
        f"{span([row.best for row in every])}, torch {span([row.torch for row in every])}."
    )


def verdict(factor: float, state: str) -> tuple[str, str]:
    """Ours against the best other library, and its colour.

    >>> verdict(2.104, "ahead"), verdict(1.01, "level"), verdict(0.951, "behind")
    (('2.10 ×', 'var(--ours)'), ('=', 'var(--quiet)'), ('▼ 0.95 ×', 'var(--behind)'))
    """
    match state:
        case "ahead":
            return f"{times(factor)} ×", "var(--ours)"
        case "behind":
            return f"▼ {times(factor)} ×", "var(--behind)"
    return "=", "var(--quiet)"


def text(x: float, y: float, content: str, **more: object) -> str:
    """Words, quiet unless they have a colour."""
    return tag("text", escape(content), x=x, y=y, **{"fill": "var(--quiet)", **more})


def mark(kind: str, x: float, y: float) -> str:
    """A ring for torch, a dot for ours, and for the best other a bar, which no dot hides."""
    if kind == "best":
        return tag("rect", x=x - 2, y=y - 6.5, width=4, height=13, fill="var(--best)")
    ring = {"r": 4.8, "fill": "var(--paper)", "stroke": "var(--torch)", "stroke_width": 1.6}
    dot = {"r": 5, "fill": "var(--ours)", "stroke": "var(--paper)"}
    return tag("circle", cx=x, cy=y, **(ring if kind == "torch" else dot))


def svg(shown: list[Row], width: int, pitch: float, attributes: str, title: str = "") -> str:
    """The drawing: a line for each length, three marks on it. Colours are the site's variables."""
    left, right, top = 80.0, width - 74.0, 48 + (28 if title else 0)
    bottom = round(top + pitch * len(shown))
    most = max(1.0, *(max(row.ours, row.best) for row in shown)) + 0.01
    strong = {"font_weight": 600, "text_anchor": "end"}

    def x(share: float) -> float:
        return left + (right - left) * share / most

    out = []
    if title:
        out.append(text(0, 16, title, font_size=14, font_weight=600, fill="var(--ink)"))
    for at, kind, name in (
        (8, "torch", "torch"),
        (70, "best", "best other library"),
        (196, "ours", CHOOSER),
    ):
        out += [mark(kind, at, top - 38), text(at + 10, top - 34, name)]
    for share in (0, 0.25, 0.5, 0.75, 1):
        colour = "var(--quiet)" if share == 1 else "var(--rule)"
        out.append(tag("path", d=f"M{x(share):.1f} {top - 4}V{bottom}", stroke=colour))
        label = "a copy" if share == 1 else f"{share:.0%}".replace("%", " %") if share else "0"
        out.append(text(x(share), top - 9, label, text_anchor="middle"))
    out.append(text(left - 12, top - 9, "row length", text_anchor="end"))
    out.append(text(width, top - 9, "× best", text_anchor="end"))
    for at, row in enumerate(shown):
        y = top + pitch * (at + 0.5)
        bold = {"font_weight": 700, "fill": "var(--ink)"} if row.length % 2 else {}
        out.append(text(left - 12, y + 4, f"{row.length:,}", text_anchor="end", **bold))
        ours, best, torch = x(row.ours), x(row.best), x(row.torch)
        ends = f"M{min(ours, best, torch):.1f} {y:.1f}H{max(ours, best, torch):.1f}"
        out.append(tag("path", d=ends, stroke="var(--rule)", stroke_width=4))
        out += [mark("torch", torch, y), mark("best", best, y), mark("ours", ours, y)]
        words, colour = verdict(row.factor, row.state)
        out.append(text(width, y + 4, words, fill=colour, **strong))
    content = "\n".join(out)
    return (
        f'<svg viewBox="0 0 {width} {bottom + 8}" font-size="12" {attributes}>\n{content}\n</svg>'
    )


def palettes(root: Path) -> dict[str, dict[str, str]]:
    """The colours of both schemes, from the top of the style sheet."""
    sheet = (root / "docs/assets/site.css").read_text("utf8")
    light = sheet[sheet.index(":root {") : sheet.index("@media screen {")]
    dark = sheet[sheet.index('[data-md-color-scheme="slate"] {') :].split("}")[0]
    colours = {
        name: dict(re.findall(r"(--[\w-]+): (#[0-9a-f]{6});", text))
        for name, text in (("light", light), ("dark", dark))
    }
    return {"light": colours["light"], "dark": colours["light"] | colours["dark"]}


def alone(drawing: str, colours: dict[str, str]) -> str:
    """A drawing as a file of its own: the variables become colours."""
    return re.sub(r"var\((--[\w-]+)\)", lambda found: colours[found[1]], drawing) + "\n"
