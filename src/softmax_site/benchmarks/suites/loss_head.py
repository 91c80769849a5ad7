"""Losses, log-probabilities and softmax with maps."""

from __future__ import annotations

from softmax_bench.report import best_peer, by_case, ratio
from softmax_bench.roster import CHOOSER, COPY, LIBRARIES, label_of
from softmax_bench.targets import (
    LOSS_FORWARD,
    OF_PLAIN,
    OVER_LIMIT,
    TEMPERATURE_MICROSECONDS,
    TOKENS_MICROSECONDS,
    Cell,
    cells,
)
from softmax_site.benchmarks.data import anchor, of_suite, shape_words
from softmax_site.benchmarks.page import Fragment, Measured, Page, Rendered, block
from softmax_site.benchmarks.rungs import NOT_MEASURED
from softmax_site.benchmarks.tables import (
    Reasons,
    Row,
    error_text,
    folded,
    share_cell,
    table,
    time_cell,
)
from softmax_site.benchmarks.words import (
    link,
    measured_line,
    sign,
    verdict_sentence,
)

PLAIN = "packed_rows"
"""The provider whose calls are plain softmax of the same scores."""

PAGE = "../../benchmarks/loss-head/"
"""Where every case has its row, as seen from a page on kernels."""

VOCABULARIES = (128_256, 151_643)
"""Shown on the page of the loss head: one whose rows begin at multiples of 16 bytes, and an odd
one."""

WHAT = {
    "cross_entropy": "cross-entropy",
    "token_logprobs": "log-probability and entropy",
    "linear_cross_entropy": "linear cross-entropy",
    "mapped_softmax": "softmax with",
}

STEPS = {"forward": "forward", "forward_backward": "forward and backward"}


def what(row: dict) -> str:
    """What a case computes, in words.

    >>> what({"op": "mapped_softmax", "inputs": "mask"}), what({"op": "cross_entropy",
    ...      "inputs": "in_place"})
    ('softmax with mask', 'cross-entropy, in place')
    """
    inputs = "" if row["inputs"] == "normal" else row["inputs"].replace("_", " ")
    if inputs == "causal":
        return "causal softmax"
    if row["op"] == "mapped_softmax":
        return f"{WHAT[row['op']]} {inputs}"
    return WHAT[row["op"]] + (f", {inputs}" if inputs else "")


def memory_cell(row: dict | None) -> str:
    """What a call allocates at most, in MiB."""
    if not row or "peak_bytes" not in row:
        return "–"
    return f"{row['peak_bytes'] / 2**20:,.1f}"


def asked() -> Fragment:
    """What is asked for, in words; measured or not."""
    tokens = TOKENS_MICROSECONDS
    lines: list[Row | list[str]] = [
        ["cross-entropy, forward", f"at least {LOSS_FORWARD:g} of the copy’s rate"],
        [
            "cross-entropy, forward and backward",
            f"at most {OVER_LIMIT:.2f} times the time of one read and one write",
        ],
        [
            "log-probability and entropy, 8,192 × 151,936, bf16",
            f"at most {tokens['forward']:,g} µs forward, {tokens['forward_backward']:,g} µs with "
            "the backward pass",
        ],
        [
            "linear cross-entropy, 8,192 tokens, 4,096 wide, 151,936 classes",
            f"at most {OVER_LIMIT:.2f} times the bare matrix products",
        ],
        ["scores with a scale and a mask", f"at least {OF_PLAIN:g} of plain softmax’s rate"],
        ["causal scores", "ahead of a copy of all scores"],
        [
            "a temperature for each row, 128 × 151,936, float32",
            f"at most {TEMPERATURE_MICROSECONDS:g} µs",
        ],
    ]
    return Fragment(block(table(["what", "bound"], lines, 2)))


def not_reached(rows: list[dict]) -> str:
    """Cases that the last measurement did not come to, as HTML; nothing if there are none."""
    late = [row for row in rows if row["provider"] == CHOOSER and row["status"] == "not_run"]
    if not late:
        return ""
    cases = "; ".join(f"{what(row)}, {row['dtype']}, {shape_words(row)}" for row in late)
    return (
        f"<p><b>Not measured:</b> {cases}. The time on the GPU was used up before, so nothing is "
        "known of their speed.</p>"
    )


def _measured(rows: list[dict]) -> Measured | None:
    """The hash is of the loss head's files, not of plain softmax's."""
    ours = [row for row in rows if row["provider"] == CHOOSER and row["source"]]
    if not ours:
        return None
    source = max(ours, key=lambda row: row["utc"])["source"]
    return Measured(min(row["utc"] for row in rows), {"loss_head": source})


def speeds(data: dict) -> Fragment:
    """Cross-entropy with its gradient over two vocabularies, beside every other library, for the
    page of the kernel; and how all its cases stand."""
    every = of_suite(data, "loss_head", op="cross_entropy")
    rows = [
        row
        for row in every
        if row["direction"] == "forward_backward"
        and row["inputs"] == "normal"
        and row["shape"][1] in VOCABULARIES
    ]
    if not rows:
        return NOT_MEASURED
    reasons = Reasons("loss-head-speeds", rows)
    there = {row["provider"] for row in rows}
    others = [name for name in LIBRARIES if name in there]
    body: list[Row | list[str]] = []
    for group in by_case(rows).values():
        mine = group[CHOOSER]
        peer = best_peer(group)
        body.append(
            [
                link(mine, f"{shape_words(mine)}, {mine['dtype']}", PAGE),
                sign(ratio(group, peer)) if peer else "–",
                share_cell(ratio(group, COPY)),
                f"<b>{time_cell(mine, reasons)}</b>",
                *(time_cell(group.get(name), reasons) for name in others),
            ]
        )
    head = [
        "logits",
        "against the best other",
        "of a copy",
        "µs: ours",
        *map(label_of, others),
    ]
    parts = [
        block(table(head, body, 2)),
        block(reasons.listing()) if reasons.groups else "",
        "All cases of cross-entropy, forward alone and with the gradient:",
        block(verdict_sentence(every, lambda row: PAGE)),
        "The other lengths, log-probabilities, and memory: [the loss head, measured]"
        f"(../benchmarks/loss-head.md). {measured_line(data, rows)}\n"
        "{ .bench-note data-search-exclude }",
    ]
    return Fragment("\n\n".join(part for part in parts if part) + "\n", _measured(every))


def maps_fragment(data: dict) -> Fragment:
    """What softmax with maps takes, for its page, or that it has not been timed."""
    rows = of_suite(data, "loss_head", op="mapped_softmax")
    if not rows:
        return NOT_MEASURED
    groups = list(by_case(rows).values())
    shares = [share for group in groups if (share := ratio(group, COPY))]
    where = "[the benchmarks](../benchmarks/loss-head.md)"
    if not shares:
        return Fragment(
            f"Softmax with maps has not been timed. There are {len(groups)} cases of it among "
            f"{where}, with masks, causal and with temperatures, but the time on the GPU was used "
            "up before they were reached.\n"
        )
    body: list[Row | list[str]] = []
    for group in groups:
        mine = group[CHOOSER]
        if any(not group.get(name, {}).get("us") for name in (CHOOSER, PLAIN, COPY)):
            continue
        body.append(
            [
                f"{what(mine)}, {shape_words(mine)}, {mine['dtype']}",
                *(f"{group[name]['us']['p50']:,.1f}" for name in (CHOOSER, PLAIN, COPY)),
            ]
        )
    head = ["what", "µs: ours", "plain softmax", "a copy"]
    causal = "Causal scores are read by half; the copy moves all of them"
    parts = [block(table(head, body, 1)), f"{causal}. More in {where}."]
    return Fragment("\n\n".join(parts) + "\n", _measured(rows))


def loss_head_page(data: dict) -> Rendered:
    """Every case with its target, times of all, and memory."""
    rows = of_suite(data, "loss_head")
    page, reasons = Page(data, "loss_head", rows), Reasons("loss_head", rows)
    page.measured = _measured(rows) or page.measured
    page.html(verdict_sentence(rows))
    page.html(not_reached(rows))
    asked = {cell.case: cell for cell in cells(rows)}
    if missed := sum(not cell.met for cell in asked.values()):
        page.html(f"<p>Of {len(asked)} bounds that were set, {missed} are missed (▼).</p>")
    timed = {row["provider"] for row in rows if row["us"]}
    others = [name for name in (PLAIN, *LIBRARIES) if name in timed]
    body: list[Row | list[str]] = []
    for case, group in by_case(rows).items():
        mine = group.get(CHOOSER)
        some = mine or next(iter(group.values()))
        cell = asked.get(case)
        mark = "–"
        if cell is not None:
            css, sign = ("level", "") if cell.met else ("behind", "▼ ")
            bound = cell.asked.replace("at least ", "≥&nbsp;").replace("at most ", "≤&nbsp;")
            mark = f'<span class="{css}">{sign}{bound}</span>'
        error = mine["max_rel_error"] if mine else None
        body.append(
            Row(
                [
                    f"{shape_words(some)}, {some['dtype']}",
                    f"{what(some)}, {STEPS[some['direction']]}",
                    mark,
                    _share(ratio(group, COPY), cell),
                    f"<b>{time_cell(mine, reasons)}</b>",
                    time_cell(group.get(COPY), reasons),
                    *(time_cell(group.get(name), reasons) for name in others),
                    error_text(error),
                ],
                anchor(some),
            )
        )
    names = ["plain softmax" if name == PLAIN else label_of(name) for name in others]
    head = ["shape", "what", "asked for", "of a copy", "µs: ours", "copy", *names]
    page.html(table([*head, "error"], body, 3))
    page.html(reasons.listing())
    page.html(folded("Memory that a call takes at most, results included", memory(rows)))
    return page.done()


def _share(value: float | None, cell: Cell | None) -> str:
    """A share of the copy's speed; with a digit more where it would be rounded to a bound that it
    misses."""
    close = cell is not None and not cell.met and cell.margin > 0.99
    return f"{value:.3f}" if value and close else share_cell(value)


def memory(rows: list[dict]) -> str:
    """What each library allocates at most in a call, as a table."""
    timed = {row["provider"] for row in rows if "peak_bytes" in row}
    names = [name for name in (CHOOSER, *LIBRARIES) if name in timed]
    body: list[Row | list[str]] = []
    for group in by_case(rows).values():
        some = next(iter(group.values()))
        body.append(
            [
                f"{shape_words(some)}, {some['dtype']}",
                f"{what(some)}, {STEPS[some['direction']]}",
                *(memory_cell(group.get(name)) for name in names),
            ]
        )
    labels = ["ours" if name == CHOOSER else label_of(name) for name in names]
    return table(["MiB", "what", *labels], body, 2)
