"""The map of the kernels: every rung, geometry and operation, with its picture, what it moves, and
how fast it was measured; and split rows compared with those who share a row in other ways."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import NamedTuple

import yaml

from softmax_bench import traffic
from softmax_bench.report import by_case, ratio
from softmax_site import equations
from softmax_site.benchmarks.data import given, of_suite
from softmax_site.benchmarks.page import Fragment, measured_by, origin, shown
from softmax_site.benchmarks.stand import Stand
from softmax_site.benchmarks.tables import Row, share_of, some, table
from softmax_site.benchmarks.words import times
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

    @property
    def picture(self) -> str:
        """Its drawing; the simple kernel has that of the whole one."""
        return self.kernel.removesuffix("_simple")


def front_matter(root: Path, page: str, name: str) -> list:
    """What the front matter of a page below `docs/` lists under a name."""
    text = (root / "docs" / page).read_text("utf8")
    head = re.match(rf"---\n(.*?\n{name}:.*?)\n---\n", text, re.S)
    return yaml.safe_load(head[1])[name] if head else []


def entries(root: Path | str = ".") -> list[Entry]:
    """Every kernel that a page below `docs/kernels` explains, in reading order."""
    root, found = Path(root), []
    for page in equations.load(root).titles:
        for each in front_matter(root, page, "map"):
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
        share = share_of(group, module)
        text = f"<b>{share:.2f}</b>" if share else "–"
        lines.append(f"{text} <small>{shape[1]:,} columns</small>")
    return "<br>".join(lines)


def _geometry_speed(data: dict, module: str) -> str:
    """The median share of the copy's speed, and the range, over all measured shapes that got this
    kernel, forward and backward."""
    lines = []
    for way in ("forward", "backward"):
        groups = [group for group in given(data, module, True) if some(group)["direction"] == way]
        shares = Stand(groups).of_copy
        lines.append(
            f"{way} <b>{shares.median:.2f}</b> "
            f"<small>({shares.low:.2f}–{shares.high:.2f}, {len(shares)} shapes)</small>"
            if shares
            else f"{way} –"
        )
    return "<br>".join(lines)


HEAD = ("", "kernel", "moves forward", "backward", "shapes that get it", "share of a copy's speed")


def _table(entries: list[Entry], caption: str, speeds: list[str]) -> str:
    rows = [
        Row(
            [
                drawing(entry.picture),
                f'<a href="/kernels/{entry.page}/"><code>{entry.kernel}</code></a> '
                + escape(entry.idea),
                _formula(entry.forward),
                _formula(entry.backward),
                escape(entry.shapes),
                speed,
            ],
            f'id="map-{entry.kernel}"',
        )
        for entry, speed in zip(entries, speeds, strict=True)
    ]
    return f'<div class="kernel-map">\n{table(HEAD, rows, css="", caption=caption)}\n</div>\n'


def tables(listed: list[Entry], data: dict) -> dict[str, Fragment]:
    """The map in three tables, with speeds where there are measurements."""
    *first, last = (f"{shape[0]:,} × {shape[1]:,}" for shape in LADDER)
    rungs = f"The ladder, measured on {', '.join(first)} and {last}, float32, forward"
    geometries = "The geometries, each measured on the shapes that the library gives it"

    def made(group: str, caption: str, speed: Callable[[dict, str], str]):
        entries = [entry for entry in listed if entry.group == group]
        speeds = [speed(data, entry.kernel) for entry in entries]
        return Fragment(_table(entries, caption, speeds))

    sized = measured_by([row for row in data["rows"] if row["bytes"]])
    return {
        "map-rungs": made("rungs", rungs, _rung_speed),  # on a page that has said when
        "map-geometries": made("geometries", geometries, _geometry_speed)._replace(measured=sized),
        "map-others": made("others", "Kernels beside the geometries", lambda *_: "–"),
    }


def where_clusters_win(data: dict) -> Fragment:
    """Ours against QuACK by direction, dtype and number of rows: where it is ahead, level and
    behind, and by how much."""
    kinds: dict[tuple, list[dict]] = {}
    groups = given(data, "split_rows")
    for group in groups:
        row = some(group)
        if ratio(group, "quack"):
            few = "few rows (64 at most)" if row["shape"][0] <= 64 else "many rows"
            kinds.setdefault((few, row["direction"], row["dtype"]), []).append(group)
    head = ["rows", "direction", "dtype", "shapes", "ahead", "level", "behind"]
    body = []
    for kind, of_kind in sorted(kinds.items()):
        stand = Stand(of_kind, lambda _: "quack")
        factors = stand.over_best, min(stand.factors), max(stand.factors)
        counts = stand.cases, stand.ahead, stand.level, stand.behind
        body.append([*kind, *map(str, counts), *map(times, factors)])
    return shown(
        table([*head, "our speed over QuACK's: mean", "lowest", "highest"], body, 3),
        [row for group in groups for row in group.values()],
    )


def fragments(root: Path, data: dict) -> dict[str, Fragment]:
    """Everything above by the name that a page includes it by."""
    suites = [row for row in data["rows"] if row["suite"] in ("ladder", "strided") and row["us"]]
    listed = entries(root)
    return {
        **tables(listed, data),
        "roofline-measured": Fragment(origin(suites), measured_by(suites)),
        "where-clusters-win": where_clusters_win(data),
    }
