"""Tables, and what stands in their cells."""

from __future__ import annotations

import re
from html import escape

from softmax_bench.report import best_peer, by_case, gbs, ratio, standing, timed
from softmax_bench.roster import CHOOSER, COPY, LIBRARIES, label_of
from softmax_site.benchmarks.data import n_cols, runs_used, time_text


def table(head: list[str], rows: list[list[str]], left: int = 1) -> str:
    """A Markdown table; the first columns aligned left, the others right."""
    rule = [":--" if index < left else "--:" for index in range(len(head))]
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, rule, *rows)]
    return "\n".join(lines)


def _html(text: str) -> str:
    """The little Markdown that a cell may hold, as HTML."""
    text = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", text)
    return re.sub(r"`(.+?)`", r"<code>\1</code>", text)


def folded(title: str, head: list[str], rows: list[list[str]], left: int = 1) -> str:
    """A long table, folded away: as HTML, since hundreds of rows of Markdown take minutes to
    convert."""

    def line(tag: str, cells: list[str]) -> str:
        parts = [
            f"<{tag}>{_html(cell)}</{tag}>"
            if index < left
            else f'<{tag} align="right">{_html(cell)}</{tag}>'
            for index, cell in enumerate(cells)
        ]
        return "<tr>" + "".join(parts) + "</tr>"

    return "\n".join(
        [
            '<details class="note" data-search-exclude>',
            f"<summary>{escape(title)}</summary>",
            f"<table><thead>{line('th', head)}</thead><tbody>",
            *(line("td", cells) for cells in rows),
            "</tbody></table>",
            "</details>",
        ]
    )


def short(sha: str | None) -> str:
    """The first digits of a hash, in code font."""
    return f"`{sha[:8]}`" if sha else "–"


def state_cell(row: dict | None) -> str:
    """The state of a row that has no number, with its reason."""
    if row is None:
        return "–"
    reason = escape(row["reason"] or "", quote=True).replace("|", "&#124;")
    return f'<abbr title="{reason}">{row["status"]}</abbr>'


def speed_cell(row: dict | None, share: float = 1.0) -> str:
    """GB/s, or the state of a row that has none."""
    value = gbs(row) if row and row["status"] == "ok" else None
    return f"{value * share:,.0f}" if value else state_cell(row)


def time_cell(row: dict | None) -> str:
    """Microseconds, or the state of a row that has none."""
    value = timed(row)
    return f"{value:,.1f}" if value else state_cell(row)


def error_cell(row: dict | None) -> str:
    """The largest relative error of a row, with a mark where it is wrong."""
    if row is None or row["max_rel_error"] is None:
        return state_cell(row)
    value = float(row["max_rel_error"])
    text = "∞" if value == float("inf") else f"{value:.1e}"
    return f"**wrong** {text}" if row["status"] == "wrong" else text


def _error_text(value: float | str | None) -> str:
    if value is None:
        return "–"
    return "∞" if value == "inf" else f"{value:.2g}"


def share_cell(group: dict[str, dict]) -> str:
    """Our share of the copy's speed."""
    share = ratio(group, COPY)
    return f"{share:.2f}" if share else "–"


def verdict(group: dict[str, dict]) -> str:
    """Ours against the best other library, losses marked."""
    peer = best_peer(group)
    if peer is None:
        return "no other"
    factor = ratio(group, peer)
    if factor is None:
        return f"**▼ loss** to {label_of(peer)}"
    text = f"{factor:.2f} × {label_of(peer)}"
    return f"**▼ {text}, loss**" if standing(factor) == "behind" else text


def library_table(
    rows: list[dict], cell, first=lambda row: f"{n_cols(row):,}", title: str = "N"
) -> str:
    """Cases down, libraries across, and the verdict at the end."""
    there = {row["provider"] for row in rows}
    who = [name for name in (COPY, CHOOSER, *LIBRARIES) if name in there]
    body = []
    for group in by_case(rows).values():
        some = next(iter(group.values()))
        cells = []
        for name in who:
            text = cell(group.get(name))
            cells.append(
                f"**{text}**" if name == CHOOSER and not text.startswith(("<", "–", "*")) else text
            )
        body.append([first(some), *cells, share_cell(group), verdict(group)])
    head = [title, *(label_of(name) for name in who), "of copy", "against the best other"]
    return table(head, body)


def runs_table(data: dict, rows: list[dict]) -> str:
    """Machine, software and commit of each run behind the rows."""
    head = [
        "run",
        "GPU",
        "driver",
        "CUDA",
        "torch",
        "triton",
        "other libraries",
        "commit",
        "started, UTC",
    ]
    body = []
    for name in runs_used(data, rows):
        env = data["environments"][name]
        peers = (
            ", ".join(
                f"{label_of(peer)} {version}" for peer, version in env["peers"].items() if version
            )
            or "none"
        )
        body.append(
            [name, env["gpu"], env["driver"], env["cuda"], env["torch"], env["triton"], peers]
            + [f"`{env['commit'][:12]}`", time_text(env["started"])]
        )
    return table(head, body, len(head))


def all_rows(data: dict, rows: list[dict], title: str) -> str:
    """Every row with all its fields, folded away."""
    head = ["case", "who", "state", "p20 µs", "p50 µs", "p80 µs", "samples", "bytes", "GB/s"]
    head += ["largest error", "relative", "kernels", "source", "run", "UTC"]
    body = []
    for row in rows:
        us = row["us"] or {}
        speed = gbs(row)
        body.append(
            [f"`{row['case']}`", label_of(row["provider"])]
            + [row["status"] if row["status"] == "ok" else state_cell(row)]
            + [f"{us[name]:,.1f}" if us else "–" for name in ("p20", "p50", "p80")]
            + [str(row["samples"]), f"{row['bytes']:,}", f"{speed:,.0f}" if speed else "–"]
            + [_error_text(row["max_abs_error"]), _error_text(row["max_rel_error"])]
            + [", ".join(row["kernels"]) or "–", short(row["source"]), row["environment"]]
            + [row["utc"].replace("T", " ").removesuffix("Z")]
        )
    return folded(title, head, body, 3)
