"""Cells that a seed has drawn, and rows past every limit: a distribution, not a list."""

from __future__ import annotations

import json
import math
from html import escape
from pathlib import Path
from statistics import median, stdev

from softmax_bench.random_shapes import CELLS, layout_of
from softmax_bench.report import (
    LEVEL,
    best_peer,
    by_case,
    geometric_mean,
    ratio,
    standing,
    warm,
)
from softmax_bench.roster import CHOOSER, COPY, LIBRARIES, label_of
from softmax_site.benchmarks.data import (
    DTYPES,
    anchor,
    case_words,
    n_cols,
    of_suite,
    shape_words,
)
from softmax_site.benchmarks.page import Fragment, Page, Rendered, block
from softmax_site.benchmarks.tables import (
    Reasons,
    Row,
    folded,
    kernel_words,
    share_cell,
    table,
    time_cell,
)
from softmax_site.benchmarks.words import percent, sign, times, verdict

SEEDS = "docs/benchmarks/tuning-seeds.json"
"""What earlier seeds gave, on which constants were tuned."""

LOWEST, HIGHEST = 0.5, 8.0
"""Ends of the axis of the plot; what lies beyond stands on them."""

TINY_BYTES = 2**16
"""What the smallest tensors read and write, at most."""

TIME_IS_UP = "the time given was used up"
"""The reason of a row that was not reached any more."""

Group = dict[str, dict]


def newest_seed(rows: list[dict]) -> list[dict]:
    """The rows of the seed that was measured last."""
    last = max(rows, key=lambda row: row["utc"])["seed"]
    return [row for row in rows if row["seed"] == last]


def over_best(group: Group) -> float | None:
    """Our speed over the best other library's; None where there is none."""
    peer = best_peer(group)
    return ratio(group, peer) if peer else None


def compared(rows: list[dict]) -> list[Group]:
    """The cells that were measured, and in which another library has an answer."""
    groups = [group for group in by_case(rows).values() if CHOOSER in group and best_peer(group)]
    return [group for group in groups if group[CHOOSER]["status"] != "not_run"]


def values(groups: list[Group], of) -> list[float]:
    """What `of` finds in the cells, where it finds something."""
    return [value for group in groups if (value := of(group))]


def mean_words(groups: list[Group], of) -> str:
    """A geometric mean as the page writes it."""
    mean = geometric_mean(values(groups, of))
    return f"{mean:.2f}" if mean else "–"


def standings(groups: list[Group]) -> tuple[int, int, float]:
    """In how many cells ours is ahead and behind, and the share in which it is at least level."""
    states = [standing(over_best(group)) for group in groups]
    behind = states.count("behind")
    return states.count("ahead"), behind, (len(groups) - behind) / len(groups)


def left_out(rows: list[dict]) -> str:
    """Which of the cells that were drawn have no time of ours, and why; nothing if all have one."""
    ours = [row for row in rows if row["provider"] == CHOOSER]
    without = [row for row in ours if row["status"] == "not_run"]
    late = [row for row in without if row["reason"] == TIME_IS_UP]
    text = ""
    if late:
        kinds = [
            f"{missing} of {sum(row['dtype'] == dtype for row in ours)} in {dtype}"
            for dtype in DTYPES
            if (missing := sum(row["dtype"] == dtype for row in late))
        ]
        text += (
            f" The seed drew {CELLS} cells. The time on the GPU ran out before {len(late)} of "
            f"them were measured: {', '.join(kinds)}."
        )
    if disturbed := len(without) - len(late):
        text += (
            f" {disturbed} more {'has' if disturbed == 1 else 'have'} no time of ours, since "
            "something else on the machine disturbed the measurement."
        )
    if (replanned := CELLS - len(ours)) > 0:
        text += (
            f" {replanned} {'is' if replanned == 1 else 'are'} left out, since the library has "
            "come to plan them otherwise."
        )
    return text


def sentence(rows: list[dict]) -> str:
    """The distribution in one sentence, and which of the cells drawn it leaves out."""
    groups = compared(rows)
    ahead, behind, level = standings(groups)
    return (
        f'<p class="verdict-sentence">Of {len(groups)} cells that seed {rows[0]["seed"]} drew, '
        f'ours is <b class="ahead">at least level in {percent(level)}</b>, ahead in {ahead} and '
        f"behind in {behind}. "
        f"In the geometric mean it is {mean_words(groups, over_best)} × as fast as the best other "
        f"library, {mean_words(groups, lambda group: ratio(group, 'torch'))} × as fast as torch, "
        "and reaches "
        f"{mean_words(groups, lambda group: ratio(group, COPY))} of a copy’s speed."
        f"{left_out(rows)}</p>{compiler_sentence(groups)}"
    )


def compiler_ran(group: Group) -> bool:
    """Whether torch.compile was asked for this cell, and has a time."""
    return bool(group.get("torch.compile", {}).get("us"))


def compiler_sentence(groups: list[Group]) -> str:
    """How ours stands where torch.compile ran, too, and where it did not."""
    ran = [group for group in groups if compiler_ran(group)]
    rest = [group for group in groups if not compiler_ran(group)]
    if not ran or not rest:
        return ""
    (some, over), (others, beyond) = (
        (percent(standings(part)[2]), mean_words(part, over_best)) for part in (ran, rest)
    )
    return (
        f"<p>That depends on who was asked: in the {len(ran)} cells in which "
        f"{label_of('torch.compile')} ran, too, ours is at least level in {some} and {over} × as "
        f"fast as the best other library; in the other {len(rest)}, in {others} and {beyond} ×.</p>"
    )


def over_best_warm(group: Group) -> float | None:
    """The same as `over_best` with a warm cache."""
    ours = warm(group.get(CHOOSER))
    best = min((us for name in LIBRARIES if (us := warm(group.get(name)))), default=None)
    return best / ours if ours and best else None


def warm_sentence(groups: list[Group]) -> str:
    """Small tensors, whose elements may well be in the cache."""
    small = [group for group in groups if over_best_warm(group)]
    if not small:
        return ""
    cold = min(values(small, over_best))
    hot = min(values(small, over_best_warm))
    return (
        f"<p>{len(small)} cells are so small that they were timed with a warm cache too. There "
        f"ours is {mean_words(small, over_best)} × the best other with a cold cache, "
        f"{times(cold)} × in the worst cell; with a warm one "
        f"{mean_words(small, over_best_warm)} × and {times(hot)} ×.</p>"
    )


def tiny_sentence(groups: list[Group]) -> str:
    """Where the time of the smallest tensors goes: to any launch, to cold memory, to softmax."""
    tiny = [
        group
        for group in groups
        if group[CHOOSER]["bytes"] <= TINY_BYTES and all(map(warm, (group[CHOOSER], group[COPY])))
    ]
    if not tiny:
        return ""
    cold, copied = (median(group[who]["us"]["p50"] for group in tiny) for who in (CHOOSER, COPY))
    hot, copied_hot = (median(warm(group[who]) or 0.0 for group in tiny) for who in (CHOOSER, COPY))
    return (
        f"<p>The {len(tiny)} smallest, which read and write {TINY_BYTES // 1024} KiB at most, take "
        f"{cold:.1f} µs in the median, and a copy of them {copied:.1f} µs; with a warm cache it is "
        f"{hot:.1f} and {copied_hot:.1f} µs. So nearly all of it is what any launch takes. "
        f"Fetching data and instructions from memory adds {cold - hot:.1f} µs, and softmax itself, "
        f"beyond moving the elements, {hot - copied_hot:.1f} µs.</p>"
    )


def scatter(groups: list[Group], title: str) -> str:
    """A mark per cell: the length of a row across, our speed over the best other's upward."""
    low, high = math.log2(LOWEST), math.log2(HIGHEST)
    longest = math.ceil(max(math.log2(n_cols(group[CHOOSER])) for group in groups))
    height = 280

    def y(factor: float) -> float:
        return 100 * (high - min(max(math.log2(factor), low), high)) / (high - low)

    def x(row: dict) -> float:
        return 100 * (math.log2(n_cols(row)) - 1) / (longest - 1)

    alt = f"{title}. The classes and the worst cells are in the tables below."
    out = [
        f'<div class="strip scatter"><p class="plot-title">{escape(title)}</p>'
        f'<svg role="img" aria-label="{escape(alt)}" style="height: {height + 30}px">'
        f'<svg class="area" height="{height}" width="100%">'
    ]
    for power in range(int(low), int(high) + 1):
        at, name = f"{y(2.0**power):.2f}%", f"{2.0**power:g} ×"
        css = "grid one" if power == 0 else "grid"
        out.append(f'<line class="{css}" x1="0" x2="100%" y1="{at}" y2="{at}"/>')
        out.append(f'<text class="tick-y" x="0" dx="-12" y="{at}" dy="4">{name}</text>')
    for group in groups:
        row, factor = group[CHOOSER], over_best(group)
        where = f"{x(row):.2f}%"
        at = f"{y(factor or LOWEST):.2f}%"
        said = escape(f"{case_words(row)}: {times(factor)} ×" if factor else case_words(row))
        if standing(factor) == "behind":
            out.append(
                f'<svg x="{where}" y="{at}" class="at"><path class="behind" d="M-5 -4h10l-5 9z">'
                f"<title>{said}</title></path></svg>"
            )
        else:
            mark = f'<circle class="ours" cx="{where}" cy="{at}" r="3.5">'
            out.append(f"{mark}<title>{said}</title></circle>")
    out.append("</svg>")
    for power in range(1, longest + 1, 3):
        at = f"{100 * (power - 1) / (longest - 1):.2f}%"
        out.append(f'<text class="tick-x" x="{at}" y="{height + 20}">{2**power:,}</text>')
    out.append("</svg></div>")
    return "\n".join(out)


def class_table(groups: list[Group]) -> str:
    """Every kind of cell: how many, how they stand, how near to the copy."""
    kinds: dict[str, list[Group]] = {}
    for group in groups:
        row = group[CHOOSER]
        kinds.setdefault(f"{layout_of(row)}, {row['direction']}", []).append(group)
        kinds.setdefault(row["op"], []).append(group)
        kinds.setdefault(row["dtype"], []).append(group)
        ran = "with" if compiler_ran(group) else "without"
        kinds.setdefault(f"{ran} {label_of('torch.compile')}, {row['direction']}", []).append(group)
    order = sorted(kinds, key=lambda kind: (("," not in kind), kind))
    body: list[Row | list[str]] = []
    for kind in order:
        part = kinds[kind]
        found, shares = values(part, over_best), values(part, lambda group: ratio(group, COPY))
        states = [standing(over_best(group)) for group in part]
        body.append(
            [
                kind,
                str(len(part)),
                percent((len(part) - states.count("behind")) / len(part)),
                f"{geometric_mean(found):.2f}" if found else "–",
                sign(min(found)) if found else sign(None),
                share_cell(geometric_mean(shares)),
                share_cell(min(shares, default=None)),
            ]
        )
    head = [
        "cells",
        "how many",
        "at least level",
        "× the best other",
        "worst, × other",
        "of a copy",
        "worst, of a copy",
    ]
    return table(head, body)


def worst_table(groups: list[Group], reasons: Reasons, count: int = 10) -> str:
    """The cells in which ours stands worst."""
    body: list[Row | list[str]] = []
    for group in sorted(groups, key=lambda group: over_best(group) or 0.0)[:count]:
        ours = group[CHOOSER]
        body.append(
            Row(
                [
                    case_words(ours),
                    verdict(group),
                    share_cell(ratio(group, COPY)),
                    kernel_words(ours),
                    time_cell(ours, reasons),
                    time_cell(group.get(best_peer(group) or ""), reasons),
                ],
                anchor(ours),
            )
        )
    head = ["cell", "against the best other", "of a copy", "kernel", "µs, ours", "best other"]
    return table(head, body, 2, also=(3,))


def slowest(groups: list[Group]) -> str:
    """The cell that is furthest below a copy, whatever others do."""
    shares = [(share, group[CHOOSER]) for group in groups if (share := ratio(group, COPY))]
    if not shares:
        return ""
    share, row = min(shares, key=lambda each: each[0])
    return (
        f"<p>Furthest below a copy is {case_words(row)}, at {share_cell(share)} of its speed, by "
        f"{kernel_words(row)}.</p>"
    )


def random_page(data: dict) -> Rendered:
    """How the cells of the newest seed are distributed."""
    rows = newest_seed(of_suite(data, "random"))
    page, reasons = Page(data, "random", rows), Reasons("random", rows)
    groups = compared(rows)
    page.html(sentence(rows))
    page.html(scatter(groups, "Speed over the best other library’s, by the length of a row"))
    page.html(
        '<p class="bench-caption">A dot: at least level '
        f"(≥ {1 - LEVEL:g}). A triangle: behind. What lies beyond {LOWEST:g} or {HIGHEST:g} × "
        "stands at the edge.</p>"
    )
    page.html(warm_sentence(groups))
    page.html(tiny_sentence(groups))
    page.add("## Kinds of cells")
    page.html(class_table(groups))
    page.add("## The worst ten")
    page.html(worst_table(groups, reasons))
    page.html(slowest(groups))
    page.html(folded("Who gave no answer, and why", reasons.listing() or "<p>Nobody.</p>"))
    return page.done()


def longest_page(data: dict) -> Rendered:
    """Rows that no other page has: too long to split, of float64, apart in memory."""
    rows = of_suite(data, "longest")
    page, reasons = Page(data, "longest", rows), Reasons("longest", rows)
    body: list[Row | list[str]] = []
    for group in by_case(rows).values():
        ours = group.get(CHOOSER)
        some = ours or next(iter(group.values()))
        factor = ratio(group, COPY)
        body.append(
            Row(
                [
                    f"{some['direction']}, {some['dtype']}, {shape_words(some)}",
                    f"{1 / factor:.1f} × the copy’s time" if factor else reasons.cell(ours),
                    kernel_words(ours),
                    *(time_cell(group.get(name), reasons) for name in (CHOOSER, COPY, "torch")),
                ],
                anchor(some),
            )
        )
    head = ["cell", "ours takes", "kernel", "µs, ours", "copy", "torch"]
    page.html(table(head, body, 1, also=(1, 2)))
    factors = [1 / factor for group in by_case(rows).values() if (factor := ratio(group, COPY))]
    if factors:
        page.html(f"<p>The worst of them takes {max(factors):.2f} × the copy’s time.</p>")
    page.html(reasons.listing())
    return page.done()


def tuning_sentence(seed: dict, rows: list[dict]) -> str:
    """How the published seed stands beside one of the tuning, in what is alike in both: the copy,
    and the libraries that the tuning asked."""
    groups = compared(newest_seed(rows)) if rows else []
    if not groups:
        return ""

    def over_asked(group: Group) -> float | None:
        found = [factor for name in seed["against"] if (factor := ratio(group, name))]
        return min(found, default=None)

    over = values(groups, over_asked)
    mean = geometric_mean(over)
    if not mean:
        return ""
    spread = stdev(math.log(each) for each in over) if len(over) > 1 else 0.0
    chance = math.exp(2 * spread * math.sqrt(1 / len(over) + 1 / seed["cells"]))
    asked = " and ".join(label_of(name) for name in seed["against"])
    apart = mean / seed["over_best"]
    states = [standing(each) for each in over]
    level = (len(over) - states.count("behind")) / len(over)
    return (
        f"<p>The share of a copy’s speed depends on nobody else: it is {seed['of_copy']:.2f} on "
        f"seed {seed['seed']} and {mean_words(groups, lambda group: ratio(group, COPY))} on the "
        f"published one. The other columns are not those of the tables above, since the tuning "
        f"asked {asked} alone, who are easier to beat than all libraries together. So asked, the "
        f"published seed is at least level in {percent(level)} of the {len(over)} cells in which "
        f"there is a right answer, at {mean:.2f} × in the mean: "
        f"{max(apart, 1 / apart):.2f} times {'higher' if apart > 1 else 'lower'}, where means over "
        f"so few cells differ by chance by a factor of up to {chance:.2f} (two standard errors)."
        "</p>"
    )


def tuning_fragment(root: Path, data: dict | None = None) -> Fragment:
    """The seeds on which constants were tuned, beside which the published one stands."""
    path = root / SEEDS
    seeds = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    if not seeds:
        return Fragment("No seed of the tuning has been recorded yet.\n")
    body: list[Row | list[str]] = [
        [
            str(each["seed"]),
            str(each["cells"]),
            percent(each["level"]),
            f"{each['over_best']:.2f}",
            f"{each['worst']:.2f}",
            f"{each['over_torch']:.2f}",
            f"{each['of_copy']:.2f}",
        ]
        for each in seeds
    ]
    head = ["seed", "cells", "at least level", "× the best other", "worst", "× torch", "of a copy"]
    rows = of_suite(data, "random") if data else []
    said = "".join(tuning_sentence(each, rows) for each in seeds if "against" in each)
    return Fragment(block(table(head, body)) + "\n\n" + (block(said) if said else "") + "\n")
