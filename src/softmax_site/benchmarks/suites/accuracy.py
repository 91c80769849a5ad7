"""Errors against float64."""

from __future__ import annotations

import math
from html import escape
from statistics import median

from softmax_bench.report import by_case
from softmax_bench.roster import CHOOSER, LIBRARIES, label_of
from softmax_site.benchmarks.data import DTYPES, of_suite, shape_words
from softmax_site.benchmarks.page import Page, Rendered
from softmax_site.benchmarks.tables import Reasons, Row, error_text, table

INPUTS = {
    "normal": "normal, σ = 1",
    "wide": "normal, σ = 30",
    "offset": "normal plus a large constant",
    "masked": "−∞ beyond a prefix that differs by row",
    "spike": "one value far above the others",
    "equal": "all equal",
    "very_negative": "normal minus 1000",
    "all_masked": "one row all −∞",
}


def error_of(row: dict) -> float | None:
    """The largest relative error of a row; infinite where an answer is not a number."""
    return None if row["max_rel_error"] is None else float(row["max_rel_error"])


def power_text(power: int) -> str:
    """A power of ten as an axis writes it.

    >>> power_text(-7)
    '10⁻⁷'
    """
    return "10" + str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def error_strip(rows: list[dict], there: list[str], title: str) -> str:
    """A mark per case on a logarithmic axis, a line per library; the worst is marked.

    What is far below the median, as an answer that is exactly right, stands at the left edge.
    """
    errors = {
        name: [e for row in rows if row["provider"] == name and (e := error_of(row)) is not None]
        for name in there
    }
    every = [e for values in errors.values() for e in values]
    finite = [e for e in every if 0 < e < math.inf]
    low = math.floor(math.log10(median(finite))) - 1
    endless = any(math.isinf(e) for e in every)
    high = math.ceil(math.log10(max(finite))) + endless

    def x(value: float) -> float:
        at = high if math.isinf(value) else math.log10(max(value, 10.0**low))
        return 100 * (at - low) / (high - low)

    height = 26 * len(there)
    alt = f"{title}. The numbers are in the table below."
    out = [
        f'<div class="strip"><p class="plot-title">{escape(title)}</p>'
        f'<svg role="img" aria-label="{escape(alt)}" style="height: {height + 30}px">'
    ]
    for power in range(low, high + 1):
        name = power_text(power)
        if power == low:
            name = f"≤{name}"
        if power == high and endless:
            name = "∞"
        at = f"{100 * (power - low) / (high - low):.2f}%"
        out.append(f'<line class="grid" x1="{at}" x2="{at}" y1="0" y2="{height}"/>')
        first = " first" if power == low else ""
        out.append(f'<text class="tick-x{first}" x="{at}" y="{height + 20}">{name}</text>')
    for index, name in enumerate(there):
        y, values = 26 * index + 14, errors[name]
        css = "ours" if name == CHOOSER else "other"
        out.append(f'<text class="tick-y" x="0" dx="-12" y="{y + 4}">{label_of(name)}</text>')
        places = dict.fromkeys(f"{x(e):.1f}" for e in sorted(values))
        marks = (
            f'<rect class="{css}" x="{at}%" y="{y - 6}" width="2" height="12"/>' for at in places
        )
        out.append("".join(marks))
        if values:
            worst = x(max(values))
            out.append(f'<circle class="{css} worst" cx="{worst:.1f}%" cy="{y}" r="5"/>')
    out.append("</svg></div>")
    return "\n".join(out)


def _linked(rows: list[dict], reasons: Reasons) -> str:
    """How many rows of one state there are, linked to the reason of the first."""
    return f'<a href="{reasons.href(rows[0])}">{len(rows)}</a>' if rows else "–"


def accuracy_page(data: dict) -> Rendered:
    """Largest relative error of a row against float64: how it is distributed, and where it is
    worst."""
    rows = of_suite(data, "accuracy")
    page, reasons = Page(data, "accuracy", rows), Reasons("accuracy", rows)
    there = [name for name in (CHOOSER, *LIBRARIES) if any(row["provider"] == name for row in rows)]
    right = {
        name: sum(row["provider"] == name and row["status"] == "ok" for row in rows)
        for name in there
    }
    cases = len(by_case(rows))
    listed = ", ".join(
        f"<b>{label_of(name)}</b> {right[name]}"
        if name == CHOOSER
        else f"{label_of(name)} {right[name]}"
        for name in there
    )
    page.html(
        f'<p class="verdict-sentence">Right answers in {cases} cases: {listed}.</p>'
        '<p class="bench-caption">An answer is wrong if it misses float64 by more than a bound, '
        "refused if the library says that it does not take the case, and failed if it breaks. "
        "▼: not every answer is right.</p>"
    )
    for dtype in DTYPES:
        part = [row for row in rows if row["dtype"] == dtype]
        if not part:
            continue
        page.add(f"## {dtype}")
        page.html(
            error_strip(
                part, there, f"Relative error, {dtype}: a mark per case, a dot at the worst"
            )
        )
        body: list[Row | list[str]] = []
        for name in there:
            mine = [row for row in part if row["provider"] == name]
            errors = sorted(e for row in mine if (e := error_of(row)) is not None)
            without = {
                state: [row for row in mine if row["status"] == state]
                for state in ("wrong", "refused", "failed")
            }
            worst = max(
                (r for r in mine if error_of(r) is not None),
                key=lambda row: error_of(row) or 0.0,
                default=None,
            )
            answers = f"{sum(row['status'] == 'ok' for row in mine)} of {len(mine)}"
            body.append(
                [
                    label_of(name),
                    f'<span class="behind">▼ {answers}</span>'
                    if any(without.values())
                    else answers,
                    *(_linked(found, reasons) for found in without.values()),
                    error_text(median(errors)) if errors else "–",
                    error_text("inf" if errors and math.isinf(errors[-1]) else errors[-1])
                    if errors
                    else "–",
                    f"{worst['direction']}, {shape_words(worst)}, {INPUTS[worst['inputs']]}"
                    if worst
                    else "–",
                ]
            )
        head = [
            "library",
            "right",
            "wrong",
            "refused",
            "failed",
            "median error",
            "worst error",
            "where",
        ]
        page.html(table(head, body, 2, also=(7,)))
    page.html(reasons.listing())
    return page.done()
