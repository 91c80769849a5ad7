"""Attention's measurements, which have a file of their own: speeds in TFLOP/s, as tables for the
pages of the kernels and as charts over the length.

An operation is a multiplication or an addition of the products alone: 4·N²·D of a head forward, 2.5
times as many backward, half of it under a causal mask, whatever a kernel really computes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path

from softmax_bench.roster import CHOOSER, COPY
from softmax_site.benchmarks import charts
from softmax_site.benchmarks.charts import BEST, Series, over_columns
from softmax_site.benchmarks.data import read
from softmax_site.benchmarks.page import NOT_MEASURED, Fragment, Measured, block, of_run
from softmax_site.benchmarks.tables import Cell, folded, table
from softmax_site.benchmarks.values import Values
from softmax_site.benchmarks.words import SIGNS, side, signs
from softmax_site.figures.moving import EXPONENTIALS

FILE = "docs/benchmarks/attention.json"
PEAK = 989e12
"""Operations a second of an H200's tensor cores in bfloat16 (NVIDIA's data sheet)."""

NAMES = {
    "in_memory": "scores in memory", "vectors": "vectors", "diagonal": "diagonal",
    "descriptors": "descriptors", "attention": "groups of warps", "fa2": "FlashAttention-2",
    "cudnn": "cuDNN", "flex": "FlexAttention",
}  # fmt: skip
"""Whose speeds are shown, in the order of tables; FlashAttention-2 and cuDNN by PyTorch's
scaled_dot_product_attention, FlexAttention by its compiled function."""

DECODING = ("sdpa", "copy")
"""Who else is asked for one query over many keys."""

SHOWN = {"attention": CHOOSER, "cudnn": BEST, "fa2": "torch"}
"""Who is drawn at first, by the mark of the charts that each takes."""

Shape = tuple[int, bool, int]
"""Components, whether causal, and the number of keys."""
Cases = dict[Shape, dict[str, dict]]


def newest_run(root: Path) -> dict:
    """The last run of the file; one without rows where there is none."""
    return [{"rows": []}, *read(root, FILE, {"runs": []})["runs"]][-1]


def in_turn(dim: int) -> float:
    """TFLOP/s forward if products and exponentials, one a score, took turns at their best."""
    return 4 * dim / (4 * dim / PEAK + 1 / EXPONENTIALS) / 1e12


def cases(run: dict, direction: str) -> Cases:
    """What was measured of a direction, by shape and then by name."""
    found: Cases = {}
    for row in run["rows"]:
        known = row["provider"] in (*NAMES, *DECODING)
        if known and row["direction"] == direction and "p50" in row:
            shape = row["dims"], row["causal"], row["length"]
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
        text = f"{group[name]['tflops']:,.0f}"
        if name == "fa2" or "fa2" not in group:
            return Cell(text, "level")
        state = side(group[name]["tflops"] / group["fa2"]["tflops"])
        return Cell(f"{SIGNS[state]} {text}", state)

    head = ["shape", *(NAMES[name] for name in there)]
    body = [[words(s), *(cell(group, name) for name in there)] for s, group in found.items()]
    caption = f"{unit}, bfloat16; {signs('FlashAttention-2')}"
    return table(head, body, caption=caption)


def loops(run: dict) -> str:
    """A table of the times of a call on the GPU and in a loop, in which the host may be the slower
    one: of one query, and forward at the fewest keys."""
    forward = cases(run, "forward")
    fewest = min(keys for _, _, keys in forward)
    shown = {f"one query, {words(s)}": g for s, g in cases(run, "decoding").items()}
    shown |= {words(s): g for s, g in forward.items() if s[2] == fewest}
    names = {"attention": "ours", "sdpa": "PyTorch's choice"}
    names |= {name: NAMES[name] for name in ("fa2", "cudnn")}
    body = [
        [said, where, *(f"{g[n][time]:,.1f}" if time in g.get(n, {}) else "·" for n in names)]
        for said, g in shown.items()
        for where, time in (("on the GPU", "p50"), ("in a loop", "us_loop"))
    ]
    head = ["shape", "where", *names.values()]
    return table(head, body, left=2, caption="µs of a call, bfloat16, forward")


def chart(found: Cases, direction: str, dim: int, causal: bool) -> str:
    """TFLOP/s over the number of keys; forward with the speed at which products and exponentials
    would take turns."""
    columns = []
    for (_, _, keys), group in ((s, g) for s, g in found.items() if s[:2] == (dim, causal)):
        values = {SHOWN.get(name, name): row["tflops"] for name, row in group.items()}
        said = [f"{NAMES[name]} {row['tflops']:,.0f}" for name, row in group.items()]
        tip = charts.halves(f"{keys:,} keys, TFLOP/s", said)
        if direction == "forward":
            values[COPY] = in_turn(dim)
        columns.append(charts.Column(f"{keys:,}", values, tip))
    series = [Series(SHOWN.get(name, name), NAMES[name], name in SHOWN) for name in NAMES]
    title = f"{direction.capitalize()}, {dim} components{', causal' * causal}: TFLOP/s"
    alt = f"{title}. Every number is in the table below."
    series.append(Series(COPY, "in turn"))
    return over_columns(title, alt, columns, series, unit="TFLOP/s", lines=True)


def fragments(root: Path) -> dict[str, Fragment]:
    """Everything that pages include of attention, by name."""
    run, out = newest_run(root), {}
    for direction in ("forward", "backward"):
        found = cases(run, direction)
        whole = {shape: g for shape, g in found.items() if "in_memory" in g} or found
        longest = {shape[:2]: shape for shape in whole}  # the last of each is the longest
        few = {shape: found[shape] for shape in longest.values()}
        drawn = [chart(found, direction, *kind) for kind in longest]
        out[f"attention-rungs-{direction}"] = [speeds(few)] if few else []
        out[f"attention-{direction}"] = [*drawn, folded("Every length", speeds(found))] * bool(few)
    out["attention-loops"] = [loops(run)] if run["rows"] else []
    return {name: _fragment(run, parts) for name, parts in out.items()}


def _fragment(run: dict, parts: list[str]) -> Fragment:
    """Parts of a page with the line that says what was measured when."""
    if not parts:
        return NOT_MEASURED
    where = of_run(run, f"one {run['gpu']}")
    return Fragment("\n\n".join([*map(block, parts), where]), Measured(f"{run['date']}T00:00:00Z"))


def beside(groups: Iterable[dict], other: str, measure: Callable[[dict], float | None]) -> Values:
    """What is measured of ours over that of another, where both have it."""
    pairs = [(measure(g["attention"]), measure(g[other])) for g in groups if other in g]
    return Values(mine / theirs for mine, theirs in pairs if mine and theirs)


def overtaken(forward: Cases) -> dict[str, dict[str, int]]:
    """For each rung but the first, in how many shapes of it and the rung before it takes more time:
    of all components (`descriptors`), and of 64 and 128 (`descriptors_64`)."""
    out = {}
    for earlier, later in itertools.pairwise(list(NAMES)[:5]):
        for suffix, dims in (("", (64, 128)), ("_64", (64,)), ("_128", (128,))):
            both = [g for s, g in forward.items() if s[0] in dims and {earlier, later} <= set(g)]
            count = sum(group[later]["p50"] > group[earlier]["p50"] for group in both)
            out[later + suffix] = {"count": count, "of": len(both)}
    return out


def quoted(root: Path) -> dict[str, dict]:
    """How many times as fast ours is as each other, by direction and name, and forward how many
    times as wrong; where a rung is overtaken by the one before it; by direction, how many times as
    long ours takes in a loop as on the GPU; and how many times as fast its one query is in one."""
    run = newest_run(root)
    forward = cases(run, "forward")
    out: dict[str, dict] = {"overtaken": overtaken(forward), "loops": {}}
    for direction in ("forward", "backward", "decoding"):
        groups = [group for group in cases(run, direction).values() if "attention" in group]
        others = {name for group in groups for name in group} & {"fa2", "cudnn", "flex", *DECODING}
        # A copy reads and writes its bytes; the others read theirs, which all are the same.
        rate = lambda row: row.get("bytes", 1) / row["p50"]  # noqa: E731
        out[direction] = {name: beside(groups, name, rate) for name in others}
        ours = [group["attention"] for group in groups if "us_loop" in group["attention"]]
        out["loops"][direction] = Values(row["us_loop"] / row["p50"] for row in ours)
        if direction == "decoding":
            in_a_loop = lambda row: 1 / row["us_loop"] if "us_loop" in row else None  # noqa: E731
            out["looped"] = {name: beside(groups, name, in_a_loop) for name in others}
        if direction == "forward" and others:
            out["error"] = {"fa2": beside(groups, "fa2", lambda row: row.get("worst_error"))}
    return out
