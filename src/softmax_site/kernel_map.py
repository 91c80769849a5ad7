"""The map of the kernels: every rung, geometry and operation, with its picture, what it moves, and
how fast it was measured; and split rows compared with those who share a row in other ways."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from statistics import median
from typing import NamedTuple

import yaml

from softmax_bench import traffic
from softmax_bench.report import by_case, geometric_mean, ratio, standing, timed
from softmax_bench.roster import CHOOSER, COPY, label_of
from softmax_site import equations
from softmax_site.benchmarks.data import case_words, of_suite, shape_words
from softmax_site.benchmarks.page import Fragment, block, measured_by
from softmax_site.benchmarks.tables import Row, table
from softmax_site.benchmarks.words import SIGNS, sign
from softmax_site.figures.drawings import drawing

LADDER = ((32768, 4096), (8192, 16384), (2048, 65536))
"""The shapes by which the rungs of the ladder are compared, float32: rows that a cache holds, rows
that it does not, and rows that registers do not hold either."""


class Entry(NamedTuple):
    """A kernel on the map, as the front matter of its page says under `map:`."""

    kernel: str
    page: str
    group: str
    """Which of the tables has it: `rungs`, written for softmax alone, each of which changes one
    thing; `geometries`, which say where a row lies, for every operation; `others`."""
    idea: str
    """What it changes."""
    shapes: str
    """Which shapes get it."""
    forward: str
    backward: str
    short: str = ""
    """A geometry for those who have not met it."""

    @property
    def picture(self) -> str:
        """Its drawing; the simple kernel has that of the whole one."""
        return self.kernel.removesuffix("_simple")


def entries(root: Path | str = ".") -> list[Entry]:
    """Every kernel that a page below `docs/kernels` explains, in reading order."""
    root, found = Path(root), []
    for page in equations.load(root).titles:
        text = (root / "docs" / page).read_text("utf8")
        head = re.match(r"---\n(.*?\nmap:.*?)\n---\n", text, re.S)
        for each in yaml.safe_load(head[1])["map"] if head else ():
            like = each.pop("moves", each["kernel"])
            if like in traffic.FORWARD:
                each["forward"] = traffic.FORWARD[like].formula
                each["backward"] = traffic.BACKWARD[like].formula
            found.append(Entry(page=page.removeprefix("kernels/").removesuffix(".md"), **each))
    return found


def _formula(text: str) -> str:
    """`8MN + 4M` with its letters in italics."""
    return re.sub(r"MN|M", lambda match: f"<i>{match[0]}</i>", escape(text))


def _rung_speed(data: dict, module: str) -> str:
    """The share of the copy's speed that a rung reaches on the common shapes, forward."""
    lines = []
    for shape in LADDER:
        rows = of_suite(data, "ladder", direction="forward", dtype="float32", shape=list(shape))
        group = next(iter(by_case(rows).values()), {})
        mine, copy = timed(group.get(module)), timed(group.get(COPY))
        share = f"<b>{copy / mine:.2f}</b>" if mine and copy else "–"
        lines.append(f"{share} <small>{shape[1]:,} columns</small>")
    return "<br>".join(lines)


def _chosen(data: dict, module: str) -> Iterator[tuple[dict[str, dict], dict]]:
    """The cases of softmax that the library gave to this kernel, where rows lie without gaps."""
    for suite in ("forward", "backward", "few_rows", "strided"):
        for group in by_case(of_suite(data, suite, op="softmax", layout="contiguous")).values():
            row = group.get(CHOOSER)
            if row and row["kernels"] and f"{module}_kernel" in row["kernels"]:
                yield group, row


def _geometry_speed(data: dict, module: str, direction: str) -> str:
    """The median share of the copy's speed, and the range, over the shapes that got this kernel."""
    shares = [
        share
        for group, row in _chosen(data, module)
        if row["direction"] == direction and (share := ratio(group, COPY))
    ]
    if not shares:
        return "–"
    return (
        f"<b>{median(shares):.2f}</b> "
        f"<small>({min(shares):.2f}–{max(shares):.2f}, {len(shares)} shapes)</small>"
    )


def _table(entries: list[Entry], caption: str, speeds) -> str:
    lines = [
        '<div class="kernel-map">',
        f"<table><caption>{caption}</caption><thead><tr><th></th><th>kernel</th>"
        "<th>moves forward</th><th>backward</th><th>shapes that get it</th>"
        "<th>share of a copy’s speed</th></tr></thead><tbody>",
    ]
    for entry in entries:
        picture = drawing(entry.picture)
        lines.append(
            f'<tr id="map-{entry.kernel}"><td>{picture}</td>'
            f'<td><a href="{entry.page}/"><code>{entry.kernel}</code></a> {escape(entry.idea)}</td>'
            f'<td data-label="moves forward">{_formula(entry.forward)}</td>'
            f'<td data-label="moves backward">{_formula(entry.backward)}</td>'
            f'<td data-label="shapes that get it">{escape(entry.shapes)}</td>'
            f'<td data-label="share of a copy’s speed">{speeds(entry)}</td></tr>'
        )
    lines += ["</tbody></table>", "</div>", ""]
    return "\n".join(lines)


def tables(listed: list[Entry], data: dict | None) -> dict[str, Fragment]:
    """The map in three tables, with speeds where there are measurements."""
    *first, last = (f"{shape[0]:,} × {shape[1]:,}" for shape in LADDER)
    named = f"{', '.join(first)} and {last}"
    rungs, geometries, others = (
        [entry for entry in listed if entry.group == group]
        for group in ("rungs", "geometries", "others")
    )
    of_rungs = measured_by(of_suite(data, "ladder")) if data else None
    of_library = measured_by([row for row in data["rows"] if row["bytes"]]) if data else None

    def rung(entry: Entry) -> str:
        return _rung_speed(data, entry.kernel) if data else "–"

    def geometry(entry: Entry) -> str:
        if not data:
            return "–"
        forward = _geometry_speed(data, entry.kernel, "forward")
        backward = _geometry_speed(data, entry.kernel, "backward")
        return f"forward {forward}<br>backward {backward}"

    return {
        "map-rungs": Fragment(
            _table(rungs, f"The ladder, measured on {named}, float32, forward", rung), of_rungs
        ),
        "map-geometries": Fragment(
            _table(
                geometries,
                "The geometries, each measured on the shapes that the library gives it",
                geometry,
            ),
            of_library,
        ),
        "map-others": Fragment(_table(others, "Kernels beside the geometries", lambda entry: "–")),
    }


def six(listed: list[Entry]) -> Fragment:
    """The geometries as pictures with two lines each, before the first of them is read."""
    items = "\n".join(
        f"<li>{drawing(entry.picture)}<p><strong>"
        f'<a href="../{entry.page}/">{entry.kernel.replace("_", " ").capitalize()}</a></strong> '
        f"{escape(entry.short)}"
        "</p></li>"
        for entry in listed
        if entry.short
    )
    return Fragment(f'<ol class="kernel-map six">\n{items}\n</ol>\n')


def _against(group: dict[str, dict], name: str) -> str:
    """Ours against another library, or why that has no time."""
    if timed(group.get(name)):
        return sign(ratio(group, name))
    row = group.get(name)
    return escape(row["status"]) if row else "–"


def against(data: dict) -> Fragment:
    """Ours against those who share a row otherwise, on every shape that split rows takes."""
    others = ("quack", "torch", "liger")
    body, factors, losses, unanswered = [], [], [], 0
    cases = [(group, row) for group, row in _chosen(data, "split_rows")]
    for group, row in cases:
        ours = ratio(group, COPY)
        quack = ratio(group, "quack")
        if quack:
            factors.append(quack)
            if standing(quack) == "behind":
                losses.append((quack, row))
        else:
            unanswered += 1
        cells = "".join(f"<td>{_against(group, name)}</td>" for name in others)
        body.append(
            f"<tr><td>{case_words(row)}</td><td>{f'{ours:.2f}' if ours else '–'}</td>{cells}</tr>"
        )
    if not factors:
        return Fragment("Not measured yet.\n")
    count = {name: sum(standing(each) == name for each in factors) for name in SIGNS}
    text = (
        f"Split rows takes {len(cases)} of the measured shapes. QuACK refuses or fails on "
        f"{unanswered} of them. On the other {len(factors)} our words are ahead of its clusters in "
        f"{count['ahead']}, level in {count['level']} and behind in {count['behind']}, and "
        f"{geometric_mean(factors):.2f} times as fast in the geometric mean."
    )
    if losses:
        listed = "\n".join(
            f"- {row['direction']}, {row['dtype']}, {shape_words(row)}: {factor:.2f} of its speed"
            for factor, row in sorted(losses, key=lambda each: each[0])
        )
        text += f" Where we are behind:\n\n{listed}"
    head = "".join(f"<th>{label_of(name)}</th>" for name in others)
    html = (
        "<details>\n<summary>Every shape</summary>\n"
        '<table class="against"><thead><tr><th>case</th>'
        f"<th>copy</th>{head}</tr></thead><tbody>\n" + "\n".join(body) + "\n</tbody></table>\n"
        "<p>Our speed over that of a copy, of QuACK, of torch and of Liger; ▲ ours is faster by "
        "more than 2 %, = level, ▼ ours is slower.</p>\n</details>\n"
    )
    return Fragment(f"{text}\n\n{html}", measured_by([row for _, row in cases]))


def where_clusters_win(data: dict) -> Fragment:
    """Ours against QuACK by direction, dtype and number of rows, as signs."""
    kinds: dict[tuple, list[float]] = {}
    for group, row in _chosen(data, "split_rows"):
        factor = ratio(group, "quack")
        if factor:
            few = "few rows (64 at most)" if row["shape"][0] <= 64 else "many rows"
            kinds.setdefault((few, row["direction"], row["dtype"]), []).append(factor)
    head = ["rows", "direction", "dtype", "shapes", "our speed over QuACK’s: mean"]
    body: list[Row | list[str]] = [
        [few, direction, dtype, str(len(factors))]
        + [sign(each) for each in (geometric_mean(factors), min(factors), max(factors))]
        for (few, direction, dtype), factors in sorted(kinds.items())
    ]
    return Fragment(block(table([*head, "lowest", "highest"], body, 3)) + "\n")


def fragments(root: Path, data: dict | None) -> dict[str, Fragment]:
    """Everything above by the name that a page includes it by."""
    suites = of_suite(data, "ladder") + of_suite(data, "strided") if data else []
    out = {"roofline-measured": Fragment("", measured_by(suites))}
    listed = entries(root)
    out |= tables(listed, data)
    out["figure-six"] = six(listed)
    empty = Fragment("Not measured yet.\n")
    out["split-rows-against"] = against(data) if data else empty
    out["where-clusters-win"] = where_clusters_win(data) if data else empty
    return out
