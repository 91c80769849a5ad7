"""What the page "Which kernel" is made of: a table for usual shapes, the form's first answer, how
well times are guessed, and the file that the form's script loads."""

from __future__ import annotations

import json
import math
import re
from html import escape
from pathlib import Path
from statistics import median, quantiles
from types import SimpleNamespace as Names

from softmax_bench.case import ITEM_SIZE
from softmax_bench.report import by_case, ratio, timed
from softmax_bench.roster import CHOOSER, COPY
from softmax_site import kernel_map
from softmax_site.benchmarks.data import gpu_of, measurements, of_suite, shape_words
from softmax_site.benchmarks.page import Fragment, Rendered, block, measured_by
from softmax_site.benchmarks.tables import Row, table
from softmax_site.benchmarks.words import kernel_words
from softmax_site.which_kernel import answer, micro

LIBRARY = "src/triton_softmax"
CONFIG = f"{LIBRARY}/config"

PAGE = "kernels/which-kernel.md"

ASSET = "assets/which-kernel.json"

SUITES = ("forward", "backward", "few_rows", "strided", "log_softmax", "batch", "article")

NEARBY = 1.0
"""In doublings: how far a measured case may be to be called near."""

FIRST = {"shape": [8192, 50257], "dim": -1, "dtype": "bfloat16", "operation": "softmax"}
"""What the form asks before anybody has touched it: the logits of a language model."""


def measured(data: dict) -> list[dict]:
    """What was measured of the library's own choice, a line for each case."""
    out: dict[tuple, dict] = {}
    for suite in SUITES:
        for group in by_case(of_suite(data, suite, layout="contiguous")).values():
            row, us = group.get(CHOOSER), timed(group.get(CHOOSER))
            if row is None or not us or not row["kernels"]:
                continue
            shape, dim = row["shape"], row["dim"] % len(row["shape"])
            operation = row["op"] + ("_backward" if row["direction"] == "backward" else "")
            copy = ratio(group, COPY)
            line = {
                "operation": operation,
                "dtype": row["dtype"],
                "itemsize": ITEM_SIZE[row["dtype"]],
                "shape": shape,
                "dim": row["dim"],
                "text": shape_words(row),
                "kernel": kernel_words(row, "_").split(", ")[0],
                "rows": math.prod(shape) // shape[dim],
                "columns": shape[dim],
                "inner": math.prod(shape[dim + 1 :]),
                "bytes": row["bytes"],
                "us": us,
                "copy": round(copy, 3) if copy else None,
            }
            out.setdefault((operation, row["dtype"], tuple(shape), dim), line)
    return list(out.values())


def field_words(root: Path) -> dict[str, dict[str, str]]:
    """What each constant of each geometry is, from the comment above or behind its field."""
    out: dict[str, dict[str, str]] = {}
    known: dict[str, str] = {}  # a field without words means what it means where it has some
    fields: dict[str, str] = {}
    comment: list[str] = []
    for line in (root / CONFIG / "space.py").read_text("utf8").splitlines():
        if found := re.match(r"class (\w+)", line):
            fields = out.setdefault(found[1], {})
        elif found := re.match(r"    # (.*)", line):
            comment.append(found[1])
        elif found := re.match(r"    (\w+): [^#]*(?:  # (.*))?$", line):
            words = " ".join([*comment, *(found[2] or "").split()])
            words = words and f"{words[0].upper()}{words[1:].rstrip('.')}."
            known[found[1]] = fields[found[1]] = words or known.get(found[1], "")
            comment = []
        else:
            fields, comment = fields if line[:1] in ("", " ") else {}, []
    return out


def tables(root: Path) -> dict[str, dict]:
    """Of each table of measured constants what its comment says, and its lines."""
    out: dict[str, dict] = {}
    comment: list[str] = []
    lines: list[str] = []
    for line in (root / CONFIG / "measured.txt").read_text("utf8").splitlines():
        if line.startswith("["):
            lines = []
            out[line[1:-1]] = {"says": " ".join(comment), "lines": lines}
        elif line.startswith("#"):
            comment += [line[2:]] if not line.startswith(("# --", "# Load: rows")) else []
        elif line.strip():
            lines.append(line)
            comment = []
        else:
            comment = []
    return out


def files(root: Path) -> dict[str, str]:
    """What the page's Python finds, by path: the chooser's files as they are, and what stands
    around them."""
    out = dict(micro.MODULES)
    for path in sorted([*(root / CONFIG).glob("*.py"), root / CONFIG / "measured.txt"]):
        out[f"chooser/{path.name}"] = path.read_text("utf8")
    for name in ("answer.py", "micro.py"):
        out[name] = Path(__file__).with_name(name).read_text("utf8")
    return out


def kernel_pages() -> dict[str, str]:
    """The page of each kernel, below the folder of kernels."""
    return {entry.kernel: entry.page for entry in kernel_map.entries()}


def time_words(us: float) -> str:
    """A time as people read it."""
    if us < 10:
        return f"{us:.1f} µs"
    return f"{us:.0f} µs" if us < 1000 else f"{us / 1000:.1f} ms"


OPERATION_WORDS = {
    "softmax": "softmax",
    "softmax_backward": "softmax, backward",
    "log_softmax": "log-softmax",
    "log_softmax_backward": "log-softmax, backward",
    "logsumexp": "log-sum-exp",
    "logsumexp_backward": "log-sum-exp, backward",
}


def usual(root: Path, rows: list[dict]) -> str:
    """The table that stands on the page with and without a script: what its front matter asks."""
    pages, lines = kernel_pages(), []
    for asked in kernel_map.front_matter(root, PAGE, "usual"):
        what = asked.pop("what")
        got = answer.answer(asked, rows)
        sizes = shape_words(asked | {"layout": "contiguous"})
        time = got["time"]
        cells = [
            what,
            f"{sizes}<br><small>{asked['dtype']}</small>",
            OPERATION_WORDS[asked["operation"]],
            f'<a href="../{pages[got["kernel"]]}/"><code>{got["kernel"]}</code></a>',
            " + ".join(f"{count:,}" for count in got["programs"]),
            f"{sum(got['bytes'].values()) / 1e6:,.1f} MB",
            f"{'' if time['far'] == 0 else '≈ '}{time_words(time['us'])}" if time else "–",
        ]
        lines.append(Row(cells, f'data-ask="{escape(json.dumps(asked))}"'))
    head = ["what", "shape", "operation", "kernel", "programs", "moves", "time to expect"]
    return block(table(head, lines, css=""), "usual-shapes", hidden=False) + "\n"


def guess_errors(rows: list[dict]) -> list[tuple[float, float]]:
    """(how far the nearest other case is, how wrong the time is) of each measured case, guessed
    from all of other shapes; wrong by the factor between the two, at least 1."""
    out = []
    for row in rows:
        rest = [other for other in rows if other["shape"] != row["shape"]]
        mine = row | {"around": [], "bytes": {"useful": row["bytes"]}}
        if got := answer.expected(row, mine, row["itemsize"], rest):
            wrong = max(got["us"] / row["us"], row["us"] / got["us"])
            out.append((got["near"][0]["far"], wrong))
    return out


def guesses(data: dict) -> Names:
    """How well times are guessed, near and far: by how much half of them are off, and nine in
    ten."""
    errors = guess_errors(measured(data))

    def of(found: list[float]) -> Names:
        half, most = median(found) - 1, quantiles(found, n=10)[-1] - 1
        return Names(count=len(found), half=half, most=most)

    near = [wrong for far, wrong in errors if far < NEARBY]
    return Names(near=of(near), far=of([wrong for far, wrong in errors if far >= NEARBY]))


def render(root: Path) -> Rendered:
    """The fragments `which-kernel-…`, and the file that the script of the page loads."""
    data = measurements(root)
    rows = measured(data)
    known = {"tables": tables(root), "fields": field_words(root)}
    known |= {
        "pages": kernel_pages(),
        "operations": OPERATION_WORDS,
        "gpu": gpu_of(row for suite in SUITES for row in of_suite(data, suite)),
    }
    first = answer.answer(FIRST, rows)
    asset = {"files": files(root), "measured": rows}
    start = json.dumps({"ask": FIRST, "answer": first} | known).replace("</", "<\\/")
    form = f'<script type="application/json" id="which-kernel-start">{start}</script>\n'
    form = f'<div class="which-kernel" data-asset="../../{ASSET}" hidden>\n{form}</div>\n'
    out = Rendered(assets={ASSET: json.dumps(asset, ensure_ascii=False, separators=(",", ":"))})
    out.fragments["which-kernel"] = Fragment(
        form, measured_by([row for row in data["rows"] if row["bytes"]])
    )
    out.fragments["which-kernel-usual"] = Fragment(usual(root, rows))
    return out
