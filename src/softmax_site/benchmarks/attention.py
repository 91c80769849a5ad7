"""Attention's measurements, which have a file of their own: speeds in TFLOP/s, as tables for the
pages of the kernels and as charts over the length.

An operation is a multiplication or an addition of the products alone: 4·N²·D of a head forward, 2.5
times as many backward, half of it under a causal mask, whatever a kernel really computes.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from softmax_bench.report import standing
from softmax_bench.roster import CHOOSER, COPY
from softmax_site.benchmarks import charts
from softmax_site.benchmarks.charts import BEST, Series, over_columns
from softmax_site.benchmarks.data import read, time_text
from softmax_site.benchmarks.page import NOT_MEASURED, Fragment, Measured, block, note
from softmax_site.benchmarks.tables import Cell, folded, table
from softmax_site.benchmarks.words import SIGNS
from softmax_site.figures.moving import EXPONENTIALS

FILE = "docs/benchmarks/data/attention/h200.json"
PEAK = 989e12
"""Operations a second of an H200's tensor cores in bfloat16 (NVIDIA's data sheet)."""

NAMES = {
    "in_memory": "scores in memory", "vectors": "vectors", "diagonal": "diagonal",
    "descriptors": "descriptors", "warp_groups": "groups of warps", "split_keys": "split keys",
    "backward": "one kernel", "warp_groups_backward": "two kernels",
    "attention": "attention", "flash": "FlashAttention-2", "cudnn": "cuDNN",
    "flex": "FlexAttention", "tutorial": "Triton’s tutorial", "copy": "a copy of k and v",
}  # fmt: skip
"""Who was measured; FlashAttention-2 and cuDNN as PyTorch's scaled_dot_product_attention has
them."""

SHOWN = {"attention": CHOOSER, "cudnn": BEST, "flash": "torch"}
"""Who is drawn at first, by the mark of the charts that each takes."""

Shape = tuple[int, bool, int]
"""Components, whether causal, and the number of keys."""
Cases = dict[Shape, dict[str, dict]]


def speed(row: dict) -> float:
    """TFLOP/s."""
    pairs = row["queries"] * row["keys"] / (2 if row["causal"] else 1)
    passes = 2.5 if row["direction"] == "backward" else 1
    flop = 4 * row["batch"] * row["heads"] * pairs * row["dim"] * passes
    return flop / row["us"]["p50"] / 1e6


def in_turn(dim: int) -> float:
    """TFLOP/s forward if products and exponentials, one a score, took turns at their best."""
    return 4 * dim / (4 * dim / PEAK + 1 / EXPONENTIALS) / 1e12


def cases(rows: Iterable[dict], direction: str) -> Cases:
    """What was measured of a direction, by shape and then by name."""
    found: Cases = {}
    for row in rows:
        if row["direction"] == direction and row["us"]:
            shape = row["dim"], row["causal"], row["keys"]
            found.setdefault(shape, {})[row["provider"]] = row
    return dict(sorted(found.items()))


def words(shape: Shape) -> str:
    dim, causal, keys = shape
    return f"{dim} components, {'causal, ' * causal}{keys:,} keys"


def speeds(found: Cases, unit: str = "TFLOP/s") -> str:
    """A table of speeds, each but FlashAttention-2's with a sign against it."""
    there = [name for name in NAMES if any(name in group for group in found.values())]

    def cell(group: dict[str, dict], name: str) -> Cell:
        if name not in group:
            return Cell("·", "none")
        text = f"{speed(group[name]):,.0f}"
        if name == "flash" or "flash" not in group:
            return Cell(text, "level")
        state = standing(speed(group[name]) / speed(group["flash"]))
        return Cell(f"{SIGNS[state]} {text}", state)

    head = ["shape", *(NAMES[name] for name in there)]
    body = [[words(s), *(cell(group, name) for name in there)] for s, group in found.items()]
    caption = f"{unit}, bfloat16; ▲ faster than FlashAttention-2, = within 2 %, ▼ slower"
    return table(head, body, css="rung", caption=caption)


def chart(found: Cases, direction: str, dim: int, causal: bool) -> str:
    """TFLOP/s over the number of keys; forward with the speed at which products and exponentials
    would take turns."""
    columns = []
    for (_, _, keys), group in ((s, g) for s, g in found.items() if s[:2] == (dim, causal)):
        values = {SHOWN.get(name, name): speed(row) for name, row in group.items()}
        said = [f"{NAMES[name]} {speed(row):,.0f}" for name, row in group.items()]
        half = (len(said) + 1) // 2
        tip = [f"{keys:,} keys, TFLOP/s", ", ".join(said[:half]), ", ".join(said[half:])]
        if direction == "forward":
            values[COPY] = in_turn(dim)
        columns.append(charts.Column(f"{keys:,}", values, tip))
    series = [Series(SHOWN.get(name, name), NAMES[name], name in SHOWN) for name in NAMES]
    title = f"{direction.capitalize()}, {dim} components{', causal' * causal}: TFLOP/s"
    alt = f"{title}. Every number is in the table below."
    series.append(Series(COPY, "in turn"))
    return over_columns(title, alt, columns, series, unit="TFLOP/s", lines=True)


def decoding(found: Cases) -> str:
    """Time of one query, beside a copy of as many bytes as the keys and values have."""
    head = ["shape", "µs", "copy of k and v, µs", "share of the copy's speed"]
    body = []
    for shape, group in found.items():
        if "copy" in group and "split_keys" in group:
            ours, copy = (group[name]["us"]["p50"] for name in ("split_keys", "copy"))
            body.append([words(shape), f"{ours:,.1f}", f"{copy:,.1f}", f"{copy / ours:.2f}"])
    return table(head, body)


def fragments(root: Path) -> dict[str, Fragment]:
    """Everything that pages include of attention, by name."""
    data = read(root, FILE, {"rows": []})
    out = {}
    for direction in ("forward", "backward"):
        found = cases(data["rows"], direction)
        longest = {shape[:2]: shape for shape in found}  # the last of each is the longest
        few = {shape: found[shape] for shape in longest.values()}
        kinds = sorted({shape[:2] for shape in found})
        drawn = [chart(found, direction, *kind) for kind in kinds]
        out[f"attention-rungs-{direction}"] = [speeds(few)] if few else []
        out[f"attention-{direction}"] = [*drawn, folded("Every length", speeds(found))] * bool(few)
    one = cases(data["rows"], "decode")
    out["attention-decode"] = [decoding(one)] if one else []
    return {name: _fragment(data, parts) for name, parts in out.items()}


def _fragment(data: dict, parts: list[str]) -> Fragment:
    """Parts of a page with the line that says what was measured when."""
    if not parts:
        return NOT_MEASURED
    env = data["environment"]
    said = f"one {env['gpu']}", f"torch {env['torch'].split('+')[0]}", f"triton {env['triton']}"
    where = note(f"Measured: {said[0]}", *said[1:], f"{time_text(env['utc'])} UTC")
    text = "\n\n".join([*map(block, parts), where])
    return Fragment(text, Measured(env["utc"]))
