"""What the search reads of a page: its prose, and none of what would be noise in a result.

Code, drawings, tables of numbers, displayed equations and whatever carries `data-search-exclude`
are put aside before the search reads a page, and put back afterwards; code in a sentence is read
as its text, and a formula as a few characters of text. (Material's own reading of
`data-search-exclude` ends at the first closing tag of the same kind.)
"""

from __future__ import annotations

import html
import re

_FOUND = re.compile(
    r"<(?:(?P<kind>math|table|pre|code|svg|script|style)\b"
    r'|(?P<tag>\w+)(?=[^<>]*(?:\sdata-search-exclude|\sclass="equation")))[^<>]*>'
)
_PLACE = re.compile(r"<hidden-from-search>.*?</hidden-from-search>", re.S)
_TAG = re.compile(r"<[^<>]*>")
_INDEX = re.compile(r"<(msu[bp])>(<(\w+)[^<>]*>[^<>]*</\3>)(<(\w+)[^<>]*>[^<>]*</\5>)</\1>")
_HIGH = re.compile(r"<(?:mfrac|msqrt|mroot|mtable|munder|mover|msub|msup)")


def _end(page: str, start: int, tag: str) -> int:
    """Where the element ends whose first tag ends at `start`.

    >>> _end("<b>x<b>y</b></b>z", 3, "b")
    16
    """
    depth = 1
    for match in re.compile(rf"<(/?){tag}\b[^<>]*>").finditer(page, start):
        depth += -1 if match[1] else 1
        if depth == 0:
            return match.end()
    raise ValueError(f"<{tag}> is never closed: {page[start : start + 80]!r}")


def of_numbers(table: str) -> bool:
    """Whether at most half of the cells of a table have a word in them.

    >>> of_numbers("<td>1.0</td><td>12</td><td>float16</td>"), of_numbers("<td>the maximum</td>")
    (True, False)
    """
    cells = [_TAG.sub("", cell) for cell in re.findall(r"<td\b[^>]*>(.*?)</td>", table, re.S)]
    return sum(bool(re.search("[a-z]{3}", cell)) for cell in cells) <= len(cells) / 2


def said(mathml: str) -> str:
    """A formula as one reads it in a line of text, if it fits in one; otherwise an ellipsis.

    >>> said("<math><msub><mi>x</mi><mi>i</mi></msub></math>"), said("<math><mfrac></mfrac></math>")
    ('x_i', '…')
    """
    flat = _INDEX.sub(lambda match: f"{match[2]}{'_^'[match[1] == 'msup']}{match[4]}", mathml)
    text = re.sub(r"[\u2061-\u2064\s]", "", html.unescape(_TAG.sub("", flat)))
    return "…" if _HIGH.search(flat) or len(text) > 24 else html.escape(text, quote=False)


def hide(page: str) -> tuple[str, list[str]]:
    """The page as the search is to read it, and what was put aside, in order."""
    out, aside, at = [], [], 0
    while match := _FOUND.search(page, at):
        end = _end(page, match.end(), match["kind"] or match["tag"])
        element = page[match.start() : end]
        if (
            match["kind"] == "table"
            and "data-search-exclude" not in match[0]
            and not of_numbers(element)
        ):
            out.append(page[at : match.end()])
            at = match.end()
            continue
        read = {"math": said, "code": lambda code: _TAG.sub("", code)}.get(match["kind"])
        text = read(element) if read and "data-search-exclude" not in match[0] else ""
        out += [page[at : match.start()], f"<hidden-from-search>{text}</hidden-from-search>"]
        aside.append(element)
        at = end
    return "".join([*out, page[at:]]), aside


def show(page: str, aside: list[str]) -> str:
    """The page as it was before `hide`."""
    parts = iter(aside)
    return _PLACE.sub(lambda _: next(parts), page)
