"""The tables and charts of each suite, by the names that pages include them by.

`SUITE-DIRECTION-TYPE` is the chart and the table of one direction and type; `heat-SUITE` and
`origin-SUITE` are the heat map and the line that says what was measured when. Suites that are
tables of their own are `bench-SUITE`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median

from softmax_bench.cases import INPUTS
from softmax_bench.random_shapes import layout_of
from softmax_bench.report import best_peer, by_case, gbs, looped, ratio, standing, timed
from softmax_bench.roster import CHOOSER, COPY, LIBRARIES, RUNGS, label_of
from softmax_bench.targets import Cell as Target
from softmax_bench.targets import cells as targets_of
from softmax_site.benchmarks import charts, page, quoted, words
from softmax_site.benchmarks.charts import BEST, Series, over_columns
from softmax_site.benchmarks.data import anchor, case_words, is_odd, n_cols, of_suite, shape_words
from softmax_site.benchmarks.page import Fragment, block, measured_by, origin
from softmax_site.benchmarks.stand import Stand
from softmax_site.benchmarks.tables import (
    KERNEL,
    SHAPE,
    VERDICT,
    Column,
    Group,
    folded,
    heat_map,
    microseconds,
    of_cases,
    of_copy,
    of_provider,
    of_row,
    present,
    share_of,
    share_text,
    some,
    state_of,
    table,
    time,
    why,
)

Share = Callable[[Group, str], float | None]
"""A provider's share of the copy's speed."""

HOST_CALLS = {
    "forward": "no gradient wanted",
    "forward_grad": "gradient wanted, forward only",
    "forward_backward": "gradient wanted, forward and backward",
}

STEPS = {"forward": "forward", "forward_backward": "forward and backward"}

ENDS = (0.5, 8.0)
"""Of the axis of the chart of random shapes; what lies beyond stands on them."""


def gap_share(rows: list[dict]) -> Share:
    """Shares of the copy's speed, where a copy of rows with gaps, which PyTorch does slowly, gives
    way to a copy of as many bytes without gaps."""
    without = quoted.fastest_copy(rows)

    def share(group: Group, name: str) -> float | None:
        row = group.get(name)
        if not row or row["layout"] != "row_strided":
            return share_of(group, name)
        own = timed(row)
        return without[row["case"]] / own if own and row["case"] in without else None

    return share


def length(row: dict) -> str:
    """The length of a row, as an axis writes it."""
    return f"{n_cols(row):,}"


LENGTH = of_row("length", length)
CELL = of_row("cell", case_words)


def strong(column: Column) -> Column:
    """A column in bold."""
    return column._replace(cell=lambda group: f"<b>{column.cell(group)}</b>")


def shape(row: dict) -> str:
    """The shape, short enough for an axis."""

    def short(size: int) -> str:
        if size % 2**20 == 0:
            return f"{size >> 20}M"
        return f"{size >> 10}k" if size % 1024 == 0 and size >= 8192 else f"{size:,}"

    return "×".join(map(short, row["shape"])) + (" gaps" if row["layout"] == "row_strided" else "")


def share_chart(
    rows: list[dict],
    title: str,
    label: Callable[[dict], str] = length,
    share: Share = share_of,
    others: Sequence[str] = LIBRARIES,
    shown: Sequence[str] = ("torch",),
) -> str:
    """Shares of the copy's speed, a column a case: ours, and the best other where all libraries
    are there; of the others those in `shown`, the rest on demand."""
    everyone = others == LIBRARIES
    columns = []
    for group in by_case(rows).values():
        row = some(group)
        values = {name: value for name in (CHOOSER, *others) if (value := share(group, name))}
        spoken = {name: f"{label_of(name)} {value:.2f}" for name, value in values.items()}
        tip, peer = [shape_words(row)], best_peer(group) if everyone else None
        if us := timed(group.get(CHOOSER)):
            tip.append(f"{spoken.get(CHOOSER, label_of(CHOOSER))} of a copy, {us:,.1f} µs")
        if peer and peer in values:
            values[BEST] = values[peer]
            if factor := ratio(group, peer):
                tip.append(f"{spoken[peer]}, the best other: ours {factor:.2f} ×")
        if rest := [spoken[name] for name in others if name != peer and name in spoken]:
            tip.append(", ".join(rest))
        bold = label is length and is_odd(row)
        columns.append(charts.Column(label(row), values, tip, f"#{anchor(row)}", bold))
    series = [Series(CHOOSER, label_of(CHOOSER)), Series(BEST, "best other")]
    series += [Series(name, label_of(name), name in shown) for name in others]
    said = ", ".join(each.label for each in series if each.shown)
    alt = f"{title}: {said}. Every number is in the table below."
    return over_columns(title, alt, columns, series, spread=not everyone)


def article(rows: list[dict]) -> str:
    """GB/s over the length as in the article, which counts 2·M·N elements; the copy and the naive
    lines on demand."""
    who = present(rows, (COPY, CHOOSER, "torch", "naive", "single_block", "two_loops"))
    columns = []
    for group in by_case(rows).values():
        us = {name: timed(group.get(name)) for name in who}
        values = {n: group[n]["bytes"] / t / 1e3 for n, t in us.items() if t}
        said = [f"{label_of(name)} {value:,.0f}" for name, value in values.items()]
        tip = charts.halves(f"{shape_words(some(group))}, GB/s", said)
        columns.append(charts.Column(length(some(group)), values, tip))
    series = [Series(name, label_of(name), name not in (COPY, "naive")) for name in who]
    title = "Softmax forward, float32, 4,096 rows: GB/s over the length"
    alt = f"{title}. The numbers are in the CSV file of this page."
    return over_columns(title, alt, columns, series, unit="GB/s", lines=True)


def loops(rows: list[dict]) -> list[Column]:
    """What a call takes in a loop, ours and the best other's, if that was measured."""

    def best_other(group: Group) -> str:
        times = {name: us for name in LIBRARIES if (us := looped(group.get(name)))}
        best = min(times, key=lambda name: times[name], default=None)
        return f"{times[best]:,.1f} {label_of(best)}" if best else "–"

    def ours(group: Group) -> str | None:
        us = looped(group.get(CHOOSER))
        return f"{us:,.1f}" if us else None

    columns = [of_provider("in a loop: ours", CHOOSER, ours), Column("best other", best_other)]
    return columns if any(map(looped, rows)) else []


# Suites whose pages have a part for each direction and type


def full_table(rows: list[dict], share: Share, first: Column) -> str:
    """Every case: verdict, share of the copy, kernel and times. The file beside the page has the
    rest of what was measured."""
    ours = strong(time(CHOOSER, "µs: ours"))
    others = map(time, present([row for row in rows if row["us"]], LIBRARIES))
    columns = [first, VERDICT, of_copy(share), KERNEL, ours, *others]
    return of_cases(rows, [*columns, *loops(rows)])


def ladder_table(rows: list[dict], rungs: Sequence[str]) -> str:
    """The share of the copy that every rung reaches."""

    def rung(name: str) -> Column:
        def cell(group: Group) -> str | None:
            share = share_of(group, name)
            return share_text(share) if share else None

        return of_provider(label_of(name), name, cell)

    def speed(group: Group) -> str | None:
        return f"{gbs(group[COPY]):,.0f}" if timed(group.get(COPY)) else None

    ours = Column(CHOOSER, lambda group: f'<b class="ahead">{share_text(share_of(group))}</b>')
    copy = of_provider("copy, GB/s", COPY, speed)
    return of_cases(rows, [LENGTH, ours, *map(rung, (*rungs, "torch")), copy])


def parts(rows: list[dict]) -> dict[str, list[str]]:
    """A chart and tables for each operation, direction and type."""
    out, suite = {}, rows[0]["suite"]
    rungs = present(rows, RUNGS)
    few, strided, ladder = (suite == name for name in ("few_rows", "strided", "ladder"))
    share = gap_share(rows) if strided else share_of
    label = shape if few or strided else length
    kinds = dict.fromkeys((row["op"], row["direction"], row["dtype"]) for row in rows)
    for op, direction, dtype in kinds:
        part = [r for r in rows if (r["op"], r["direction"], r["dtype"]) == (op, direction, dtype)]
        title = f"{direction}, {dtype}: share of the copy's speed"
        title = title.capitalize() if op == "softmax" else f"{op} {title}"
        if ladder:
            others, shown = (*rungs, "torch"), ("naive", "single_block", "three_loops", "two_loops")
            drawn = share_chart(part, f"{title}, rung by rung", others=others, shown=shown)
            fold = folded(f"Every length, {dtype}", ladder_table(part, rungs))
        else:
            full = full_table(part, share, LENGTH if label is length else SHAPE)
            drawn = share_chart(part, title, label, share)
            fold = folded(f"Every cell, {dtype}", full)
        kind = op if op == "logsumexp" else direction
        out[f"{suite}-{kind}-{dtype}"] = [drawn, fold]
    if not ladder:
        by = "By shape" if label is shape else "By length"
        out[f"heat-{suite}"] = [heat_map(by, rows, label)]
    return out


# Suites that are tables of their own


def cost(group: Group) -> str:
    """Our time as a multiple of torch's, with its sign, as HTML."""
    factor = ratio(group, "torch")
    said = f"{words.times(1 / factor)} × torch's time" if factor else ""
    return words.marked(standing(group, "torch"), said) if factor else "–"


def host_time(rows: list[dict]) -> str:
    """A call on the host."""
    call = of_row("call", lambda row: HOST_CALLS[row["direction"]])
    takes = Column("triton_softmax takes", cost, True)
    timed = present([row for row in rows if row["us"]], (CHOOSER, *LIBRARIES))
    return of_cases(rows, [call, takes, *map(time, timed)])


def compiled(rows: list[dict]) -> str:
    """A step inside torch.compile, on the host."""
    step = of_row("step", lambda row: STEPS[row["direction"]], True)
    mode = of_row("mode", lambda row: row["inputs"], True)
    takes, ours = Column("ours takes", cost, True), time(CHOOSER, "µs, ours")
    return of_cases(rows, [SIZE, step, mode, takes, ours, time("torch")])


def longest(rows: list[dict]) -> str:
    """Rows past every limit, beside the copy."""

    def beside_copy(group: Group) -> str | None:
        share = share_of(group)
        return f"{1 / share:.1f} × the copy's time" if share else None

    takes = of_provider("ours takes", CHOOSER, beside_copy)._replace(words=True)
    others = map(time, (COPY, "torch"))
    return of_cases(rows, [CELL, takes, KERNEL, time(CHOOSER, "µs, ours"), *others])


def paid(data: dict) -> str:
    """What a call in an eager loop takes over the number of rows, beside its time on the host and
    on the GPU, of which it is the longer."""
    (host,) = by_case(of_suite(data, "host_time", direction="forward")).values()
    columns = []
    for group in by_case(of_suite(data, "batch", direction="forward")).values():
        gpu = {name: timed(group.get(name)) or 0.0 for name in (CHOOSER, "torch")}
        on_host = {name: timed(host[name]) or 0.0 for name in gpu}
        values = {name: max(gpu[name], on_host[name]) for name in gpu}
        said = [
            f"{label_of(name)} {values[name]:,.1f} µs: host {on_host[name]:,.1f}, "
            f"GPU {gpu[name]:,.1f}"
            for name in gpu
        ]
        values |= {BEST: on_host[CHOOSER], COPY: gpu[CHOOSER]}
        rows = f"{some(group)['shape'][0]:,}"
        columns.append(charts.Column(rows, values, [shape_words(some(group)), *said]))
    title = "Softmax in an eager loop, float32, rows of 1,024: µs over the number of rows"
    series = [Series(CHOOSER, "triton_softmax"), Series("torch", "torch")]
    series += [Series(BEST, "ours, host"), Series(COPY, "ours, GPU")]
    alt = f"{title}: the longer of host and GPU, ours and torch's; and both of ours."
    return over_columns(title, alt, columns, series, unit="us", lines=True, log=True)


def compiles(rows: list[dict]) -> str:
    """How many kernels a sweep over row lengths compiles."""
    body = [
        [
            f"{row['direction']}, {row['dtype']}",
            words.kernel_words(row),
            state_of(row) if row["count"] is None else str(row["count"]),
            f"{row['samples']:,}",
        ]
        for row in sorted(rows, key=lambda row: row["direction"] == "backward")
    ]
    return table(["calls", "kernels", "compiled", "row lengths"], body, 2)


def batch(rows: list[dict]) -> dict[str, str]:
    """Across batch sizes, in each direction."""
    ways = dict.fromkeys(row["direction"] for row in rows)
    return {f"batch-{way}": over_rows([r for r in rows if r["direction"] == way]) for way in ways}


def over_rows(part: list[dict]) -> str:
    """A chart and a table over the number of rows."""
    direction = part[0]["direction"]
    who = present(part, ("torch", "torch.compile", "naive", "single_block"))
    kind = f"{direction.capitalize()}, {part[0]['dtype']}, rows of {length(part[0])}"
    title = f"{kind}: share of the copy's speed over the number of rows"
    drawn = share_chart(
        part, title, lambda row: f"{row['shape'][0]:,}", others=who, shown=("torch", "naive")
    )
    against = Column("against torch", lambda group: words.verdict(group, "torch"), True)
    times = map(time, (*who, COPY))
    return drawn + of_cases(part, [SHAPE, against, time(CHOOSER, "µs: ours"), *times])


def accuracy(rows: list[dict]) -> dict[str, str]:
    """The errors of each type."""
    dtypes = dict.fromkeys(row["dtype"] for row in rows)
    return {f"accuracy-{each}": errors_of(rows, each) for each in dtypes}


def errors_of(rows: list[dict], dtype: str) -> str:
    """Largest relative error of a row against float64: how it is distributed, and where it is
    worst."""
    part = [row for row in rows if row["dtype"] == dtype]
    errors: dict[str, list[float]] = {}
    body, states = [], ("wrong", "refused", "failed")
    for name in present(rows, (CHOOSER, *LIBRARIES)):
        mine = [row for row in part if row["provider"] == name]
        known = [row for row in mine if row["max_rel_error"] is not None]
        found = errors[label_of(name)] = [float(row["max_rel_error"]) for row in known]
        without = [[row for row in mine if row["status"] == state] for state in states]
        n_right, where = sum(row["status"] == "ok" for row in mine), "–"
        wrong, _, failed = without
        right = f"{n_right} of {n_right + len(wrong)}"
        if found:
            worst = max(reversed(known), key=lambda row: float(row["max_rel_error"]))
            where = f"{worst['direction']}, {shape_words(worst)}, {INPUTS[worst['inputs']]}"
        links = (f'<a href="{why(each[0])}">{len(each)}</a>' if each else "–" for each in without)
        right = words.missed(right) if wrong or failed else right
        errs = [words.error_text(of(found)) if found else "–" for of in (median, max)]
        body.append([label_of(name), right, *links, *errs, where])
    every = [error for found in errors.values() for error in found]
    finite = [error for error in every if 0 < error < math.inf]
    endless = any(map(math.isinf, every))
    low = math.floor(math.log10(median(finite))) - 1
    drawn = charts.strip(
        f"Relative error, {dtype}: a tick per case, a ring at the worst",
        "The numbers are in the table below.",
        errors,
        label_of(CHOOSER),
        (low, math.ceil(math.log10(max(finite))) + endless),
        endless,
    )
    head = ["library", "right, of answers", *states, "median error", "worst error", "where"]
    return drawn + table(head, body, 2, also=(7,))


# Shapes drawn at random


def scatter(drawn: Stand) -> str:
    """A mark per cell: the length of a row across, our speed over the best other's upward."""
    points = []
    for group, other in drawn.compared:
        row, factor = group[CHOOSER], ratio(group, other)
        said = f"{case_words(row)}: {words.times(factor)} ×" if factor else case_words(row)
        css = "behind" if standing(group, other) == "behind" else "ours"
        css += "" if quoted.compiler_ran(group) else " hollow"
        points.append((n_cols(row), factor or ENDS[0], said, css))
    return charts.scatter(
        "Speed over the best other library's, by the length of a row",
        "The classes and the worst cells are in the tables below.",
        points,
        math.ceil(math.log2(max(point[0] for point in points))),
        ENDS,
    )


def worst_of(part: Stand) -> str:
    """The worst factor with its sign."""
    if not part.factors:
        return words.sign(None)
    group, other = part.worst.group, best_peer(part.worst.group) or ""
    return words.marked(standing(group, other), f"{part.worst.factor:.2f}")


def random_kinds(drawn: Stand) -> str:
    """Every kind of cell: how many, how they stand, how near to the copy."""
    kinds: dict[str, list[Group]] = {}
    for group, _ in drawn.compared:
        row = group[CHOOSER]
        ran = "with" if quoted.compiler_ran(group) else "without"
        for kind in (
            f"{layout_of(row)}, {row['direction']}",
            f"{ran} {label_of('torch.compile')}, {row['direction']}",
            row["op"],
            row["dtype"],
        ):
            kinds.setdefault(kind, []).append(group)
    body = []
    for kind in sorted(kinds, key=lambda kind: ("," not in kind, kind)):
        part = Stand(kinds[kind])
        shares = part.values(share_of)
        body.append(
            [
                f"{kind} <small>({part.cases})</small>",
                f"{sum(each.right for each in part.answered.values()) / part.cases:.1f}",
                words.percent(part.at_least_level),
                share_text(part.over_best if part.factors else None),
                worst_of(part),
                share_text(shares.mean if shares else None),
                share_text(min(shares, default=None)),
            ]
        )
    head = ["cells (how many)", "rivals with an answer", "at least level"]
    head += ["× the best other", "worst, × other"]
    return table([*head, "of a copy", "worst, of a copy"], body)


def random_worst(drawn: Stand, count: int = 10) -> str:
    """The cells in which ours stands worst."""
    order = sorted(drawn.compared, key=lambda each: ratio(*each) or 0.0)[:count]
    rows = [row for group, _ in order for row in group.values()]
    ours = [VERDICT, of_copy(), KERNEL, time(CHOOSER, "µs, ours")]
    best = Column("best other", lambda group: microseconds(group, best_peer(group) or "") or "–")
    return of_cases(rows, [CELL, *ours, best])


def random(rows: list[dict]) -> dict[str, str]:
    """The chart, the kinds and the worst ten."""
    drawn = quoted.Drawn(by_case(rows).values())
    return {
        "bench-random": scatter(drawn),
        "random-kinds": random_kinds(drawn),
        "random-worst": random_worst(drawn),
    }


# The loss head

PLAIN = "packed_rows"
"""The provider whose calls are plain softmax of the same scores."""

VOCABULARIES = (128_256, 151_643)
"""Shown on the page of the loss head: one whose rows begin at multiples of 16 bytes, and an odd
one."""

WHAT = {
    "cross_entropy": "cross-entropy",
    "token_logprobs": "log-probability and entropy",
    "linear_cross_entropy": "linear cross-entropy",
}


def what(row: dict) -> str:
    """What a case computes, in words.

    >>> what({"op": "modified_softmax", "inputs": "mask"}), what({"op": "cross_entropy",
    ...      "inputs": "in_place"})
    ('softmax with mask', 'cross-entropy, in place')
    """
    inputs = "" if row["inputs"] == "normal" else row["inputs"].replace("_", " ")
    if row["op"] == "modified_softmax":
        return "causal softmax" if inputs == "causal" else f"softmax with {inputs}"
    return WHAT[row["op"]] + (f", {inputs}" if inputs else "")


SIZE = of_row("shape", lambda row: f"{shape_words(row)}, {row['dtype']}")
STEP = of_row("what", lambda row: f"{what(row)}, {STEPS[row['direction']]}", True)


def ours_named(name: str) -> str:
    """How a column of the loss head names a provider."""
    return {CHOOSER: "ours", PLAIN: "plain softmax"}.get(name, label_of(name))


def loss_head(rows: list[dict]) -> str:
    """Every case with its bound and the times of all; and what each allocates at most."""
    bounds: dict[str, Target] = {cell.case: cell for cell in targets_of(rows)}
    others = present([row for row in rows if row["us"]], (PLAIN, *LIBRARIES))

    def bound(group: Group) -> str:
        cell = bounds.get(some(group)["case"])
        if cell is None:
            return "–"
        asked = words.bound(cell.asked).replace(" ", "&nbsp;", 1)
        return f'<span class="level">{asked}</span>' if cell.met else words.missed(asked)

    def share(group: Group) -> str:
        """With a digit more where it would be rounded to a bound that it misses."""
        cell, value = bounds.get(some(group)["case"]), share_of(group)
        close = cell is not None and not cell.met and cell.margin > 0.99
        return f"{value:.3f}" if value and close else share_text(value)

    def memory(name: str) -> Column:
        def cell(group: Group) -> str:
            taken = group.get(name, {}).get("peak_bytes")
            return f"{taken / 2**20:,.1f}" if taken else "–"

        return Column(ours_named(name), cell)

    names = present([row for row in rows if "peak_bytes" in row], (CHOOSER, *LIBRARIES))
    every = of_cases(
        rows,
        [
            SIZE,
            STEP,
            Column("asked for", bound, True),
            Column("of a copy", share),
            strong(time(CHOOSER, "µs: ours")),
            time(COPY),
            *(time(name, ours_named(name)) for name in others),
            *loops(rows),
        ],
    )
    trained = [row for row in rows if row["direction"] == "forward_backward"]
    used = of_cases(trained, [SIZE._replace(head="MiB"), STEP, *map(memory, names)], linked=False)
    whole = [r for r in rows if r["op"] == "cross_entropy" and r["inputs"] == "normal"]
    whole = [row for row in whole if row["direction"] == "forward_backward"]
    title = "Cross-entropy with its gradient, by vocabulary: share of the copy's speed"
    drawn = share_chart(whole, title, vocabulary)
    return (
        drawn
        + folded(f"Every call: {len(by_case(rows))} rows of times and bounds", every)
        + folded("Peak memory beside the logits of calls with a gradient, MiB", used)
    )


def vocabulary(row: dict) -> str:
    """A vocabulary and its type, as an axis writes them."""
    return f"{length(row)} {row['dtype']}"


def beside_all(rows: list[dict], *first: Column) -> str:
    """Ours with its verdict, and the times of every other library."""
    ours = [VERDICT, of_copy(), time(CHOOSER, "µs: ours")]
    return of_cases(rows, [*first, *ours, *map(time, present(rows, LIBRARIES))], linked=False)


def loss_speeds(rows: list[dict]) -> str:
    """Cross-entropy with its gradient over two vocabularies, beside every other library."""
    logits = Column("logits", lambda group: words.link(some(group), f"{SIZE.cell(group)}"))
    return beside_all(rows, logits)


def token_speeds(rows: list[dict]) -> str:
    """Log-probabilities of tokens with entropies, beside every other library."""
    return beside_all(rows, SIZE, STEP)


def masked(rows: list[dict]) -> str:
    """What softmax with scales and masks takes beside plain softmax, a copy and PyTorch."""
    call = Column("what", lambda group: f"{what(some(group))}, {SIZE.cell(group)}")
    providers = ((CHOOSER, "µs: ours"), (PLAIN, "plain softmax"), (COPY, "a copy"))
    providers += tuple((name, label_of(name)) for name in ("torch", "torch.compile"))
    shown = [row for row in rows if row["provider"] in dict(providers)]
    return of_cases(shown, [call, *(time(*each) for each in providers)], linked=False)


# By name

SUITES: dict[str, Callable[[list[dict]], str | dict[str, str] | dict[str, list[str]]]] = {
    **dict.fromkeys(("forward", "backward", "few_rows", "log_softmax", "strided", "ladder"), parts),
    "host_time": host_time,
    "compiles": compiles,
    "compiled": compiled,
    "longest": longest,
    "article": article,
    "loss_head": loss_head,
    "batch": batch,
    "accuracy": accuracy,
    "random": random,
}
"""What makes the HTML of a suite: by name, or all of `bench-SUITE`; in a block, or in several."""


def fragments(data: dict) -> page.Rendered:
    """Everything by name; a suite without rows says that it is not measured."""
    out = page.Rendered()
    for suite, make in SUITES.items():
        rows = of_suite(data, suite)
        if not rows:
            out.fragments |= dict.fromkeys((f"origin-{suite}", f"bench-{suite}"), page.NOT_MEASURED)
            continue
        path, made = f"{page.ASSETS}/{suite}.csv", make(rows)
        out.assets[path] = page.csv_text(rows)
        out.fragments[f"origin-{suite}"] = Fragment(origin(rows, path), measured_by(rows))
        for name, html in (made if isinstance(made, dict) else {f"bench-{suite}": made}).items():
            blocks = map(block, [html] if isinstance(html, str) else html)
            out.fragments[name] = Fragment("\n\n".join(blocks) + "\n")
    if grid := [row for suite in ("forward", "backward") for row in of_suite(data, suite)]:
        drawn = heat_map("Softmax over the last dimension, rows without gaps", grid, length)
        out.fragments["heat-grid"] = page.shown(drawn)
        out.fragments["origin-grid"] = Fragment(origin(grid), measured_by(grid))
    host, batched = (of_suite(data, name) for name in ("host_time", "batch"))
    trained = {"op": "cross_entropy", "direction": "forward_backward", "inputs": "normal"}
    losses = of_suite(data, "loss_head", **trained)
    losses = [row for row in losses if row["shape"][1] in VOCABULARIES]
    for name, make, rows in (
        ("loss-head-speeds", loss_speeds, losses),
        ("token-speeds", token_speeds, of_suite(data, "loss_head", op="token_logprobs")),
        ("masked-speeds", masked, of_suite(data, "loss_head", op="modified_softmax")),
        (
            "host-paid",
            lambda _: paid(data),
            host and batched and [r for r in host + batched if r["us"]],
        ),
    ):
        if rows:
            out.fragments[name] = page.shown(make(rows), rows, told=True)
    return out
