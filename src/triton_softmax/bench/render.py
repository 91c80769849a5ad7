"""From data to pages: the fragments, charts and tables that the benchmark pages include.

Everything here depends on the committed data alone: not on the date, and not on the kernels as they
    stand now. What
depends on those (a kernel changed since, a measurement grown old) is decided by `notice` when the
site is built.
"""

from __future__ import annotations

import csv
import io
import json
import re
from html import escape
from pathlib import Path

from triton_softmax.bench import gpu_report, schema, targets
from triton_softmax.bench.cases import ACCURACY_INPUTS, CHOOSER, COPY, LIBRARIES, RUNGS
from triton_softmax.bench.charts import NAMES, Chart, spec_text, style_sheet, svg
from triton_softmax.bench.report import best_peer, by_case, gbs, geometric_mean, ratio, timed

DATA = "docs/benchmarks/data"
FRAGMENTS = "docs/_generated"
ASSETS = "docs/assets/bench"
PUBLISHED_SCHEMA = "docs/benchmarks/schema.json"
GPU_TESTS = "docs/benchmarks/gpu-tests.json"
REASONS = "docs/benchmarks/reasons.json"

LOSS = 0.98
"""Below this share of the best peer's speed a cell is marked as a loss; between it and one the two
are level."""

DTYPES = ("float32", "bfloat16", "float16")


# Reading


def newest(root: Path) -> tuple[Path, dict] | None:
    """The data file with the latest measurement, validated; None without data."""
    loaded = [(path, schema.load(path)) for path in sorted((root / DATA).glob("*.json"))]
    loaded = [(path, data) for path, data in loaded if data["rows"]]
    if not loaded:
        return None
    return max(loaded, key=lambda item: max(row["utc"] for row in item[1]["rows"]))


def read_reasons(root: Path) -> dict[str, str]:
    """Why a target is missed, by pattern of cases."""
    path = root / REASONS
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def of_suite(data: dict, suite: str, **fields) -> list[dict]:
    """The rows of a suite whose fields have these values."""
    return [
        row
        for row in data["rows"]
        if row["suite"] == suite and all(row[name] == value for name, value in fields.items())
    ]


def n_cols(row: dict) -> int:
    """The row length of a case."""
    return row["shape"][row["dim"]]


def shape_text(row: dict) -> str:
    """The shape as the pages write it."""
    text = " × ".join(f"{size:,}" for size in row["shape"])
    if row["dim"] != -1:
        text += f", dim {row['dim']}"
    return text + (", strided rows" if row["layout"] == "row_strided" else "")


def short(sha: str | None) -> str:
    """The first digits of a hash, in code font."""
    return f"`{sha[:8]}`" if sha else "–"


# Parts of a page


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


def marker(data: dict, rows: list[dict], implementations: tuple[str, ...] = (CHOOSER,)) -> str:
    """The line from which the build sees whether the measurement is out of date."""
    utc = min((row["utc"] for row in rows), default=None)
    sources = {}
    for name in implementations:
        measured = [row for row in rows if row["provider"] == name and row["source"]]
        if measured:
            sources[name] = max(measured, key=lambda row: row["utc"])["source"]
    return f"<!-- measured: {json.dumps({'utc': utc, 'sources': sources})} -->"


def runs_used(data: dict, rows: list[dict]) -> list[str]:
    """The runs that these rows come from."""
    used = {row["environment"] for row in rows}
    return [name for name in data["environments"] if name in used]


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
                f"{NAMES[peer]} {version}" for peer, version in env["peers"].items() if version
            )
            or "none"
        )
        body.append(
            [name, env["gpu"], env["driver"], env["cuda"], env["torch"], env["triton"], peers]
            + [f"`{env['commit'][:12]}`", time_text(env["started"])]
        )
    return table(head, body, len(head))


def time_text(utc: str) -> str:
    """A time stamp as the pages write it.

    >>> time_text("2026-11-20T21:05:09Z")
    '2026-11-20 21:05'
    """
    return utc.replace("T", " ")[:16]


def measured_line(data: dict, rows: list[dict]) -> str:
    """One sentence: on what, when and how many rows."""
    env = data["environments"][runs_used(data, rows)[-1]]
    times = sorted(row["utc"] for row in rows)
    states: dict[str, int] = {}
    for row in rows:
        states[row["status"]] = states.get(row["status"], 0) + 1
    count = ", ".join(
        f"{number} {state}" for state, number in sorted(states.items(), key=lambda item: -item[1])
    )
    return (
        f"Measured on one {env['gpu']} with torch {env['torch']} and triton {env['triton']}, "
        f"{time_text(times[0])} to {time_text(times[-1])} UTC, commit `{env['commit'][:12]}`; "
        f"{len(rows)} rows: {count}."
    )


def _abbreviated(row: dict | None) -> str:
    if row is None:
        return "–"
    return f'<abbr title="{escape(row["reason"] or "", quote=True).replace("|", "&#124;")}">{row["status"]}</abbr>'


def speed_cell(row: dict | None, share: float = 1.0) -> str:
    """GB/s, or the state of a row that has none."""
    value = gbs(row) if row and row["status"] == "ok" else None
    return f"{value * share:,.0f}" if value else _abbreviated(row)


def time_cell(row: dict | None) -> str:
    """Microseconds, or the state of a row that has none."""
    value = timed(row)
    return f"{value:,.1f}" if value else _abbreviated(row)


def error_cell(row: dict | None) -> str:
    """The largest relative error of a row, with a mark where it is wrong."""
    if row is None or row["max_rel_error"] is None:
        return _abbreviated(row)
    value = float(row["max_rel_error"])
    text = "∞" if value == float("inf") else f"{value:.1e}"
    return f"**wrong** {text}" if row["status"] == "wrong" else text


def verdict(group: dict[str, dict]) -> str:
    """Ours against the best other library, losses marked."""
    peer = best_peer(group)
    if peer is None:
        return "no other"
    factor = ratio(group, peer)
    if factor is None:
        return f"**▼ loss** to {NAMES[peer]}"
    text = f"{factor:.2f} × {NAMES[peer]}"
    return f"**▼ {text}, loss**" if factor < LOSS else text


def share_cell(group: dict[str, dict]) -> str:
    """Our share of the copy's speed."""
    share = ratio(group, COPY)
    return f"{share:.2f}" if share else "–"


def all_rows(data: dict, rows: list[dict], title: str) -> str:
    """Every row with all its fields, folded away."""
    head = ["case", "who", "state", "p20 µs", "p50 µs", "p80 µs", "samples", "bytes", "GB/s"]
    head += ["largest error", "relative", "kernels", "source", "run", "UTC"]
    body = []
    for row in rows:
        us = row["us"] or {}
        speed = gbs(row)
        body.append(
            [f"`{row['case']}`", NAMES.get(row["provider"], row["provider"])]
            + [row["status"] if row["status"] == "ok" else _abbreviated(row)]
            + [f"{us[name]:,.1f}" if us else "–" for name in ("p20", "p50", "p80")]
            + [str(row["samples"]), f"{row['bytes']:,}", f"{speed:,.0f}" if speed else "–"]
            + [_error_text(row["max_abs_error"]), _error_text(row["max_rel_error"])]
            + [", ".join(row["kernels"]) or "–", short(row["source"]), row["environment"]]
            + [row["utc"].replace("T", " ").removesuffix("Z")]
        )
    return folded(title, head, body, 3)


def _error_text(value: float | str | None) -> str:
    if value is None:
        return "–"
    return "∞" if value == "inf" else f"{value:.2g}"


def csv_text(data: dict, rows: list[dict]) -> str:
    """The rows of a page as CSV, with machine and software in every line."""
    out = io.StringIO()
    env_fields = ("gpu", "driver", "cuda", "torch", "triton", "commit")
    names = [
        "case",
        "suite",
        "op",
        "direction",
        "dtype",
        "shape",
        "dim",
        "layout",
        "inputs",
        "provider",
        "status",
    ]
    names += [
        "reason",
        "bytes",
        "p20_us",
        "p50_us",
        "p80_us",
        "samples",
        "gb_per_s",
        "gb_per_s_counting_m_n",
    ]
    names += [
        "max_abs_error",
        "max_rel_error",
        "kernels",
        "compiled",
        "source",
        "utc",
        *env_fields,
        "peer_version",
    ]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        env, us = data["environments"][row["environment"]], row["us"] or {}
        speed = gbs(row)
        half = speed / (3 if row["direction"] == "backward" else 2) if speed else None
        writer.writerow(
            [row[name] for name in ("case", "suite", "op", "direction", "dtype")]
            + ["x".join(map(str, row["shape"]))]
            + [
                row[name]
                for name in ("dim", "layout", "inputs", "provider", "status", "reason", "bytes")
            ]
            + [us.get(name) for name in ("p20", "p50", "p80")]
            + [row["samples"], round(speed, 1) if speed else None, round(half, 1) if half else None]
            + [row["max_abs_error"], row["max_rel_error"], " ".join(row["kernels"]), row["count"]]
            + [
                row["source"],
                row["utc"],
                *(env[name] for name in env_fields),
                env["peers"].get(row["provider"]),
            ]
        )
    return out.getvalue()


# Charts


def points(data: dict, rows: list[dict], x, y) -> list[dict]:
    """The points of a chart: every row that has a value, with what the tooltip shows."""
    found = []
    groups = by_case(rows)
    for row in rows:
        if row["status"] not in ("ok", "wrong"):
            continue
        value = y(row)
        if not value or value == float("inf"):
            continue
        us, speed = row["us"] or {}, gbs(row)
        point = {
            "provider": row["provider"],
            "x": x(row),
            "y": round(value, 3) if value >= 0.01 else value,
            "case": row["case"],
            "run": row["environment"],
            "utc": row["utc"],
            **{name: us[name] for name in us},
        }
        if speed:
            point["gbs"] = round(speed)
        if us:
            point["samples"] = row["samples"]
        copy = timed(groups[row["case"]].get(COPY))
        if copy and us:
            point["of_copy"] = round(copy / us["p50"], 3)
        for name in ("max_abs_error", "max_rel_error"):
            if row[name] is not None:
                point[name] = row[name]
        if row["kernels"]:
            point["kernels"] = ", ".join(row["kernels"])
        if row["source"]:
            point["source"] = row["source"][:12]
        found.append(point)
    return found


def runs_of(data: dict, rows: list[dict]) -> list[dict]:
    """Machine and software of each run, for the tooltip."""
    keys = ("gpu", "driver", "cuda", "torch", "triton", "commit")
    return [
        {"run": name, **{key: data["environments"][name][key] for key in keys}}
        for name in runs_used(data, rows)
    ]


class Page:
    """Collects the files of one fragment: its text, its charts and its CSV."""

    def __init__(self, data: dict, name: str, rows: list[dict]):
        self.data, self.name, self.rows = data, name, rows
        self.parts: list[str] = []
        self.files: dict[str, str] = {}

    def add(self, text: str) -> None:
        """A part of the fragment."""
        self.parts.append(text)

    def head(self, implementations: tuple[str, ...] = (CHOOSER,)) -> None:
        """The marker for the build, and the sentence on when and where."""
        self.add(marker(self.data, self.rows, implementations))
        self.add(measured_line(self.data, self.rows))

    def chart(self, chart: Chart) -> None:
        """A chart with the links to its data."""
        if not chart.points:
            return
        self.files[f"{ASSETS}/{chart.name}.vl.json"] = spec_text(chart)
        self.add(
            f'<div class="bench-figure" data-search-exclude data-chart="{chart.name}">\n{svg(chart)}\n</div>'
        )
        self.add(
            f"[Chart specification](../assets/bench/{chart.name}.vl.json)"
            f'{{ .bench-spec data-for="{chart.name}" }} · [CSV](../assets/bench/{self.name}.csv){{ .bench-csv }}'
        )

    def done(self) -> dict[str, str]:
        """The files: fragment, charts, CSV."""
        self.add("Runs behind this page:")
        self.add(runs_table(self.data, self.rows))
        self.add(all_rows(self.data, self.rows, f"Every row of this page ({len(self.rows)})"))
        self.files[f"{ASSETS}/{self.name}.csv"] = csv_text(self.data, self.rows)
        self.files[f"{FRAGMENTS}/bench-{self.name}.md"] = "\n\n".join(self.parts) + "\n"
        return self.files


def speed_chart(data: dict, name: str, rows: list[dict], title: str, **more) -> Chart:
    """Throughput over the row length."""
    who = ", ".join(NAMES[p] for p in NAMES if any(row["provider"] == p for row in rows))
    return Chart(
        name=name,
        alt=f"{title}: throughput in GB/s over the number of columns N, for {who}. The numbers are in the table below.",
        x_title="columns N",
        y_title="GB/s of useful traffic",
        points=points(data, rows, n_cols, gbs),
        runs=runs_of(data, rows),
        **more,
    )


def named_chart(
    data: dict, name: str, rows: list[dict], title: str, label, y, y_title: str, **more
) -> Chart:
    """Values over cases that have names rather than a size."""
    categories = list(dict.fromkeys(label(row) for row in rows))
    return Chart(
        name=name,
        alt=f"{title}. The numbers are in the table below.",
        x_title="",
        y_title=y_title,
        points=points(data, rows, label, y),
        runs=runs_of(data, rows),
        categories=categories,
        **more,
    )


# Sentences


def summary(rows: list[dict]) -> str:
    """What the numbers say, in words."""
    wins, level, losses, peers, torches, shares = [], [], [], [], [], []
    for case, group in by_case(rows).items():
        peer = best_peer(group)
        if CHOOSER not in group or peer is None:
            continue
        factor = ratio(group, peer)
        if factor is None or factor < LOSS:
            losses.append((case, factor, peer))
        else:
            (wins if factor > 1 else level).append(case)
        peers += [factor] if factor else []
        torches += [ratio(group, "torch")] if ratio(group, "torch") else []
        shares += [(ratio(group, COPY), case)] if ratio(group, COPY) else []
    if not peers:
        return "No case has both an answer of ours and one of another library."
    text = (
        f"Against the fastest other library of each case, `triton_softmax` is ahead in {len(wins)} of "
        f"{len(wins) + len(level) + len(losses)} cases, level (within {1 - LOSS:.0%}) in {len(level)}, and behind "
        f"in {len(losses)}. The geometric mean of its speed is {geometric_mean(peers):.2f} × the best other library"
    )
    if torches:
        text += f" and {geometric_mean(torches):.2f} × torch"
    text += "."
    if shares:
        worst, case = min(shares)
        ordered = sorted(share for share, _ in shares)
        text += (
            f" It reaches {ordered[len(ordered) // 2]:.2f} of the copy's speed in the median case and {worst:.2f} in "
            f"the worst, `{case}`."
        )
    if losses:
        listed = "; ".join(
            f"`{case}` ({f'{factor:.2f} ×' if factor else 'no answer against'} {NAMES[peer]})"
            for case, factor, peer in losses
        )
        text += f" Losses: {listed}."
    return text


# The pages


def speed_page(data: dict, suite: str) -> dict[str, str]:
    """Forward or backward over the whole grid."""
    rows = of_suite(data, suite)
    page = Page(data, suite, rows)
    page.head()
    page.add(summary(rows))
    for dtype in DTYPES:
        part = [row for row in rows if row["dtype"] == dtype]
        if not part:
            continue
        page.add(f"## {suite.capitalize()}, {dtype}")
        page.chart(speed_chart(data, f"{suite}-{dtype}", part, f"Softmax {suite}, {dtype}"))
        page.add(library_table(part, speed_cell))
    return page.done()


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
    head = [title, *(NAMES[name] for name in who), "of copy", "against the best other"]
    return table(head, body)


def few_rows_page(data: dict) -> dict[str, str]:
    """Few rows: times, since a launch weighs as much as the bytes."""
    rows = of_suite(data, "few_rows")
    page = Page(data, "few_rows", rows)
    page.head()
    page.add(summary(rows))
    for direction in ("forward", "backward"):
        for dtype in DTYPES:
            part = [row for row in rows if row["direction"] == direction and row["dtype"] == dtype]
            if not part:
                continue
            page.add(f"## Few rows, {direction}, {dtype}")
            page.chart(
                named_chart(
                    data,
                    f"few_rows-{direction}-{dtype}",
                    part,
                    f"Softmax {direction} on few rows, {dtype}: microseconds by shape and library",
                    shape_text,
                    timed,
                    "µs",
                    y_log=True,
                )
            )
            page.add("Microseconds:")
            page.add(library_table(part, time_cell, shape_text, "M × N"))
    return page.done()


HOST_CALLS = {
    "forward": "no gradient",
    "forward_grad": "with gradient, forward",
    "forward_backward": "with gradient, forward and backward",
}


def host_time_page(data: dict) -> dict[str, str]:
    """Host time per call, and how many kernels a sweep compiles."""
    rows = of_suite(data, "host_time")
    page = Page(data, "host_time", rows)
    page.head()
    there = [name for name in (CHOOSER, *LIBRARIES) if any(row["provider"] == name for row in rows)]

    def label(row: dict) -> str:
        return HOST_CALLS[row["direction"]]

    page.chart(
        named_chart(
            data,
            "host_time",
            rows,
            "Host time of one call by kind of call and library, in microseconds",
            label,
            timed,
            "µs",
        )
    )
    page.add("Microseconds on the host for one call:")
    body = []
    for group in by_case(rows).values():
        some = next(iter(group.values()))
        times = ratio(group, "torch")
        mark = "–" if times is None else f"{1 / times:.2f} × torch"
        if times is not None and times < 1 / targets.HOST_AT_MOST:
            mark = f"**▼ {mark}, loss**"
        body.append(
            [label(some), shape_text(some), *(time_cell(group.get(name)) for name in there), mark]
        )
    page.add(
        table(["call", "M × N", *(NAMES[name] for name in there), "triton_softmax takes"], body, 2)
    )
    return page.done()


def compiles_page(data: dict) -> dict[str, str]:
    """How many kernels a sweep over row lengths compiles."""
    rows = of_suite(data, "compiles")
    page = Page(data, "compiles", rows)
    page.head()
    body = [
        [row["dtype"], row["direction"], str(row["samples"])]
        + [
            _abbreviated(row) if row["count"] is None else str(row["count"]),
            "<br>".join(row["kernels"]) or "–",
        ]
        for row in rows
    ]
    page.add(table(["dtype", "direction", "different N", "kernels compiled", "which"], body, 2))
    return page.done()


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
assert tuple(INPUTS) == ACCURACY_INPUTS


def accuracy_page(data: dict) -> dict[str, str]:
    """Largest relative error of a row against float64."""
    rows = of_suite(data, "accuracy")
    page = Page(data, "accuracy", rows)
    page.head()
    there = [name for name in (CHOOSER, *LIBRARIES) if any(row["provider"] == name for row in rows)]
    right = {
        name: sum(row["provider"] == name and row["status"] == "ok" for row in rows)
        for name in there
    }
    cases = len(by_case(rows))
    page.add(
        "Right answers: "
        + ", ".join(f"{NAMES[name]} {right[name]} of {cases}" for name in there)
        + ". "
        "A case that a library refuses or fails counts as no right answer."
    )
    for dtype in DTYPES:
        part = [row for row in rows if row["dtype"] == dtype and row["inputs"] == "normal"]
        if len({n_cols(row) for row in part}) > 1:
            only = [row for row in part if row["direction"] == "forward"]
            page.chart(
                Chart(
                    name=f"accuracy-{dtype}",
                    alt=f"Largest relative error of a row against float64 over N, {dtype}, by library. "
                    "The numbers are in the table below.",
                    x_title="columns N",
                    y_title="largest relative error of a row",
                    points=points(
                        data,
                        only,
                        n_cols,
                        lambda row: float(row["max_rel_error"]) if row["max_rel_error"] else None,
                    ),
                    runs=runs_of(data, only),
                    y_log=True,
                )
            )
        page.add(f"## Errors, {dtype}")
        body = []
        for group in by_case([row for row in rows if row["dtype"] == dtype]).values():
            some = next(iter(group.values()))
            body.append(
                [f"{n_cols(some):,}", some["direction"], INPUTS[some["inputs"]]]
                + [error_cell(group.get(name)) for name in there]
            )
        page.add(table(["N", "direction", "input", *(NAMES[name] for name in there)], body, 3))
    return page.done()


def ladder_page(data: dict) -> dict[str, str]:
    """Every rung on the same shapes."""
    rows = of_suite(data, "ladder")
    page = Page(data, "ladder", rows)
    page.head((CHOOSER, *RUNGS))
    there = {row["provider"] for row in rows}
    who = [name for name in (COPY, "torch", *RUNGS, CHOOSER) if name in there]
    for direction in ("forward", "backward"):
        for dtype in DTYPES:
            part = [row for row in rows if row["direction"] == direction and row["dtype"] == dtype]
            if not part:
                continue
            page.add(f"## The ladder, {direction}, {dtype}")
            page.chart(
                speed_chart(
                    data, f"ladder-{direction}-{dtype}", part, f"The rungs, {direction}, {dtype}"
                )
            )
            body = []
            for group in by_case(part).values():
                some = next(iter(group.values()))
                body.append([f"{n_cols(some):,}", *(speed_cell(group.get(name)) for name in who)])
            page.add(table(["N", *(NAMES[name] for name in who)], body))
    return page.done()


def rung_fragment(data: dict, rung: str) -> dict[str, str]:
    """What one rung reaches, for its own page."""
    rows = of_suite(data, "ladder") if rung != "strided" else of_suite(data, "strided")
    mine = [row for row in rows if row["provider"] == rung]
    if not mine:
        return {}
    parts = [marker(data, mine, (rung,)), measured_line(data, mine)]
    body, losses = [], []
    for group in by_case(rows).values():
        row = group.get(rung)
        if row is None:
            continue
        speed, copy, other = gbs(row), gbs(group.get(COPY)), gbs(group.get("torch"))
        ok = speed and row["status"] == "ok"
        to_torch = speed / other if ok and other else None
        if to_torch and to_torch < 1:
            losses.append((to_torch, row))
        against = "–" if to_torch is None else f"{to_torch:.2f} × torch"
        body.append(
            [row["direction"], row["dtype"], shape_text(row), speed_cell(row)]
            + [f"{speed / copy:.2f}" if ok and copy else "–"]
            + [f"**▼ {against}, loss**" if to_torch and to_torch < 1 else against]
        )
    parts.append(
        table(["direction", "dtype", "shape", "GB/s", "of copy", "against torch"], body, 3)
    )
    if losses:
        worst, row = min(losses, key=lambda item: item[0])
        parts.append(
            f"It is slower than torch in {len(losses)} of these {len(body)} cases, most on {shape_text(row)}, "
            f"{row['direction']}, {row['dtype']}: {worst:.2f} of torch's speed."
        )
    elif any(timed(row) for row in mine):
        parts.append("It is nowhere slower than torch on these shapes.")
    parts.append(
        "All rungs on the same shapes, machine, versions and commit: [the ladder measured](../benchmarks/ladder.md)."
    )
    return {f"{FRAGMENTS}/bench-rung-{rung}.md": "\n\n".join(parts) + "\n"}


def strided_page(data: dict) -> dict[str, str]:
    """A reduced dimension that is not the last, and rows with gaps."""
    rows = of_suite(data, "strided")
    page = Page(data, "strided", rows)
    page.head((CHOOSER, "strided"))
    page.add(summary(rows))
    for direction in ("forward", "backward"):
        for dtype in DTYPES:
            part = [row for row in rows if row["direction"] == direction and row["dtype"] == dtype]
            if part:
                page.add(f"## Strides, {direction}, {dtype}")
                page.chart(
                    named_chart(
                        data,
                        f"strided-{direction}-{dtype}",
                        part,
                        f"Softmax {direction} over strided rows, {dtype}: GB/s by shape and library",
                        shape_text,
                        gbs,
                        "GB/s of useful traffic",
                    )
                )
                page.add(library_table(part, speed_cell, shape_text, "shape"))
    return page.done()


def log_softmax_page(data: dict) -> dict[str, str]:
    """log_softmax and logsumexp on part of the grid."""
    rows = of_suite(data, "log_softmax")
    page = Page(data, "log_softmax", rows)
    page.head()
    page.add(summary(rows))
    for op, direction in (
        ("log_softmax", "forward"),
        ("log_softmax", "backward"),
        ("logsumexp", "forward"),
    ):
        for dtype in DTYPES:
            part = [
                r
                for r in rows
                if r["op"] == op and r["direction"] == direction and r["dtype"] == dtype
            ]
            if part:
                page.add(f"## `{op}`, {direction}, {dtype}")
                name = f"log_softmax-{op}-{direction}-{dtype}"
                page.chart(speed_chart(data, name, part, f"{op} {direction}, {dtype}"))
                page.add(library_table(part, speed_cell))
    return page.done()


TUTORIAL_COLUMNS = 128 * 49


def article_page(data: dict) -> dict[str, str]:
    """The benchmarks of two of the sources, on their shapes, with both ways of counting bytes."""
    rows = of_suite(data, "article")
    page = Page(data, "article", rows)
    page.head((CHOOSER, "naive", "single_block", "two_loops"))
    there = {row["provider"] for row in rows}
    who = [
        name
        for name in (COPY, CHOOSER, "torch", "naive", "single_block", "two_loops")
        if name in there
    ]
    page.add("### As in the article: 2·M·N elements counted")
    page.chart(
        speed_chart(data, "article", rows, "Softmax forward, float32, 4,096 rows", y_half="GB/s")
    )
    body = []
    for group in by_case(rows).values():
        some = next(iter(group.values()))
        body.append([f"{n_cols(some):,}", *(speed_cell(group.get(name)) for name in who)])
    head = ["N", *(NAMES[name] for name in who)]
    page.add(folded("GB/s, 2·M·N elements counted", head, body))
    lines = [name for name in (CHOOSER, "torch", "naive") if name in there]
    first = [row for row in rows if n_cols(row) <= TUTORIAL_COLUMNS and row["provider"] in lines]
    if first:
        page.add("### As in the tutorial: M·N elements counted")
        chart = speed_chart(
            data, "article-tutorial", first, "Fused, torch and naive softmax, 4,096 rows, float32"
        )
        for point in chart.points:
            point["y"] = round(point["y"] / 2, 3)
        chart.y_title = "GB/s, M·N elements counted"
        page.chart(chart)
        body = []
        for group in by_case(first).values():
            some = next(iter(group.values()))
            body.append(
                [f"{n_cols(some):,}", *(speed_cell(group.get(name), 0.5) for name in lines)]
            )
        page.add(
            folded("GB/s, M·N elements counted", ["N", *(NAMES[name] for name in lines)], body)
        )
        naive = [
            ratio(group, "naive") for group in by_case(first).values() if ratio(group, "naive")
        ]
        if naive:
            page.add(
                f"Over these shapes `triton_softmax` is {min(naive):.1f} to {max(naive):.1f} times as fast as the "
                f"naive lines, {geometric_mean(naive):.1f} in the geometric mean; the traffic alone allows a little "
                "over four."
            )
    return page.done()


def batch_page(data: dict) -> dict[str, str]:
    """Forward and backward across batch sizes."""
    rows = of_suite(data, "batch")
    page = Page(data, "batch", rows)
    page.head((CHOOSER, "naive", "single_block"))
    there = {row["provider"] for row in rows}
    order = (COPY, CHOOSER, "torch", "torch.compile", "naive", "single_block")
    who = [name for name in order if name in there]
    for direction in ("forward", "backward"):
        part = [row for row in rows if row["direction"] == direction]
        if not part:
            continue
        page.add(f"### Across batch sizes, {direction}")
        chart = Chart(
            name=f"batch-{direction}",
            alt=f"Softmax {direction} across batch sizes, float32: microseconds over the number of rows. "
            "The numbers are in the table below.",
            x_title="rows M",
            y_title="µs",
            points=points(data, part, lambda row: row["shape"][0], timed),
            runs=runs_of(data, part),
            y_log=True,
        )
        page.chart(chart)
        page.add("Microseconds:")
        body = []
        for group in by_case(part).values():
            some = next(iter(group.values()))
            factor = ratio(group, "torch")
            text = "–" if factor is None else f"{factor:.2f} × torch"
            if factor is not None and factor < LOSS:
                text = f"**▼ {text}, loss**"
            body.append([shape_text(some), *(time_cell(group.get(name)) for name in who), text])
        page.add(table(["M × N", *(NAMES[name] for name in who), "against torch"], body))
    return page.done()


def targets_fragment(data: dict, reasons: dict[str, str]) -> dict[str, str]:
    """The targets, met and missed."""
    found = targets.cells(data["rows"])
    rows = [row for row in data["rows"] if row["provider"] == CHOOSER]
    parts = [marker(data, rows), measured_line(data, rows)] if rows else []
    body = []
    for regime in dict.fromkeys(cell.regime for cell in found):
        for asked in dict.fromkeys(cell.asked for cell in found if cell.regime == regime):
            cells = [cell for cell in found if (cell.regime, cell.asked) == (regime, asked)]
            met = sum(cell.met for cell in cells)
            worst = min(cells, key=lambda cell: cell.margin)
            tick = "✓" if met == len(cells) else "✗"
            body.append(
                [regime, asked, f"{tick} {met} of {len(cells)}", worst.reached, f"`{worst.case}`"]
            )
    means = targets.means(data["rows"])
    for name, least in (("best peer", targets.OVER_BEST_PEER), ("torch", targets.OVER_TORCH)):
        mean, cases, low = means[name]
        if mean is not None:
            tick = "✓" if mean >= least else "✗"
            body.append(
                [
                    "forward, backward and few rows",
                    f"geometric mean over the {name} at least {least}",
                ]
                + [f"{tick} {mean:.2f}", f"lowest {low:.2f}", f"{cases} cases"]
            )
    parts.append(table(["regime", "target", "met", "worst", "where"], body, 2))
    missed = sorted((cell for cell in found if not cell.met), key=lambda cell: cell.margin)
    if missed:
        parts.append(f"Missed, worst first ({len(missed)} of {len(found)}):")
        parts.append(
            table(
                ["case", "target", "reached", "reason"],
                [
                    [
                        f"`{c.case}`",
                        c.asked,
                        c.reached,
                        targets.reason_for(c.case, reasons) or "not explained yet",
                    ]
                    for c in missed
                ],
                4,
            )
        )
    else:
        parts.append(f"All {len(found)} cells are met.")
    return {f"{FRAGMENTS}/bench-targets.md": "\n\n".join(parts) + "\n"}


def environment_fragment(root: Path, path: Path, data: dict) -> dict[str, str]:
    """The machines and versions, the files, and every row without a result with its reason."""
    parts = [marker(data, data["rows"]), measured_line(data, data["rows"])]
    fields = {
        "gpu": "GPU",
        "gpu_memory_bytes": "memory, bytes",
        "multiprocessors": "multiprocessors",
        "l2_bytes": "L2 cache, bytes",
        "driver": "driver",
        "cuda": "CUDA",
        "torch": "torch",
        "triton": "triton",
        "python": "Python",
        "system": "system",
        "commit": "commit",
        "started": "started, UTC",
        "timer": "timer",
        "flush_bytes": "bytes written between calls",
    }
    names = runs_used(data, data["rows"])
    body = []
    for key, title in fields.items():
        values = [data["environments"][name][key] for name in names]
        body.append(
            [title, *(f"{value:,}" if isinstance(value, int) else str(value) for value in values)]
        )
    for peer in dict.fromkeys(
        peer for name in names for peer in data["environments"][name]["peers"]
    ):
        versions = [
            data["environments"][name]["peers"].get(peer) or "not installed" for name in names
        ]
        body.append([NAMES.get(peer, peer), *versions])
    parts.append(table(["", *names], body, len(names) + 1))
    others = [other.name for other in sorted((root / DATA).glob("*.json"))]
    files = ", ".join(
        f"[{name}](data/{name})" + (" (shown)" if name == path.name else "") for name in others
    )
    parts.append(f"Data files: {files}; they keep to the [published schema](schema.json).")
    without: dict[tuple, int] = {}
    for row in data["rows"]:
        if row["status"] != "ok":
            key = (
                NAMES.get(row["provider"], row["provider"]),
                row["suite"],
                row["status"],
                row["reason"] or "",
            )
            without[key] = without.get(key, 0) + 1
    if without:
        parts.append("Rows without a result, with the reason as the provider gave it:")
        body = [
            [
                who,
                suite,
                status,
                str(count),
                "`" + reason.replace("|", "/").replace("`", "'") + "`" if reason else "–",
            ]
            for (who, suite, status, reason), count in sorted(without.items())
        ]
        parts.append(table(["who", "suite", "state", "rows", "reason"], body, 3))
    hashes = data["environments"][names[-1]]["sources"]
    parts.append("Hash of each implementation's source in the last run:")
    parts.append(
        table(["implementation", "SHA-256"], [[NAMES[n], f"`{h}`"] for n, h in hashes.items()], 2)
    )
    return {f"{FRAGMENTS}/bench-environment.md": "\n\n".join(parts) + "\n"}


def home_fragment(data: dict) -> dict[str, str]:
    """Two sentences for the front pages."""
    rows = of_suite(data, "forward") + of_suite(data, "backward")
    if not rows:
        return {}
    text = (
        marker(data, rows)
        + "\n\n"
        + summary(rows).split(" Losses:")[0]
        + " "
        + measured_line(data, rows)
    )
    return {f"{FRAGMENTS}/bench-summary.md": text + "\n"}


PAGES = {
    "forward": lambda data: speed_page(data, "forward"),
    "backward": lambda data: speed_page(data, "backward"),
    "few_rows": few_rows_page,
    "host_time": host_time_page,
    "compiles": compiles_page,
    "accuracy": accuracy_page,
    "ladder": ladder_page,
    "strided": strided_page,
    "log_softmax": log_softmax_page,
    "article": article_page,
    "batch": batch_page,
}


def generate(root: Path) -> dict[str, str]:
    """Every file that follows from the data, by path; without data only the schema and the
    colours."""
    files = {PUBLISHED_SCHEMA: schema.schema_text(), "docs/assets/bench-colours.css": style_sheet()}
    if (root / GPU_TESTS).is_file():
        files[f"{FRAGMENTS}/gpu-tests.md"] = gpu_report.fragment(gpu_report.load(root / GPU_TESTS))
    else:
        files[f"{FRAGMENTS}/gpu-tests.md"] = "No run of the GPU tests is recorded yet.\n"
    found = newest(root)
    if found is None:
        return files
    path, data = found
    order = {
        name: index for index, name in enumerate(dict.fromkeys(row["case"] for row in data["rows"]))
    }
    rank = {name: index for index, name in enumerate(NAMES)}
    data["rows"].sort(
        key=lambda row: (_size_key(row), order[row["case"]], rank.get(row["provider"], 99))
    )
    for suite, build in PAGES.items():
        if of_suite(data, suite):
            files |= build(data)
        else:
            files[f"{FRAGMENTS}/bench-{suite}.md"] = "Not measured yet.\n"
    for rung in RUNGS:
        files |= rung_fragment(data, rung)
    files |= targets_fragment(data, read_reasons(root))
    files |= environment_fragment(root, path, data)
    files |= home_fragment(data)
    return files


def _size_key(row: dict) -> tuple:
    where = tuple(row[name] for name in ("suite", "op", "direction", "dtype", "layout"))
    return (*where, n_cols(row), row["shape"])


def stale(root: Path) -> list[str]:
    """Paths whose committed text is not what the data gives, and fragments that nothing gives any
    more."""
    files = generate(root)
    wrong = []
    for name, text in files.items():
        path = root / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            wrong.append(name)
    for path in (*(root / FRAGMENTS).glob("bench-*"), *(root / ASSETS).glob("*")):
        name = path.relative_to(root).as_posix()
        if name not in files:
            wrong.append(name)
    return sorted(wrong)


def write(root: Path) -> list[str]:
    """Write every file, remove what nothing gives any more, and return the paths that changed."""
    changed = stale(root)
    files = generate(root)
    for name in changed:
        path = root / name
        if name in files:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[name], encoding="utf-8")
        else:
            path.unlink()
    return changed
