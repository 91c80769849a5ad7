"""What one kernel reaches, for its own page: a table, one number beside the title, and the bytes it
moves as blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from softmax_bench import traffic
from softmax_bench.report import best_peer, by_case, ratio, standing
from softmax_bench.roster import CHOOSER, RUNGS, label_of
from softmax_site.benchmarks.data import (
    DIRECTIONS,
    DTYPES,
    SHORT,
    gpu_of,
    n_cols,
    of_suite,
    shape_words,
)
from softmax_site.benchmarks.page import NOT_MEASURED, Fragment, block, shown
from softmax_site.benchmarks.stand import Case, Stand
from softmax_site.benchmarks.tables import Cell, Group, share_of, table
from softmax_site.benchmarks.words import SIGNS, signs
from softmax_site.templates import filled

LADDER = ("naive", "single_block", "three_loops", "two_loops")
"""The rungs, in the order in which the tutorial explains them."""

STRIDED = ("strided", "split_strided", "two_pass")
"""The kernels that run by the name `strided`, each on some of the shapes."""

GIVEN = {
    "aligned_rows": (CHOOSER, ("forward", "backward")),
    **{name: ("strided", ("strided",)) for name in STRIDED},
    "logsumexp": (CHOOSER, ("log_softmax",)),
}
"""Kernels that are shown on the shapes that the library gives them, by what calls them and where it
is measured; the others are called by name, on the shapes of the ladder."""

BEFORE_THE_GRADIENT = (*LADDER, "split_rows", "packed_rows", "aligned_rows")
"""Kernels whose pages a reader meets before the gradient: their tables are of the forward pass."""

BACKWARD = ("naive", "two_loops", "single_block")
"""The rungs backward, which stand side by side on the page of the gradient."""

NAMES = (*RUNGS, *STRIDED[1:], "logsumexp")
"""Every kernel that has a table on its page."""


class Headline(NamedTuple):
    """The one case whose number stands beside a title."""

    suite: str
    provider: str
    shape: tuple[int, ...] = (32768, 4096)
    dim: int = -1
    op: str = "softmax"
    direction: str = "forward"
    dtype: str = "float32"


HEADLINES = {
    **{name: Headline("ladder", name, (2048, 65536)) for name in LADDER},
    "single_block": Headline("ladder", "single_block", (8192, 16384)),
    "backward": Headline("ladder", "single_block", (8192, 16384), direction="backward"),
    "packed_rows": Headline("ladder", "packed_rows", (524288, 256)),
    "aligned_rows": Headline("forward", CHOOSER, (171853, 781)),
    "split_rows": Headline("ladder", "split_rows", (2048, 65536)),
    "strided": Headline("strided", "strided", (64, 1024, 2048), dim=1),
    "split_strided": Headline("strided", "strided", (512, 4096, 64), dim=1),
    "two_pass": Headline("strided", "strided", (131072, 1024), dim=0),
    "logsumexp": Headline("log_softmax", CHOOSER, (8192, 16384), op="logsumexp"),
}
"""By the name of the fragment, `reaches-NAME`: always float32, on a shape that the library gives to
the kernel of that name, if it gives it any, and for the ladder the one that its pages speak of; a
single block cannot hold the rows of that."""


def headline(data: dict, name: str) -> tuple[float, dict] | None:
    """A kernel's share of the copy's speed at its named shape, and the row it comes from."""
    asked = HEADLINES[name]._asdict()
    suite, provider, asked["shape"] = asked.pop("suite"), asked.pop("provider"), [*asked["shape"]]
    for group in by_case(of_suite(data, suite, layout="contiguous", **asked)).values():
        if share := share_of(group, provider):
            return share, group[provider]
    return None


def headline_fragment(data: dict, name: str) -> Fragment:
    """One number beside a title: the share of the copy's speed at one named shape."""
    found = headline(data, name)
    if not found:
        return NOT_MEASURED
    share, row = found
    where = f"{shape_words(row)}, {row['dtype']}, {row['direction']}, {gpu_of([row])}"
    where += ", before the last change" * row.get("changed", False)
    text = filled("reaches", share=f"{share:.2f}", where=where)
    return Fragment(block(text, "reaches") + "\n")


def bytes_fragment(name: str) -> Fragment:
    """What a kernel reads and writes, as blocks, below those that it improves on."""
    backward = name == "backward"
    moved = traffic.BACKWARD if backward else traffic.FORWARD
    # Packed and aligned rows mend the single block, and move as little.
    mended = "single_block" if name in ("packed_rows", "aligned_rows") else "two_loops"
    names: tuple[str, ...] = (mended, name)
    if name in LADDER:
        names = LADDER[max(0, LADDER.index(name) - 2) : LADDER.index(name) + 1]
    elif backward:
        names = ("naive", "two_loops", "single_block")
    every = {label_of(each): moved[each] for each in names}
    text = filled("moved", way="backward" if backward else "forward", shown=every)
    return Fragment(block(text, "moved") + "\n")


def naive_fragment(lines: dict[str, traffic.Traffic], total: traffic.Traffic) -> Fragment:
    """What each line of PyTorch moves."""
    rows = "".join(f"| `{line}` | {moved} |\n" for line, moved in lines.items())
    return Fragment(f"| line | elements |\n| --- | --- |\n{rows}| together | {total} |\n")


class Rung(Stand):
    """What one kernel reaches on every shape, against torch, or against the fastest other library
    where all of them were asked; `way` is "forward", "backward", or as its page has it."""

    def __init__(self, data: dict, name: str, way: str = "") -> None:
        self.name, self.given = name, name in GIVEN
        self.way = way or ("forward" if name in BEFORE_THE_GRADIENT else "")
        who, suites = GIVEN.get(name, (name, ("ladder",)))
        groups = by_case([row for suite in suites for row in of_suite(data, suite)]).values()
        super().__init__((g for g in groups if self._mine(g.get(who))), self._other, who)
        self.rows = [group[who] for group in self.groups]

    def _mine(self, row: dict | None) -> bool:
        """Whether a row is one of this kernel, in this direction."""
        if row is None or self.way not in ("", row["direction"]):
            return False
        if self.name == "logsumexp":
            return row["op"] == self.name
        launched = f"{self.name}_kernel" in row["kernels"] and row["layout"] == "contiguous"
        return not self.given or launched

    def _other(self, group: Group) -> str | None:
        """Whom it is compared with; where it has no answer itself, nobody."""
        other = best_peer(group) if self.given else "torch"
        return other if other and ratio(group, other, self.who) else None

    @property
    def worst(self) -> Case:
        """Where it is furthest behind, and whom."""
        case = super().worst
        case.words = f"{case.row['direction']}, {case.row['dtype']}, {shape_words(case.row)}"
        return case

    def cell(self, group: Group) -> Cell:
        """The share of a case with a sign."""
        share, other = share_of(group, self.who), self._other(group)
        if not share:
            return Cell(group[self.who]["status"], "none")
        state = standing(group, other, self.who) if other else "level"
        return Cell(f"{SIGNS[state]} {share:.2f}", state)

    def table(self) -> str:
        """Shares of the copy's speed by shape, direction and type."""
        by_shape = self.given and self.name != "logsumexp"
        lines: Shares = {}
        for group in self.groups:
            row = group[self.who]
            label = shape_words(row) if by_shape else f"{n_cols(row):,}"
            lines.setdefault(label, {})[row["direction"], row["dtype"]] = self.cell(group)
        rival = "the fastest other library" if self.given else "torch"
        caption = f"Share of a copy's speed (its time over the kernel's); {signs(rival)}" + (
            "; · another kernel, or not measured" if by_shape else ""
        )
        return shares("shape" if by_shape else "columns", lines, DIRECTIONS, caption)

    def fragment(self, data: dict) -> Fragment:
        """The table, and what was measured when."""
        return shown(self.table(), self.rows, told=True) if self.rows else NOT_MEASURED


Shares = dict[str, dict[tuple[str, str], Cell]]
"""By what a line is of, and by kind and type."""


def shares(first: str, lines: Shares, order: Sequence[str], caption: str) -> str:
    """A table of shares, its kinds in this order."""
    kinds = sorted(
        {kind for line in lines.values() for kind in line},
        key=lambda kind: (order.index(kind[0]), DTYPES.index(kind[1])),
    )
    head = [f"{label_of(name)} <span>{SHORT[dtype]}</span>" for name, dtype in kinds]
    none = Cell("·", "none")
    body = [[label, *(line.get(kind, none) for kind in kinds)] for label, line in lines.items()]
    return table([first, *head], body, css="rung", caption=caption)


def backward_fragment(data: dict) -> Fragment:
    """The rungs backward, side by side."""
    every = [Rung(data, name, "backward") for name in BACKWARD]
    found: dict[int, dict] = {}
    for rung in every:
        for group in rung.groups:
            row = group[rung.who]
            found.setdefault(n_cols(row), {})[rung.name, row["dtype"]] = rung.cell(group)
    if not found:
        return NOT_MEASURED
    lines = {f"{length:,}": line for length, line in sorted(found.items())}
    rows = [row for rung in every for row in rung.rows]
    return shown(shares("columns", lines, BACKWARD, signs("torch")), rows, told=True)


def fragments(data: dict) -> dict[str, Fragment]:
    """Everything that the pages of the kernels include, by name."""
    found = {f"bench-rung-{name}": Rung(data, name).fragment(data) for name in NAMES}
    found["bench-rung-backward"] = backward_fragment(data)
    found |= {f"reaches-{name}": headline_fragment(data, name) for name in HEADLINES}
    for way, lines, all_of in (
        ("forward", traffic.NAIVE_LINES, traffic.FORWARD),
        ("backward", traffic.NAIVE_BACKWARD_LINES, traffic.BACKWARD),
    ):
        found[f"traffic-naive-{way}"] = naive_fragment(lines, all_of["naive"])
    moving = [name for name in HEADLINES if name not in ("logsumexp", *STRIDED)]
    return found | {f"moved-{name}": bytes_fragment(name) for name in moving}
