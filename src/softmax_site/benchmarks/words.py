"""How a number, a verdict and a reason are written."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

from softmax_bench.report import LEVEL, best_peer, ratio, standing
from softmax_bench.roster import label_of
from softmax_site.benchmarks.data import anchor

SIGNS = {"ahead": "▲", "level": "=", "behind": "▼"}
"""A verdict is a sign first and a colour second."""


def signs(rival: str) -> str:
    """What the signs of a table say, whose rule is on the page of the method."""
    return f"▲ ahead of {rival}, = level, ▼ behind"


ELSEWHERE = {
    **dict.fromkeys(("backward", "log_softmax", "few_rows", "strided"), "forward"),
    **{
        "compiled": "host-time",
        "longest": "random",
        "article": "sources",
        "batch": "sources",
        "accuracy": "method",
    },
}


def page_of(suite: str) -> str:
    """The page of a suite, below `benchmarks/`."""
    return ELSEWHERE.get(suite, suite.replace("_", "-"))


def listed(words: Iterable[str]) -> str:
    """Words with commas and an "and" between them.

    >>> listed(["torch"]), listed(["torch", "Liger", "QuACK"])
    ('torch', 'torch, Liger and QuACK')
    """
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


def times(factor: float) -> str:
    """A ratio with two decimals, or with three where two would say that there is no difference.

    >>> times(1.2245), times(0.997)
    ('1.22', '0.997')
    """
    text = f"{factor:.2f}"
    return f"{factor:.3f}" if text == "1.00" else text


def percent(share: float) -> str:
    """A share as the pages write it.

    >>> percent(0.02)
    '2 %'
    """
    return f"{share * 100:.0f} %"


def bound(asked: str) -> str:
    """What is asked for, with signs in place of words."""
    return asked.replace("at least ", "≥\xa0").replace("at most ", "≤\xa0")


def marked(state: str, text: str) -> str:
    """Words with the sign and the colour of a state, as HTML."""
    return f'<span class="{state}">{SIGNS[state]} {text}</span>'


def missed(text: str) -> str:
    """What is not as it should be, whoever else is faster or slower, as HTML."""
    return f'<span class="behind">✗ {text}</span>'


def side(factor: float) -> str:
    """On which side of one a ratio is whose turns were not kept.

    >>> side(1.06), side(1.04), side(0.94)
    ('ahead', 'level', 'behind')
    """
    if 1 - LEVEL <= factor <= 1 / (1 - LEVEL):
        return "level"
    return "ahead" if factor > 1 else "behind"


def sign(factor: float | None) -> str:
    """A ratio whose interval is not known with its sign and its colour, as HTML; no right answer of
    ours is a loss."""
    return (
        marked("behind", "no right answer")
        if factor is None
        else marked(side(factor), f"{factor:.2f}")
    )


def verdict(group: dict[str, dict], over: str | None = None) -> str:
    """Ours against another provider, or the best other library, as HTML."""
    peer = over or best_peer(group)
    if peer is None:
        return "no other has a right answer"
    factor = ratio(group, peer)
    said, between = "no right answer", "; best other: "
    if factor is not None:
        said, between = times(factor), " × "
    shown = marked(standing(group, peer), said)
    return f'<span class="verdict">{shown}{between}{label_of(peer)}</span>'


def address(row: dict) -> str:
    """Where a page has the row of a case in full, from the root of the site."""
    return f"/benchmarks/{page_of(row['suite'])}/#{anchor(row)}"


def link(row: dict, text: str) -> str:
    """A link to the full row of a case."""
    return f'<a href="{address(row)}">{escape(text)}</a>'


def error_text(value: float | str | None) -> str:
    """An error with two digits."""
    if value is None:
        return "–"
    return "∞" if float(value) == float("inf") else f"{float(value):.1e}"


def kernel_words(row: dict | None) -> str:
    """The kernels that were launched, as the site calls them.

    >>> kernel_words({"kernels": ["softmax_forward_aligned_rows_kernel", "single_block"]})
    'aligned rows, single block'
    """
    if not row or not row["kernels"]:
        return "–"
    names = [
        re.sub(r"^(softmax|log_softmax|logsumexp)_(forward_|backward_)?|_kernel$", "", name)
        for name in row["kernels"]
    ]
    return ", ".join(dict.fromkeys(name.replace("_", " ") for name in names))


_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def plain(reason: str | None) -> str:
    """The first sentence of a reason as a provider gave it, without colours of the terminal.

    >>> plain("CudaError: \\x1b[91merror\\x1b[0m CUDA launch failed: (1) CUDA rejected it\\nmore")
    'CudaError: error CUDA launch failed: (1) CUDA rejected it'
    """
    text = _ANSI.sub("", reason or "").strip().split("\n")[0]
    return text if len(text) <= 160 else text[:157].rsplit(" ", 1)[0] + " …"


def reason_groups(rows: list[dict]) -> list[tuple[str, str, str, list[dict]]]:
    """Rows without a result by provider, state and reason, whatever numbers the reason names:
    (provider, state, reason, rows).

    Numbers that differ within a group become their range.
    """
    groups: dict[tuple, list[dict]] = {}
    for row in rows:
        if row["status"] != "ok":
            kind = _NUMBER.sub("#", plain(row["reason"]))
            groups.setdefault((row["provider"], row["status"], kind), []).append(row)
    return [
        (provider, state, _ranged(kind, members), members)
        for (provider, state, kind), members in sorted(groups.items())
    ]


def _ranged(kind: str, members: list[dict]) -> str:
    columns = list(zip(*(_NUMBER.findall(plain(row["reason"])) for row in members), strict=True))
    first, *rest = kind.split("#")
    text = first
    for values, after in zip(columns, rest, strict=True):
        ordered = sorted(set(values), key=lambda value: float(value.replace(",", "")))
        between = " or " if len(ordered) == 2 else " … "
        text += between.join(dict.fromkeys((ordered[0], ordered[-1]))) + after
    return text
