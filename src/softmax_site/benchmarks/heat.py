"""Heat maps: a table of lengths by kinds of call, each cell with a sign, a number and a link.

A row of the table is a length, so it reads down on a phone; the style sheet turns it on its side
where the screen is wide.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from softmax_bench.report import LEVEL, best_peer, by_case, ratio, standing
from softmax_bench.roster import CHOOSER, label_of
from softmax_site.benchmarks.data import DTYPES, anchor, case_words, n_cols
from softmax_site.benchmarks.words import SIGNS, percent, times

STEPS = (1.1, 1.25, 1.5, 2.0)
"""Where the blue of a lead gets darker."""


def step(factor: float) -> int:
    """How dark a lead is, from 1 to 5.

    >>> [step(factor) for factor in (1.03, 1.2, 1.3, 1.7, 3.0)]
    [1, 2, 3, 4, 5]
    """
    return 1 + sum(factor >= limit for limit in STEPS)


def cell(group: dict[str, dict] | None, page: str) -> str:
    """One case: "=", "▼" and the ratio, or the ratio alone where ours is ahead."""
    if group is None or CHOOSER not in group:
        return '<td role="cell" class="none">·</td>'
    ours, peer = group[CHOOSER], best_peer(group)
    if peer is None:
        return '<td role="cell" class="none">only</td>'
    factor = ratio(group, peer)
    state = standing(factor)
    if state == "ahead" and factor is not None:
        css, text, said = f"ahead s{step(factor)}", f"{factor:.2f}", f"{times(factor)} times"
    elif state == "level" and factor is not None:
        css, text, said = "level", SIGNS["level"], f"level, {times(factor)} times"
    else:
        css, text = (
            "behind",
            f"{SIGNS['behind']}\N{THIN SPACE}{times(factor) if factor else 'none'}",
        )
        said = f"behind, {times(factor)} times" if factor else "behind, no right answer, against"
    label = f"{case_words(ours)}: {said} the speed of {label_of(peer)}"
    return (
        f'<td role="cell" class="{css}"><a href="{page}#{anchor(ours)}" '
        f'aria-label="{escape(label)}">{text}</a></td>'
    )


def heat_map(
    caption: str,
    rows: list[dict],
    kinds: dict[str, Callable[[dict], bool]],
    where: Callable[[dict], str] = lambda row: "",
) -> str:
    """Lengths by kinds; `kinds` says by name which rows a column holds, `where` the way to the
    page that has a row in full."""
    lengths = sorted({n_cols(row) for row in rows})
    groups = {}
    for group in by_case(rows).values():
        some = next(iter(group.values()))
        for name, holds in kinds.items():
            if holds(some):
                groups[name, n_cols(some)] = group
    lines = [
        f'<table class="heat" role="table" style="--kinds: {len(kinds)}">',
        f"<caption>{caption}</caption>",
        '<thead role="rowgroup"><tr role="row"><td role="cell" class="corner">length</td>'
        + "".join(f'<th role="columnheader" scope="col"><span>{name}</span></th>' for name in kinds)
        + '</tr></thead><tbody role="rowgroup">',
    ]
    for length in lengths:
        odd = ' class="odd"' if length % 2 else ""
        cells = ""
        for name in kinds:
            group = groups.get((name, length))
            page = where(next(iter(group.values()))) if group else ""
            cells += cell(group, page)
        lines.append(
            f'<tr role="row"{odd}><th role="rowheader" scope="row"><span>{length:,}</span></th>'
            f"{cells}</tr>"
        )
    lines.append("</tbody></table>")
    return "\n".join(lines)


LEGEND = (
    '<p class="bench-caption">× the speed of the fastest other library with a right answer · '
    f'<span class="level">=</span> within {percent(LEVEL)} · <span class="behind">▼</span> '
    "behind · <b>odd lengths bold</b> · a cell opens its row: times, percentiles, kernel, error</p>"
)


def of_dtype(direction: str, dtype: str) -> Callable[[dict], bool]:
    """Rows of one direction and type."""
    return lambda row: row["direction"] == direction and row["dtype"] == dtype


def by_dtype(rows: list[dict], directions: tuple[str, ...]) -> dict[str, Callable[[dict], bool]]:
    """Kinds by direction and type, forward first, float32 first; the direction is named only where
    there are two."""
    kinds = {}
    for direction in directions:
        for dtype in DTYPES:
            if any(row["direction"] == direction and row["dtype"] == dtype for row in rows):
                name = f"<b>{direction}</b> {dtype}" if len(directions) > 1 else dtype
                kinds[name] = of_dtype(direction, dtype)
    return kinds
