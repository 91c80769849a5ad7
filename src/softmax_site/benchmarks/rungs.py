"""What one kernel reaches, for its own page: a table, one number beside the title, and the bytes it
moves as blocks."""

from __future__ import annotations

from html import escape
from typing import NamedTuple

from softmax_bench import traffic
from softmax_bench.report import LEVEL, best_peer, by_case, ratio, standing, timed
from softmax_bench.roster import CHOOSER, COPY, RUNGS, label_of
from softmax_site.benchmarks.data import DTYPES, SHORT, n_cols, of_suite, shape_words
from softmax_site.benchmarks.page import Fragment, block, measured_by
from softmax_site.benchmarks.words import SIGNS, measured_line, percent, times

NOT_MEASURED = Fragment("Not measured yet.\n")

WHERE = {
    "ladder": "All kernels on the same shapes: [the ladder, measured](../benchmarks/ladder.md).",
    "strided": "The same shapes against every library: "
    "[strides, measured](../benchmarks/strides.md).",
    "forward": "The same shapes against every library: [forward](../benchmarks/forward.md) and "
    "[backward](../benchmarks/backward.md), measured.",
    "log_softmax": "The same shapes against every library: "
    "[log_softmax and logsumexp, measured](../benchmarks/log-softmax.md).",
}
"""The page with the rest of the suite that a kernel's numbers come from."""

LADDER = ("naive", "three_loops", "two_loops", "single_block")

STRIDED = ("strided", "split_strided", "strided_loops")
"""The kernels that run by the name `strided`, each on some of the shapes."""

GIVEN = {
    "aligned_rows": (CHOOSER, ("forward", "backward")),
    **{name: ("strided", ("strided",)) for name in STRIDED},
}
"""Kernels that are shown on the shapes that the library gives them, by what calls them and where it
is measured; the others are called by name, on the shapes of the ladder."""


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
    **{name: Headline("ladder", name, (8192, 16384)) for name in LADDER},
    "backward": Headline("ladder", "single_block", (8192, 16384), direction="backward"),
    "packed_rows": Headline("ladder", "packed_rows", (524288, 256)),
    "aligned_rows": Headline("forward", CHOOSER, (171853, 781)),
    "split_rows": Headline("ladder", "split_rows", (512, 262144)),
    "strided": Headline("strided", "strided", (64, 1024, 2048), dim=1),
    "split_strided": Headline("strided", "strided", (512, 4096, 64), dim=1),
    "strided_loops": Headline("strided", "strided", (131072, 1024), dim=0),
    "logsumexp": Headline("log_softmax", CHOOSER, (8192, 16384), op="logsumexp"),
}
"""By the name of the fragment, `reaches-NAME`: always float32, on a shape that the library gives to
the kernel of that name, if it gives it any."""


def headline(data: dict, name: str) -> tuple[float, dict] | None:
    """A kernel's share of the copy's speed at its named shape, and the row it comes from."""
    asked = HEADLINES[name]
    rows = of_suite(
        data,
        asked.suite,
        op=asked.op,
        direction=asked.direction,
        dtype=asked.dtype,
        shape=list(asked.shape),
        dim=asked.dim,
        layout="contiguous",
    )
    for group in by_case(rows).values():
        own, copy = timed(group.get(asked.provider)), timed(group.get(COPY))
        if own and copy:
            return copy / own, group[asked.provider]
    return None


def headline_fragment(data: dict, name: str) -> Fragment:
    """One number beside a title: the share of the copy's speed at one named shape."""
    found = headline(data, name)
    if not found:
        return NOT_MEASURED
    share, row = found
    gpu = data["environments"][row["environment"]]["gpu"].removeprefix("NVIDIA ")
    text = (
        f"<p><b>{share:.2f}</b> of a copy’s speed<br><span>{shape_words(row)}, {row['dtype']}, "
        f"{row['direction']}, {gpu}</span></p>"
    )
    measured = measured_by([row], (HEADLINES[name].provider,))
    return Fragment(block(text, "reaches") + "\n", measured, brief=True)


def _blocks(label: str, moved: traffic.Traffic, now: bool) -> str:
    """A line of blocks, one for each M·N elements read or written."""
    reads = '<i class="read"></i>' * moved.reads_mn
    writes = '<i class="write"></i>' * moved.writes_mn
    total = moved.reads_mn + moved.writes_mn
    css = ' class="now"' if now else ""
    return (
        f'<tr{css}><th scope="row">{escape(label)}</th>'
        f'<td><span aria-hidden="true">{reads}{writes}</span> '
        f'<span class="sum"><span>{moved.reads_mn} read + {moved.writes_mn} written = </span>'
        f"{total} MN</span>"
        "</td></tr>"
    )


def bytes_fragment(name: str) -> Fragment:
    """What a kernel reads and writes, as blocks, below those that it improves on."""
    backward = name == "backward"
    moved = traffic.BACKWARD if backward else traffic.FORWARD
    if name in LADDER:
        at = LADDER.index(name)
        shown = [(label_of(each), moved[each]) for each in LADDER[max(0, at - 2) : at + 1]]
    elif backward:
        shown = [(label_of(each), moved[each]) for each in ("naive", "two_loops", "single_block")]
    elif name in STRIDED:
        copy = traffic.Traffic(reads_mn=1, writes_mn=1)
        with_copies = copy + moved["single_block"] + copy
        own = moved["two_loops" if name == "strided_loops" else "strided"]
        shown = [("with copies", with_copies), (name.replace("_", " "), own)]
    else:
        shown = [(label_of(each), moved[each]) for each in ("two_loops", name)]
    lines = "".join(_blocks(*each, now=each is shown[-1]) for each in shown)
    text = (
        f"<table><caption>Elements moved, {'backward' if backward else 'forward'}; "
        f"filled: read, hollow: written</caption><tbody>{lines}</tbody></table>"
    )
    return Fragment(block(text, "moved") + "\n")


def rung_fragment(data: dict, rung: str) -> Fragment:
    """What one kernel reaches on every shape: its share of the copy, with a sign against torch, or
    against the fastest other library where all of them were asked."""
    name, suites = GIVEN.get(rung, (rung, ("ladder",)))
    rows = [row for suite in suites for row in of_suite(data, suite)]
    mine = [row for row in rows if row["provider"] == name]
    if rung in GIVEN:
        mine = [
            row
            for row in mine
            if row["layout"] == "contiguous" and row["kernels"] == [f"{rung}_kernel"]
        ]
    elif rung == "three_loops":  # its gradient is that of two loops
        mine = [row for row in mine if row["direction"] == "forward"]
    if not mine:
        return NOT_MEASURED
    cases = {row["case"] for row in mine}
    groups = [group for case, group in by_case(rows).items() if case in cases]
    kinds = [
        (direction, dtype)
        for direction in ("forward", "backward")
        for dtype in DTYPES
        if any((row["direction"], row["dtype"]) == (direction, dtype) for row in mine)
    ]
    shapes: dict[str, dict[tuple, dict]] = {}
    for group in groups:
        row = group[name]
        label = shape_words(row) if rung in GIVEN else f"{n_cols(row):,}"
        shapes.setdefault(label, {})[row["direction"], row["dtype"]] = group
    rival = "the fastest other library" if rung in GIVEN else "torch"
    body, losses, against = [], [], 0
    for label, by_kind in shapes.items():
        cells = ""
        for kind in kinds:
            group = by_kind.get(kind, {})
            other = best_peer(group) if rung in GIVEN else "torch"
            text, factor = _cell(group, name, other)
            cells += text
            against += factor is not None
            if standing(factor) == "behind" and factor is not None:
                losses.append((factor, group[name], label_of(other or "")))
        body.append(f'<tr><th scope="row">{label}</th>{cells}</tr>')
    head = "".join(
        f'<th scope="col">{direction} <span>{SHORT[dtype]}</span></th>'
        for direction, dtype in kinds
    )
    first = "shape" if rung in GIVEN else "columns"
    elsewhere = "; · another kernel, or not measured" if rung in GIVEN else ""
    lines = [
        f'<table class="rung"><caption>Share of a copy’s speed; ▲ faster than {rival}, = within '
        f"{percent(LEVEL)}, ▼ slower{elsewhere}</caption><thead><tr>"
        f'<th scope="col">{first}</th>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table>"
    ]
    parts = [block("\n".join(lines))]
    if losses:
        worst, row, whose = min(losses, key=lambda item: item[0])
        count = "all" if len(losses) == against else f"{len(losses)} of {against}"
        parts.append(
            f"It is slower than {rival} in {count} cells of this table. At worst it reaches "
            f"{times(worst)} of the speed of {whose}: {row['direction']}, {row['dtype']}, "
            f"{shape_words(row)}."
        )
    elif against:
        parts.append(
            f"It is nowhere more than {percent(LEVEL)} slower than {rival} on these shapes."
        )
    if rung == "three_loops":
        parts.append("Its gradient is [that of two loops](two-loops.md#what-it-reaches).")
    refused = [row for row in mine if row["status"] == "refused"]
    if refused:
        reason = (refused[0]["reason"] or "").split(": ", 1)[-1].replace("_", r"\_")
        parts.append(f"Where no number stands it refuses: {reason}.")
    parts.append(
        f"{WHERE[suites[0]]} {measured_line(data, mine)}\n{{ .bench-note data-search-exclude }}"
    )
    return Fragment("\n\n".join(parts) + "\n", measured_by(mine, (name,)))


def _cell(group: dict[str, dict], name: str, rival: str | None) -> tuple[str, float | None]:
    """The share of a case with its sign, and its speed relative to a rival's."""
    if not group:
        return '<td class="none">·</td>', None
    own, other, copy = (timed(group.get(each or "")) for each in (name, rival, COPY))
    reached = copy / own if own and copy else None
    factor = other / own if own and other else None
    if not reached:
        return f'<td class="none">{group[name]["status"]}</td>', factor
    state = standing(factor) if factor else "level"
    return f'<td class="{state}">{SIGNS[state]} {reached:.2f}</td>', factor


def logsumexp_fragment(data: dict) -> Fragment:
    """What log-sum-exp reaches by length and type, with a sign against the best other library."""
    rows = of_suite(data, "log_softmax", op="logsumexp")
    if not rows:
        return NOT_MEASURED
    dtypes = [dtype for dtype in DTYPES if any(row["dtype"] == dtype for row in rows)]
    groups = {
        (n_cols(row), row["dtype"]): group
        for group in by_case(rows).values()
        for row in [next(iter(group.values()))]
    }
    body = []
    for length in sorted({length for length, _ in groups}):
        cells = ""
        for dtype in dtypes:
            group = groups.get((length, dtype))
            if not group:
                cells += '<td class="none">·</td>'
                continue
            peer = best_peer(group)
            factor, reached = ratio(group, peer) if peer else None, ratio(group, COPY)
            state = standing(factor)
            cells += f'<td class="{state}">{SIGNS[state]} {reached or 0:.2f}</td>'
        body.append(f'<tr><th scope="row">{length:,}</th>{cells}</tr>')
    head = "".join(f'<th scope="col">{dtype}</th>' for dtype in dtypes)
    table = (
        '<table class="rung"><caption>Share of the speed of a copy of as many bytes; ▲ faster than '
        f"the best other library, = within {percent(LEVEL)}, ▼ slower</caption><thead><tr>"
        f'<th scope="col">columns</th>{head}</tr></thead><tbody>{"".join(body)}</tbody></table>'
    )
    text = (
        f"{block(table)}\n\n{WHERE['log_softmax']} {measured_line(data, rows)}\n"
        "{ .bench-note data-search-exclude }\n"
    )
    return Fragment(text, measured_by(rows))


def fragments(data: dict) -> dict[str, Fragment]:
    """Everything that the pages of the kernels include, by name."""
    found = {f"bench-rung-{rung}": rung_fragment(data, rung) for rung in {*RUNGS, *STRIDED}}
    found["bench-logsumexp"] = logsumexp_fragment(data)
    for name in HEADLINES:
        found[f"reaches-{name}"] = headline_fragment(data, name)
        if name != "logsumexp":
            found[f"moved-{name}"] = bytes_fragment(name)
    return found
