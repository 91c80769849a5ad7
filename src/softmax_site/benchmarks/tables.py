"""Tables as HTML: rows that open out of heat maps, and what stands in their cells.

On a narrow screen a row becomes a card: its first cell is the title, and each other cell says what
it is, so that nothing scrolls sideways.
"""

from __future__ import annotations

import re
from html import escape
from typing import NamedTuple

from softmax_bench.report import by_case, ratio, timed
from softmax_bench.roster import CHOOSER, COPY, LIBRARIES, label_of
from softmax_site.benchmarks.data import anchor, shape_words
from softmax_site.benchmarks.words import reason_groups, verdict


class Row(NamedTuple):
    """Cells as HTML, and where links find the row."""

    cells: list[str]
    id: str | None = None


def table(
    head: list[str], rows: list[Row | list[str]], left: int = 1, also: tuple[int, ...] = ()
) -> str:
    """A table as HTML; the first `left` columns and those in `also` are words, the others
    numbers."""

    def words(index: int) -> bool:
        return index < left or index in also

    def cell(index: int, text: str) -> str:
        css = "" if words(index) else ' class="n"'
        if index == 0:
            return f'<th scope="row">{text}</th>'
        return f'<td{css} data-label="{_attribute(head[index])}">{text}</td>'

    lines = ['<table class="bench-table"><thead><tr>']
    lines += [
        f'<th scope="col"{"" if words(index) else " class=n"}>{name}</th>'
        for index, name in enumerate(head)
    ]
    lines.append("</tr></thead><tbody>")
    for row in rows:
        cells, name = row if isinstance(row, Row) else (row, None)
        where = f' id="{name}"' if name else ""
        body = "".join(cell(index, text) for index, text in enumerate(cells))
        lines.append(f"<tr{where}>{body}</tr>")
    lines.append("</tbody></table>")
    return "\n".join(lines)


def _attribute(text: str) -> str:
    return escape(re.sub(r"<[^>]+>", "", text), quote=True)


def folded(title: str, content: str) -> str:
    """A part of a page that opens on demand, or when a link leads into it."""
    return "\n".join(
        [
            '<details class="note" data-search-exclude>',
            f"<summary>{escape(title)}</summary>",
            content,
            "</details>",
        ]
    )


class Reasons:
    """Why rows have no result: each reason once, below its table, linked from the cells."""

    def __init__(self, name: str, rows: list[dict]):
        self.name = name
        self.groups = reason_groups(rows)
        self._of = {
            id(row): index for index, group in enumerate(self.groups, 1) for row in group[3]
        }

    def cell(self, row: dict | None) -> str:
        """The state of a row that has no number, linked to its reason."""
        if row is None:
            return "–"
        state = row["status"]
        return f'<a href="{self.href(row)}">{state}</a>' if id(row) in self._of else state

    def href(self, row: dict) -> str:
        """The way to the reason of a row without a result."""
        return f"#why-{self.name}-{self._of[id(row)]}"

    def listing(self) -> str:
        """The reasons as HTML; nothing where every row has a result."""
        if not self.groups:
            return ""
        lines = [
            f'<li id="why-{self.name}-{index}"><b>{label_of(provider)}</b> {state}, '
            f"{len(rows)} {'case' if len(rows) == 1 else 'cases'}: "
            f"<q>{escape(reason)}</q></li>"
            for index, (provider, state, reason, rows) in enumerate(self.groups, 1)
        ]
        title = '<p class="bench-caption">Without a result, and what the library said:</p>'
        return title + '\n<ul class="bench-reasons">\n' + "\n".join(lines) + "\n</ul>"


def speed_cell(row: dict | None, reasons: Reasons, share: float = 1.0) -> str:
    """GB/s, or the state of a row that has none."""
    value = timed(row)
    if not row or not value or not row["bytes"]:
        return reasons.cell(row)
    return f"{row['bytes'] / value / 1e3 * share:,.0f}"


def time_cell(row: dict | None, reasons: Reasons) -> str:
    """Microseconds, or the state of a row that has none."""
    value = timed(row)
    return f"{value:,.1f}" if value else reasons.cell(row)


def spread_cell(row: dict | None) -> str:
    """Microseconds with the 20th and 80th percentile."""
    if not row or not timed(row):
        return "–"
    us = row["us"]
    digits = 1 if us["p50"] < 1000 else 0
    low, high = (f"{us[name]:,.{digits}f}" for name in ("p20", "p80"))
    return f'{us["p50"]:,.{digits}f} <span class="quiet">{low}–{high}</span>'


def share_cell(value: float | None) -> str:
    """A share of the copy's speed."""
    return f"{value:.2f}" if value else "–"


def error_text(value: float | str | None) -> str:
    """An error with two digits."""
    if value is None:
        return "–"
    return "∞" if value == "inf" else f"{float(value):.1e}"


def kernel_words(row: dict | None) -> str:
    """The kernels that were launched, as the site calls them.

    >>> kernel_words({"kernels": ["softmax_forward_aligned_rows_kernel", "single_block"]})
    'aligned rows, single block'
    """
    if not row or not row["kernels"]:
        return "–"
    names = [
        re.sub(r"^(softmax|log_softmax|logsumexp)_(forward_|backward_)?|_kernel$", "", name)
        for name in row["kernels"]
    ]
    return ", ".join(dict.fromkeys(name.replace("_", " ") for name in names))


def case_table(rows: list[dict], reasons: Reasons, share=None, times: bool = False) -> str:
    """Every case in full: verdict, share of the copy, time, kernel, error, and the others.

    `share` gives our share of the copy's speed where it is not against the copy of the case.
    """
    there = {row["provider"] for row in rows}
    others = [name for name in (COPY, *LIBRARIES) if name in there]
    cell = time_cell if times else speed_cell
    body: list[Row | list[str]] = []
    for group in by_case(rows).values():
        ours = group.get(CHOOSER)
        some = ours or next(iter(group.values()))
        reached = (share or (lambda group: ratio(group, COPY)))(group)
        error = ours["max_rel_error"] if ours else None
        body.append(
            Row(
                [
                    shape_words(some),
                    verdict(group),
                    share_cell(reached),
                    spread_cell(ours),
                    kernel_words(ours),
                    error_text(error),
                    f"<b>{cell(ours, reasons)}</b>",
                    *(cell(group.get(name), reasons) for name in others),
                ],
                anchor(some),
            )
        )
    unit = "µs" if times else "GB/s"
    head = [
        "shape",
        "against the best other",
        "of a copy",
        'µs <span class="quiet">p20–p80</span>',
        "kernel",
        "error",
        f"{unit}: ours",
        *(label_of(name) for name in others),
    ]
    return table(head, body, 2, also=(4,))
