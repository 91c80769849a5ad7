"""What the numbers say, in words: verdicts, sentences about many cases, reasons."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from statistics import median

from softmax_bench.report import LEVEL, best_peer, by_case, geometric_mean, ratio, standing
from softmax_bench.roster import CHOOSER, COPY, label_of
from softmax_site.benchmarks.data import anchor, case_words, runs_used, time_text

SIGNS = {"ahead": "▲", "level": "=", "behind": "▼"}
"""A verdict is a sign first and a colour second."""

PAGES = {
    "forward": "forward",
    "backward": "backward",
    "few_rows": "few-rows",
    "log_softmax": "log-softmax",
    "strided": "strides",
    "ladder": "ladder",
    "host_time": "host-time",
    "accuracy": "accuracy",
    "article": "sources",
    "batch": "sources",
    "compiled": "host-time",
    "random": "random",
    "longest": "random",
    "loss_head": "loss-head",
}
"""The page of each suite, below `benchmarks/`."""


def times(factor: float) -> str:
    """A ratio with two decimals, or, where these would put it on the wrong side of level, with
    three, cut off.

    >>> times(1.2245), times(0.979), times(0.9798), times(0.981)
    ('1.22', '0.979', '0.979', '0.98')
    """
    text = f"{factor:.2f}"
    return (
        text if standing(float(text)) == standing(factor) else f"{int(factor * 1000 + 1e-6) / 1000}"
    )


def percent(share: float) -> str:
    """A share as the pages write it.

    >>> percent(0.02)
    '2 %'
    """
    return f"{share * 100:.0f} %"


def sign(factor: float | None) -> str:
    """A ratio with its sign and its colour, as HTML; no right answer of ours is a loss."""
    state = standing(factor)
    said = "no right answer" if factor is None else times(factor)
    return f'<span class="{state}">{SIGNS[state]} {said}</span>'


def verdict(group: dict[str, dict], over: str | None = None) -> str:
    """Ours against another provider, or the best other library, as HTML."""
    peer = over or best_peer(group)
    if peer is None:
        return "no other has a right answer"
    factor = ratio(group, peer)
    between = " × " if factor is not None else "; best other: "
    return f'<span class="verdict">{sign(factor)}{between}{label_of(peer)}</span>'


def link(row: dict, text: str, page: str = "") -> str:
    """A link to the full row of a case; `page` is the way to its page, if it is another."""
    return f'<a href="{page}#{anchor(row)}">{escape(text)}</a>'


@dataclass
class Stand:
    """How ours stands against the best other library over many cases."""

    ahead: int = 0
    level: int = 0
    behind: int = 0
    ratios: list[float] = field(default_factory=list)
    """Of each case where both have an answer."""
    torch: list[float] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    """Of the copy's speed."""
    losses: list[tuple[float, dict, str]] = field(default_factory=list)
    """Ratio, our row and the other library of each case behind, worst first."""

    @property
    def cases(self) -> int:
        return self.ahead + self.level + self.behind


def stand(rows: list[dict]) -> Stand:
    """Count; a case without any other answer does not count."""
    found = Stand()
    for group in by_case(rows).values():
        peer = best_peer(group)
        if CHOOSER not in group or peer is None:
            continue
        factor = ratio(group, peer)
        state = standing(factor)
        setattr(found, state, getattr(found, state) + 1)
        if state == "behind":
            found.losses.append((factor or 0.0, group[CHOOSER], peer))
        for values, value in (
            (found.ratios, factor),
            (found.torch, ratio(group, "torch")),
            (found.shares, ratio(group, COPY)),
        ):
            if value:
                values.append(value)
    found.losses.sort(key=lambda item: item[0])
    return found


def loss_words(loss: tuple[float, dict, str], where: Callable[[dict], str]) -> str:
    """One case behind, linked to its row."""
    factor, row, peer = loss
    text = f"{case_words(row)}, {times(factor)} × {label_of(peer)}" if factor else case_words(row)
    return link(row, text, where(row))


def nowhere(row: dict) -> str:
    """The rows are on this page."""
    return ""


def verdict_sentence(rows: list[dict], where: Callable[[dict], str] = nowhere) -> str:
    """Ahead, level, behind; the geometric mean; where we lose most, linked; as HTML."""
    found = stand(rows)
    if not found.ratios:
        return '<p class="verdict-sentence">No case has an answer of ours and of another.</p>'
    mean = geometric_mean(found.ratios)
    behind = f"behind in {found.behind}" if found.behind else "never behind"
    text = (
        f'<b class="ahead">Ahead in {found.ahead} cells</b>, level within {percent(LEVEL)} in '
        f'{found.level}, <b class="{"behind" if found.behind else "ahead"}">{behind}</b>; '
        f"{mean:.2f} × the best "
        "other library in the geometric mean"
    )
    if found.torch:
        text += f", {geometric_mean(found.torch):.2f} × torch"
    text += ". "
    if found.losses:
        which = "The one loss" if found.behind == 1 else "Where we lose most"
        text += f"{which}: {loss_words(found.losses[0], where)}."
    return f'<p class="verdict-sentence">{text}</p>'


def share_sentence(rows: list[dict]) -> str:
    """How near to the copy: median and worst, the worst linked; as HTML."""
    shares = [
        (share, group[CHOOSER]) for group in by_case(rows).values() if (share := ratio(group, COPY))
    ]
    if not shares:
        return ""
    worst, row = min(shares, key=lambda item: item[0])
    middle = median(share for share, _ in shares)
    return (
        f"<p>Of the speed of a plain copy it reaches {middle:.2f} in the median cell, and "
        f"{worst:.2f} in the worst, {link(row, case_words(row))}.</p>"
    )


def measured_line(data: dict, rows: list[dict]) -> str:
    """On what, when, and which code."""
    *earlier, env = (data["environments"][name] for name in runs_used(data, rows))
    day = time_text(max(row["utc"] for row in rows))
    text = (
        f"Measured on one {env['gpu']} with torch {env['torch'].split('+')[0]} and triton "
        f"{env['triton']}, {day} UTC, commit `{env['commit'][:12]}`"
    )
    for before in earlier:
        text += (
            f"; some rows are of an earlier run, on "
            f"another machine of this kind, {time_text(before['started'])} UTC, commit "
            f"`{before['commit'][:12]}`"
        )
    return f"{text}."


# Reasons


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
    parts = kind.split("#")
    text = parts[0]
    for values, rest in zip(columns, parts[1:], strict=True):
        ordered = sorted(set(values), key=lambda value: float(value.replace(",", "")))
        first, last = ordered[0], ordered[-1]
        shown = first if len(ordered) == 1 else f"{first} … {last}"
        if len(ordered) == 2:
            shown = f"{first} or {last}"
        text += shown + rest
    return text
