"""What the page "Which kernel" is made of: a table for usual shapes, the form's first answer, how
well times are guessed, and the file that the form's script loads."""

from __future__ import annotations

import json
import math
import re
from html import escape
from pathlib import Path
from statistics import median, quantiles

from softmax_bench.cases import ITEM_SIZE
from softmax_bench.report import by_case, ratio, timed
from softmax_bench.roster import CHOOSER, COPY
from softmax_site import kernel_map
from softmax_site.benchmarks.data import newest, shape_words
from softmax_site.benchmarks.page import Fragment, Rendered, measured_by
from softmax_site.which_kernel import answer, micro

LIBRARY = "src/triton_softmax"
CONFIG = f"{LIBRARY}/config"

ASSET = "assets/which-kernel.json"

SUITES = ("forward", "backward", "few_rows", "strided", "log_softmax", "batch", "article")

NEARBY = 1.0
"""In doublings: how far a measured case may be to be called near."""

FIRST = {"shape": [8192, 50257], "dim": -1, "dtype": "bfloat16", "operation": "softmax"}
"""What the form asks before anybody has touched it: the logits of a language model."""

USUAL = (
    ("attention scores", [32, 16, 1024, 1024], -1, "bfloat16", "softmax"),
    ("their gradient", [32, 16, 1024, 1024], -1, "bfloat16", "softmax_backward"),
    ("a vocabulary of 50,257", [8192, 50257], -1, "bfloat16", "log_softmax"),
    ("the same, backward", [8192, 50257], -1, "bfloat16", "log_softmax_backward"),
    ("a vocabulary of 128,256", [4096, 128256], -1, "float32", "softmax"),
    ("one token, 128,256 logits", [1, 128256], -1, "float32", "softmax"),
    ("a thousand classes", [256, 1000], -1, "float32", "softmax"),
    ("experts of a router", [65536, 64], -1, "float32", "softmax"),
    ("33 columns", [1000000, 33], -1, "float16", "softmax"),
    ("a million columns", [16, 1048576], -1, "float32", "softmax"),
    ("channels of an image", [16, 21, 512, 512], 1, "float32", "softmax"),
    ("down the columns", [4096, 32768], 0, "float32", "softmax"),
    ("double precision", [4096, 16384], -1, "float64", "softmax"),
    ("log-sum-exp of logits", [8192, 50257], -1, "bfloat16", "logsumexp"),
)
"""(what it is, shape, dim, dtype, operation)"""


def question(shape: list[int], dim: int, dtype: str, operation: str, **more) -> dict:
    """A question as the planner's page asks it."""
    return {"shape": shape, "dim": dim, "dtype": dtype, "operation": operation} | more


def _operation(row: dict) -> str:
    return row["op"] + ("_backward" if row["direction"] == "backward" else "")


def measured(data: dict) -> list[dict]:
    """What was measured of the library's own choice, a line for each case."""
    out, seen = [], set()
    for suite in SUITES:
        rows = [row for row in data["rows"] if row["suite"] == suite]
        for group in by_case(rows).values():
            row = group.get(CHOOSER)
            us = timed(row)
            if row is None or not us or not row["kernels"] or row["layout"] != "contiguous":
                continue
            shape, dim = row["shape"], row["dim"] % len(row["shape"])
            what = (_operation(row), row["dtype"], tuple(shape), dim)
            if what in seen:
                continue
            seen.add(what)
            n_cols = shape[dim]
            copy = ratio(group, COPY)
            rows_of_it = 1
            for size in shape:
                rows_of_it *= size
            out.append(
                {
                    "operation": _operation(row),
                    "dtype": row["dtype"],
                    "itemsize": ITEM_SIZE[row["dtype"]],
                    "shape": shape,
                    "dim": row["dim"],
                    "text": shape_words(row),
                    "kernel": _kernel(row["kernels"][0]),
                    "rows": rows_of_it // n_cols,
                    "columns": n_cols,
                    "inner": math.prod(shape[dim + 1 :]),
                    "bytes": row["bytes"],
                    "us": us,
                    "copy": round(copy, 3) if copy else None,
                }
            )
    return out


def _kernel(name: str) -> str:
    """A kernel's module.

    >>> _kernel("packed_rows_kernel"), _kernel("softmax_forward_two_loops_kernel")
    ('packed_rows', 'two_loops')
    """
    for prefix in ("softmax_forward_", "softmax_backward_"):
        name = name.removeprefix(prefix)
    return name.removesuffix("_kernel")


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
    here = Path(__file__).parent
    out = dict(micro.MODULES)
    for path in sorted([*(root / CONFIG).glob("*.py"), root / CONFIG / "measured.txt"]):
        out[f"chooser/{path.name}"] = path.read_text("utf8")
    return out | {f"{name}.py": (here / f"{name}.py").read_text("utf8") for name in BESIDE}


BESIDE = "answer", "micro"


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


def usual(rows: list[dict]) -> str:
    """The table that stands on the page with and without a script."""
    pages = kernel_pages()
    lines = [
        '<div class="usual-shapes"><table>',
        "<thead><tr><th>what</th><th>shape</th><th>operation</th><th>kernel</th>"
        "<th>programs</th><th>moves</th><th>time to expect</th></tr></thead><tbody>",
    ]
    for what, shape, dim, dtype, operation in USUAL:
        asked = question(shape, dim, dtype, operation)
        got = answer.answer(asked, rows)
        sizes = " × ".join(f"{size:,}" for size in shape) + (f", dim {dim}" if dim != -1 else "")
        time = got["time"]
        programs = " + ".join(f"{count:,}" for count in got["programs"])
        shown = f"{'' if time['far'] == 0 else '≈ '}{time_words(time['us'])}" if time else "–"
        lines.append(
            f'<tr data-ask="{escape(json.dumps(asked))}"><td>{what}</td>'
            f'<td data-label="shape">{sizes}<br><small>{dtype}</small></td>'
            f'<td data-label="operation">{OPERATION_WORDS[operation]}</td>'
            f'<td data-label="kernel"><a href="../{pages[got["kernel"]]}/">'
            f"<code>{got['kernel']}</code></a></td>"
            f'<td data-label="programs">{programs}</td>'
            f'<td data-label="moves">{got["bytes"]["useful"] / 1e6:,.1f} MB</td>'
            f'<td data-label="time">{shown}</td></tr>'
        )
    lines.append("</tbody></table></div>\n")
    return "\n".join(lines)


def guess_errors(rows: list[dict]) -> list[tuple[float, float]]:
    """(how far the nearest other case is, how wrong the time is) of each measured case, guessed
    from all of other shapes; wrong by the factor between the two, at least 1."""
    out = []
    for row in rows:
        rest = [other for other in rows if other["shape"] != row["shape"]]
        mine = {
            "kernel": row["kernel"],
            "around": [],
            "rows": row["rows"],
            "columns": row["columns"],
            "inner": row["inner"],
            "dtype": row["dtype"],
            "bytes": {"useful": row["bytes"]},
        }
        got = answer.expected(row, mine, row["itemsize"], rest)
        if got:
            wrong = max(got["us"] / row["us"], row["us"] / got["us"])
            out.append((got["near"][0]["far"], wrong))
    return out


def guessing(rows: list[dict]) -> str:
    """How well times are guessed, near and far, in words."""
    errors = guess_errors(rows)
    near = [wrong for far, wrong in errors if far < NEARBY]
    far = [wrong for far, wrong in errors if far >= NEARBY]
    if min(len(near), len(far)) < 10:
        return "Too little is measured yet to say how good the guesses are.\n"

    def words(group: list[float]) -> str:
        half, most = (
            f"{100 * (each - 1):.{1 if each < 1.02 else 0}f} %"
            for each in (median(group), quantiles(group, n=10)[-1])
        )
        return (
            f"half of them come out within {half} of the measured time, nine in ten within {most}"
        )

    return (
        "To see how good that is, each measured case is guessed from all cases of other shapes. "
        f"Of the {len(near)} that have another one less than a doubling away, {words(near)}; of "
        f"the {len(far)} without one so near, {words(far)}.\n"
    )


def render(root: Path) -> Rendered:
    """The fragments `which-kernel-…`, and the file that the script of the page loads; nothing where
    the library is not below `root`."""
    if not (root / LIBRARY).is_dir():
        return Rendered()
    found = newest(root)
    data = found[1] if found else None
    rows = measured(data) if data else []
    from_rows = measured_by([row for row in data["rows"] if row["bytes"]]) if data else None
    known = {"tables": tables(root), "fields": field_words(root)}
    known |= {"pages": kernel_pages(), "operations": OPERATION_WORDS}
    first = answer.answer(FIRST, rows)
    asset = {"files": files(root), "measured": rows}
    start = json.dumps({"ask": FIRST, "answer": first} | known).replace("</", "<\\/")
    form = f'<script type="application/json" id="which-kernel-start">{start}</script>\n'
    form = f'<div class="which-kernel" data-asset="../../{ASSET}" hidden>\n{form}</div>\n'
    out = Rendered(assets={ASSET: json.dumps(asset, ensure_ascii=False, separators=(",", ":"))})
    out.fragments["which-kernel"] = Fragment(form, from_rows)
    out.fragments["which-kernel-usual"] = Fragment(usual(rows))
    out.fragments["which-kernel-guesses"] = Fragment(guessing(rows))
    return out
