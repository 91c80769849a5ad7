"""Tables as HTML: the one function that writes them, and the columns of tables of cases.

On a narrow screen a row becomes a card: its first cell is the title, and each other cell says what
it is, so that nothing scrolls sideways.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import NamedTuple

from softmax_bench.report import answers, best_peer, by_case, ratio, standing, timed
from softmax_bench.roster import CHOOSER, COPY, label_of
from softmax_site.benchmarks.data import DTYPES, anchor, case_words, n_cols, shape_words
from softmax_site.benchmarks.words import SIGNS, address, kernel_words, listed, times, verdict
from softmax_site.templates import filled

Group = dict[str, dict]
"""The rows of a case by provider."""

WHY = "/benchmarks/method/#why"
"""Where reasons are quoted, followed by who gave no result and how."""


class Cell(NamedTuple):
    """A cell as HTML, of a class."""

    text: str
    css: str = ""


class Row(NamedTuple):
    """Cells as HTML, and an attribute."""

    cells: Sequence[str | Cell]
    attribute: str = ""


def table(
    head: Sequence[str | Cell],
    rows: Iterable[Row | Sequence[str | Cell]],
    left: int = 1,
    also: tuple[int, ...] = (),
    css: str = "bench-table",
    caption: str = "",
    roles: bool = False,
) -> str:
    """A table as HTML; the first `left` columns and those in `also` are words, the others numbers.
    Without a class its rows have no heads. `roles` says aloud what a style sheet that moves rows
    and cells would hide."""
    words = {*range(left), *also} if css == "bench-table" else {*range(len(head))}

    def cells(row: Sequence[str | Cell]) -> list[Cell]:
        kinds = ["" if at in words else "n" for at in range(len(row))]
        return [
            cell._replace(css=f"{cell.css} {kind}".strip())
            if isinstance(cell, Cell)
            else Cell(cell, kind)
            for cell, kind in zip(row, kinds)
        ]

    lines = (row if isinstance(row, Row) else Row(row) for row in rows)
    return filled(
        "table",
        head=cells(head),
        rows=[row._replace(cells=cells(row.cells)) for row in lines],
        css=css,
        labelled=css in ("bench-table", ""),
        caption=caption,
        roles=roles,
    )


def folded(title: str, content: str) -> str:
    """A part of a page that opens on demand, or when a link leads into it."""
    return (
        f'<details class="note" data-search-exclude>\n<summary>{escape(title)}</summary>\n'
        f"{content}\n</details>"
    )


def why(row: dict) -> str:
    """Where the environment quotes what a library said in the place of a result."""
    return f"{WHY}-{row['provider']}-{row['status']}"


def state_of(row: dict | None) -> str:
    """The state of a row that has no number, linked to its reason."""
    if row is None:
        return "–"
    text = row["status"].replace("_", " ")
    return text if text == "ok" else f'<a href="{why(row)}">{text}</a>'


# The columns of tables of cases


class Column(NamedTuple):
    """The name of a column, and what stands in it for a case."""

    head: str
    cell: Callable[[Group], str | Cell]
    words: bool = False


def some(group: Group) -> dict:
    """Ours, or the first row of a case where there is none of ours."""
    return group.get(CHOOSER) or next(iter(group.values()))


def of_cases(rows: list[dict], columns: Sequence[Column], linked: bool = True) -> str:
    """A table of cases; `linked` where links lead to its rows."""
    body = [
        Row(
            [column.cell(group) for column in columns],
            f'id="{anchor(some(group))}"' if linked else "",
        )
        for group in by_case(rows).values()
    ]
    words = tuple(at for at, column in enumerate(columns) if column.words)
    return table([column.head for column in columns], body, also=words)


def share_text(value: float | None) -> str:
    """A share of the copy's speed."""
    return f"{value:.2f}" if value else "–"


def share_of(group: Group, name: str = CHOOSER) -> float | None:
    """A provider's share of the copy's speed."""
    return ratio(group, COPY, name)


def present(rows: list[dict], names: Iterable[str]) -> list[str]:
    """Those of the providers that have rows."""
    there = {row["provider"] for row in rows}
    return [name for name in names if name in there]


def of_row(head: str, write: Callable[[dict], str], words: bool = False) -> Column:
    """What is written of any row of a case."""
    return Column(head, lambda group: write(some(group)), words)


def of_provider(head: str, name: str, write: Callable[[Group], str | None]) -> Column:
    """What is written of a provider, or the state of a row of which there is nothing to write."""
    return Column(head, lambda group: write(group) or state_of(group.get(name)))


def microseconds(group: Group, name: str) -> str | None:
    """The time of a provider."""
    us = timed(group.get(name))
    return f"{us:,.1f}" if us else None


def time(name: str, head: str | None = None) -> Column:
    """The time of a provider."""
    return of_provider(head or label_of(name), name, lambda group: microseconds(group, name))


def of_copy(of: Callable[[Group, str], float | None] = share_of) -> Column:
    """Our share of the copy's speed."""
    return Column("of a copy", lambda group: share_text(of(group, CHOOSER)))


SHAPE = of_row("shape", shape_words)
VERDICT = Column("against the best other", verdict, True)
KERNEL = Column("kernel", lambda group: kernel_words(group.get(CHOOSER)), True)


# Heat maps: lengths by kinds of call, each cell with a sign, a number and a link

LEGEND = (
    '<p class="bench-caption">× the speed of the fastest other library with a right answer; <span '
    'class="level">=</span> <a href="/benchmarks/method/#level">level</a>, <span class="behind">▼'
    '</span> behind, the bluer the further ahead, "·" not measured. <b>Bold</b>: not a multiple of '
    "16 bytes. Each number links to its times.</p>"
)
STEPS = (1.1, 1.25, 1.5, 2.0)
"""Where the blue of a lead gets darker."""


BECAME = ("right", "wrong", "refused or failed", "not asked")
"""What can become of a case, in words."""


def answers_words(groups: Iterable[Group]) -> str:
    """What became of the cases, library by library, in words."""
    alike: dict[str, list[str]] = {}
    for name, each in answers(groups).items():
        said = ", ".join(f"{count} {what}" for what, count in zip(BECAME, each) if count)
        alike.setdefault(said, []).append(label_of(name))
    return "; ".join(f"{listed(names)} {said}" for said, names in alike.items())


def answers_table(groups: Iterable[Group]) -> str:
    """What became of the cases, a row for each library."""
    cases = list(groups)
    body = [[label_of(name), *map(str, each)] for name, each in answers(cases).items()]
    return table(["library", *BECAME], body, caption=f"Answers to {len(cases)} cells")


def heat_cell(group: Group | None) -> Cell:
    """One case: "=", "▼" and the ratio, or the ratio alone where ours is ahead."""
    if group is None or CHOOSER not in group:
        return Cell("·", "none")
    ours, peer = group[CHOOSER], best_peer(group)
    if peer is None:
        return Cell("only", "none")
    factor = ratio(group, peer)
    state = css = standing(group, peer)
    written = times(factor) if factor else "none"
    said = f"{written} times" if factor else "no right answer, against"
    if state == "ahead" and factor:
        css, text = f"ahead s{1 + sum(factor >= limit for limit in STEPS)}", written
    else:
        text = SIGNS[state] if state == "level" else f"{SIGNS[state]}\N{THIN SPACE}{written}"
        said = f"{state}, {said}"
    label = escape(f"{case_words(ours)}: {said} the speed of {label_of(peer)}")
    return Cell(f'<a href="{address(ours)}" aria-label="{label}">{text}</a>', css)


def heat_map(caption: str, rows: list[dict], label: Callable[[dict], str]) -> str:
    """Lengths, as `label` writes them, by kinds of call, float32 first. A row is a length, so the
    table reads down on a phone; the style sheet turns it on its side where the screen is wide."""
    names = ["op", "direction", "dtype"]
    kinds = sorted(
        {tuple(row[name] for name in names) for row in rows},
        key=lambda kind: (kind[0] != "log_softmax", kind[1] != "forward", DTYPES.index(kind[2])),
    )
    shown = [at for at in (0, 1) if len({kind[at] for kind in kinds}) > 1]
    heads = []
    for kind in kinds:
        name = " ".join(kind[at] for at in shown)
        heads.append(f"<span>{f'<b>{name}</b> ' if name else ''}{kind[2]}</span>")
    groups = {}
    for group in by_case(rows).values():
        row = some(group)
        groups[*(row[name] for name in names), label(row)] = group
    lengths = sorted({label(row): n_cols(row) for row in rows}.items(), key=lambda each: each[1])
    body = [
        [
            Cell(f"<span>{name}</span>", "odd" if length % 2 else ""),
            *(heat_cell(groups.get((*kind, name))) for kind in kinds),
        ]
        for name, length in lengths
    ]
    drawn = table([Cell("length", "corner"), *heads], body, css="heat", caption=caption, roles=True)
    places = f"--kinds: {len(kinds)}; --longest: {max(len(name) for name, _ in lengths)}"
    drawn = drawn.replace("<table ", f'<table style="{places}" ', 1)
    return drawn + LEGEND + answers_table(by_case(rows).values())
