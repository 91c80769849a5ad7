"""All suites together, for the first page of the part: verdict, heat map, findings, weaknesses.

Every sentence is made from the data, and a finding that the data no longer bear is not made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from html import escape
from statistics import median

from softmax_bench.report import best_peer, by_case, geometric_mean, ratio, timed
from softmax_bench.roster import CHOOSER, COPY, label_of
from softmax_bench.targets import reason_for
from softmax_site.benchmarks import heat
from softmax_site.benchmarks.data import case_words, is_odd, n_cols, of_suite
from softmax_site.benchmarks.page import Fragment, block, measured_by
from softmax_site.benchmarks.rungs import NOT_MEASURED
from softmax_site.benchmarks.suites.host import HOST_CALLS
from softmax_site.benchmarks.words import (
    PAGES,
    link,
    measured_line,
    stand,
    verdict,
    verdict_sentence,
)

COMPARED = ("forward", "backward", "few_rows", "log_softmax", "strided")
"""Suites with every library in them."""


def page_of(row: dict) -> str:
    """The way from the overview to the page that has a row in full."""
    return f"{PAGES[row['suite']]}/"


def grid(data: dict) -> list[dict]:
    """Forward and backward over all lengths."""
    return of_suite(data, "forward") + of_suite(data, "backward")


def overview_fragment(data: dict, reasons: dict[str, str]) -> Fragment:
    """The first page of the benchmarks."""
    rows = grid(data)
    if not rows:
        return NOT_MEASURED
    map_of = heat.heat_map(
        "Softmax over rows that lie one after another",
        rows,
        heat.by_dtype(rows, ("forward", "backward")),
        page_of,
    )
    parts = [
        block(verdict_sentence(rows, page_of), hidden=False),
        block(map_of + heat.LEGEND),
        "## What the numbers say",
        block(_listed(findings(data)), hidden=False),
        "## Where it is weak",
        block(weaknesses(data, reasons), hidden=False),
        measured_line(data, rows) + "\n{ .bench-note data-search-exclude }",
    ]
    return Fragment("\n\n".join(parts) + "\n", measured_by(rows))


def _listed(items: list[str]) -> str:
    return '<ol class="findings">\n' + "\n".join(f"<li>{item}</li>" for item in items) + "\n</ol>"


def _shares(rows: list[dict], who: Callable[[dict], str | None]) -> list[float]:
    """Of the copy's speed, for the provider that `who` finds in each case."""
    found = []
    for group in by_case(rows).values():
        name, copy = who(group), timed(group.get(COPY))
        own = timed(group.get(name)) if name else None
        if copy and own:
            found.append(copy / own)
    return found


def findings(data: dict) -> list[str]:
    """What the numbers say, in about five sentences, as HTML."""
    rows = grid(data)
    made = (_odd, _long, _even, _few, _other_dimensions, _log_sum_exp)
    return [text for make in made if (text := make(data, rows))]


def _odd(data: dict, rows: list[dict]) -> str:
    odd = [row for row in rows if is_odd(row)]
    ours, best = _shares(odd, lambda _: CHOOSER), _shares(odd, best_peer)
    if not ours or not best or median(ours) <= median(best):
        return ""
    return (
        f"<b>Odd lengths are where libraries differ most.</b> There the best other library reaches "
        f"{median(best):.2f} of a copy in the median, ours {median(ours):.2f}: vectors of 16 bytes "
        'need <a href="../kernels/aligned-rows/">rows to be realigned</a>.'
    )


def _long(data: dict, rows: list[dict]) -> str:
    found = stand([row for row in rows if n_cols(row) > 131072])
    if (geometric_mean(found.ratios) or 0.0) < 1.02:
        return ""
    return (
        "<b>Rows beyond 131,072 columns are where one read counts most.</b> "
        '<a href="../kernels/split-rows/">Split over many</a>, it runs at '
        f"{geometric_mean(found.ratios):.2f} × the best other library in the geometric mean of "
        f"{found.cases} cells, and at {min(found.shares):.2f} to {max(found.shares):.2f} of a copy."
    )


def _even(data: dict, rows: list[dict]) -> str:
    even = [row for row in rows if not is_odd(row) and n_cols(row) <= 65536]
    found = stand(even)
    if not found.ratios or found.level < found.cases / 2:
        return ""
    best = Counter(label_of(peer) for group in by_case(even).values() if (peer := best_peer(group)))
    listed = ", ".join(f"{name} in {count}" for name, count in best.most_common())
    return (
        "<b>At even lengths up to 65,536 the limit is memory, and several reach it.</b> "
        f"{found.level} of {found.cases} cells are level with the best other library, at "
        f"{median(found.shares):.2f} of a copy in the median. The best other is {listed}."
    )


def _few(data: dict, rows: list[dict]) -> str:
    few = of_suite(data, "few_rows")
    found = stand(few)
    if not found.ratios:
        return ""
    behind = f", behind in {found.behind}" if found.behind else ", never behind"
    return (
        f"<b>With 64 rows or fewer</b> ours is ahead in {found.ahead} of {found.cases} "
        f'<a href="few-rows/">cells</a>{behind}; {geometric_mean(found.ratios):.2f} × the best '
        "other library in the geometric mean: many programs work on each row."
    )


def _other_dimensions(data: dict, rows: list[dict]) -> str:
    there = [row for row in of_suite(data, "strided") if row["layout"] == "contiguous"]
    found = stand(there)
    if not found.ratios:
        return ""
    return (
        "<b>Over a dimension that is not the last</b>, ours reaches "
        f'{min(found.shares):.2f} to {max(found.shares):.2f} of a copy <a href="strides/">by '
        f"shape</a>: ahead in {found.ahead} of {found.cases} cells, behind in {found.behind}."
    )


def _log_sum_exp(data: dict, rows: list[dict]) -> str:
    found = stand(of_suite(data, "log_softmax", op="logsumexp"))
    if not found.ratios:
        return ""
    return (
        f"<b>Log-sum-exp only reads</b>, so arithmetic shows: {min(found.shares):.2f} to "
        f'{max(found.shares):.2f} of a copy <a href="log-softmax/">by length and type</a>, and '
        f"{geometric_mean(found.ratios):.2f} × the best other library."
    )


def weaknesses(data: dict, reasons: dict[str, str]) -> str:
    """The worst cells of each suite, by the best other library and by the copy, as a table."""
    lines = []
    for suite in (*COMPARED, "host_time"):
        rows = of_suite(data, suite)
        found = stand(rows)
        picked = []
        if found.losses:
            picked.append(found.losses[0][1]["case"])
        shares = [
            (share, case)
            for case, group in by_case(rows).items()
            if (share := ratio(group, COPY)) and group[CHOOSER]["layout"] == "contiguous"
        ]
        if shares and min(shares)[0] < 0.9:
            picked.append(min(shares)[1])
        for case in dict.fromkeys(picked):
            lines.append(_weakness(by_case(rows)[case], reasons_of(case, reasons)))
    head = "<th scope=col>where</th><th scope=col>against the best other</th>"
    head += "<th scope=col class=n>of a copy</th><th scope=col>why, as far as we know</th>"
    return (
        f'<table class="bench-table weak"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table>"
        '<p class="bench-caption">The worst cell of each page. The reasons are read off the code '
        'and the counts of bytes, not profiled; <a href="targets/">all targets, and which were '
        "missed</a>.</p>"
    )


def reasons_of(case: str, reasons: dict[str, str]) -> str:
    """Why a case is slow, as far as we know."""
    return reason_for(case, reasons) or "not explained yet"


def _weakness(group: dict[str, dict], reason: str) -> str:
    row = group[CHOOSER]
    share = ratio(group, COPY)
    words = case_words(row)
    if row["suite"] == "host_time":
        words = f"one call on the host, {HOST_CALLS[row['direction']]}"
    return (
        f'<tr><th scope="row">{link(row, words, page_of(row))}</th>'
        f'<td data-label="against the best other">{verdict(group)}</td>'
        f'<td class="n" data-label="of a copy">{f"{share:.2f}" if share else "–"}</td>'
        f'<td data-label="why">{escape(reason)}</td></tr>'
    )


def fragments(data: dict, reasons: dict[str, str]) -> dict[str, Fragment]:
    """What the overview includes, by name."""
    return {"bench-overview": overview_fragment(data, reasons)}
