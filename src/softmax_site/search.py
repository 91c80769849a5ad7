"""What the search reads of a page: its prose, and none of what would be noise in a result.

Code, drawings, tables of numbers, displayed equations and whatever carries `data-search-exclude`
are left out; code in a sentence is read as its text, and a short formula as its letters.
(Material's own reading of `data-search-exclude` ends at the first closing tag of the same kind.)
"""

from __future__ import annotations

import html
import re

_FOUND = re.compile(
    r"<(?:(?P<kind>math|table|pre|code|svg|script|style)\b"
    r'|(?P<tag>\w+)(?=[^<>]*(?:\sdata-search-exclude|\sclass="equation")))[^<>]*>'
)
_TAG = re.compile(r"<[^<>]*>")


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


def _of_words(table: str) -> bool:
    """Whether more than half of the cells of a table have a word in them."""
    cells = [_TAG.sub("", cell) for cell in re.findall(r"<td\b.*?</td>", table, re.S)]
    return sum(bool(re.search("[a-z]{3}", cell)) for cell in cells) > len(cells) / 2


def _said(formula: str) -> str:
    """A formula as one reads it in a line of text, if it fits in one; otherwise dots."""
    text = re.sub(r"[\u2061-\u2064\s]", "", html.unescape(_TAG.sub("", formula)))
    high = len(text) > 12 or re.search("<m(?:frac|sqrt|table|under|over)", formula)
    return "..." if high else html.escape(text, quote=False)


def prose(page: str) -> str:
    """The HTML of a page as the search is to read it."""
    out, at = [], 0
    while match := _FOUND.search(page, at):
        end = _end(page, match.end(), match["kind"] or match["tag"])
        element, kind = page[match.start() : end], match["kind"]
        out.append(page[at : match.start()])
        at = end
        if "data-search-exclude" in match[0]:
            continue
        if kind == "table" and _of_words(element):
            at = match.end()
        elif kind in ("math", "code"):
            out.append(_said(element) if kind == "math" else _TAG.sub("", element))
    # What stands side by side in a table would run together in a line of text.
    text = re.sub(r"</t[dh]>(?=\s*</tr>)", ".</td>", "".join([*out, page[at:]]))
    return re.sub(r"(?<![.>])</t[dh]>(?=\s*<t[dh])", ",</td>", text)
