"""The first figure: how much of a plain copy's speed each length of row reaches."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import NamedTuple

from softmax_bench.report import best_peer, by_case, ratio, standing
from softmax_bench.roster import CHOOSER, COPY
from softmax_site.benchmarks.data import n_cols, of_suite

SUITE, DTYPE = "forward", "bfloat16"


class Row(NamedTuple):
    """One length of row: speeds as shares of the copy's, and how ours compares."""

    length: int
    ours: float
    best: float
    torch: float
    factor: float
    """Ours over the best other library."""


def rows(data: dict) -> list[Row]:
    """What is drawn, by length; a length without all four answers is left out."""
    found = []
    for group in by_case(of_suite(data, SUITE, dtype=DTYPE, op="softmax")).values():
        peer = best_peer(group)
        ours, factor = ratio(group, COPY), ratio(group, peer) if peer else None
        over_torch = ratio(group, "torch")
        if ours and factor and over_torch:
            length = n_cols(group[CHOOSER])
            found.append(Row(length, ours, ours / factor, ours / over_torch, factor))
    return sorted(found)


def few(every: list[Row]) -> list[Row]:
    """Fewer lengths for a narrow screen: the odd ones, the one where ours reaches least of the
    copy, the one where it does worst against the others, and every fourth of the rest."""
    kept = {row for row in every if row.length % 2}
    kept |= {min(every, key=lambda row: row.ours), min(every, key=lambda row: row.factor)}
    kept |= set([row for row in every if row not in kept][::4])
    return sorted(kept)


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


def verdict(factor: float) -> tuple[str, str]:
    """Ours against the best other library, and its colour.

    >>> verdict(2.104), verdict(1.01), verdict(0.951)
    (('2.10 ×', 'var(--ours)'), ('=', 'var(--quiet)'), ('▼ 0.95 ×', 'var(--behind)'))
    """
    match standing(factor):
        case "ahead":
            return f"{factor:.2f} ×", "var(--ours)"
        case "behind":
            return f"▼ {factor:.2f} ×", "var(--behind)"
    return "=", "var(--quiet)"


def apart(places: list[float], widths: list[float], low: float, high: float) -> list[float]:
    """Centres of labels that stand as near to their places as they can without touching.

    >>> apart([10, 20, 200], [40, 40, 40], 0, 300)
    [20.0, 68.0, 200]
    """
    centres, edge = [], low
    for place, width in zip(places, widths):
        centres.append(max(place, edge + width / 2))
        edge = centres[-1] + width / 2 + 8
    over = centres[-1] + widths[-1] / 2 - high
    return [centre - max(0, over) for centre in centres] if over > 0 else centres


def svg(shown: list[Row], width: int, pitch: float, attributes: str, title: str = "") -> str:
    """The drawing: a line for each length, three marks on it. Colours are the site's variables."""
    left, right, top = 80, width - 74, 24 + (28 if title else 0)
    bottom = top + pitch * len(shown)
    most = max(1.0, *(max(row.ours, row.best) for row in shown))

    def x(share: float) -> float:
        return left + (right - left) * share / (most + 0.01)

    def text(at: float, y: float, content: str, more: str = "") -> str:
        return f'<text x="{at:.1f}" y="{y:.1f}" {more}>{escape(content)}</text>'.replace(" >", ">")

    quiet = 'fill="var(--quiet)"'
    height = round(bottom + 24)
    out = [f'<svg viewBox="0 0 {width} {height}" font-size="12" {attributes}>']
    if title:
        out.append(text(0, 16, title, 'font-size="14" font-weight="600" fill="var(--ink)"'))
    for percent in (0, 25, 50, 75, 100):
        at = x(percent / 100)
        end = percent == 100
        out.append(
            f'<path d="M{at:.1f} {top - 4}V{bottom:.0f}" '
            f'stroke="var({"--quiet" if end else "--rule"})"/>'
        )
        label = "a copy" if end else f"{percent} %" if percent else "0"
        out.append(text(at, top - 9, label, f'text-anchor="middle" {quiet}'))
    out.append(text(left - 12, top - 9, "row length", f'text-anchor="end" {quiet}'))
    out.append(text(width, top - 9, "× best", f'text-anchor="end" {quiet}'))
    for at, row in enumerate(shown):
        y = top + pitch * (at + 0.5)
        odd = row.length % 2
        weight = 'font-weight="700" fill="var(--ink)"' if odd else quiet
        out.append(text(left - 12, y + 4, f"{row.length:,}", f'text-anchor="end" {weight}'))
        ends = [x(share) for share in (row.torch, row.best, row.ours)]
        out.append(
            f'<path d="M{min(ends):.1f} {y:.1f}H{max(ends):.1f}" '
            'stroke="var(--rule)" stroke-width="4"/>'
        )
        out.append(
            f'<circle cx="{x(row.torch):.1f}" cy="{y:.1f}" r="4.8" '
            'fill="var(--paper)" stroke="var(--torch)" stroke-width="1.6"/>'
        )
        out.append(
            f'<rect x="{x(row.best) - 3:.1f}" y="{y - 3:.1f}" width="6" height="6" '
            'fill="var(--best)"/>'
        )
        out.append(
            f'<circle cx="{x(row.ours):.1f}" cy="{y:.1f}" r="5" '
            'fill="var(--ours)" stroke="var(--paper)"/>'
        )
        words, colour = verdict(row.factor)
        out.append(
            text(width, y + 4, words, f'text-anchor="end" font-weight="600" fill="{colour}"')
        )
    last = shown[-1]
    labels = sorted(
        [
            (x(last.torch), 34, "torch", "var(--quiet)"),
            (x(last.best), 66, "best other", "var(--best)"),
            (x(last.ours), 92, "triton_softmax", "var(--ours)"),
        ]
    )
    centres = apart([each[0] for each in labels], [each[1] for each in labels], left, right + 20)
    for centre, (_, _, name, colour) in zip(centres, labels):
        more = f'text-anchor="middle" font-weight="600" fill="{colour}"'
        out.append(text(centre, bottom + 14, name, more))
    return "\n".join([*out, "</svg>"])


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
