"""Terms that show their meaning where they first occur on a page.

The glossary page is the list: `Term { #anchor data-forms="term|terms" data-where="kernels" }`, and
`:   meaning` on the next line. The first occurrence of each term in the prose of any other page (of
these sections, if it means something else in others) becomes a link to its entry, with the meaning
as its description, which the style sheet shows on hover and focus.
"""

from __future__ import annotations

import re
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import NamedTuple

PAGE = "reference/glossary.md"
URL = "reference/glossary/"
_ENTRY = re.compile(
    r'^(?P<name>[^\n{]+?) \{ #(?P<anchor>[\w-]+)(?: data-forms="(?P<forms>[^"]+)")?'
    r'(?: data-where="(?P<where>[^"]+)")? \}\n'
    r":   (?P<meaning>[^\n]+)$",
    re.M,
)
PROSE = {"p", "li", "dd", "td"}
"""Elements whose text is prose."""
NOT_PROSE = {
    *("a", "abbr", "button", "code", "figure", "h1", "h2", "h3", "h4", "h5", "h6", "math", "nav"),
    *("pre", "script", "style", "summary", "svg", "th", "title"),
}
"""Elements in which no term is marked."""
WITHOUT = ("reference/glossary.md", "reference/api.md", "reference/internals.md")
"""Pages on which no term is marked."""


class Term(NamedTuple):
    """One entry of the glossary."""

    name: str
    anchor: str
    forms: tuple[str, ...]
    """How it is written in prose, capitals aside."""
    meaning: str
    """Plain text."""
    where: tuple[str, ...] = ()
    """Sections of the site in which it means this; none for all."""
    home: str = ""
    """The page that explains it, on which it is not marked."""


def _plain(markdown: str) -> str:
    """Without links and code marks, and without the link to a page at its end.

    >>> _plain("A `tile` of [rows](rows.md). [Its page](x.md)")
    'A tile of rows.'
    """
    text = re.sub(r"(?<=\.) \[[^\]]*\]\([^)]*\)$", "", markdown)
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("`", "")


@lru_cache(maxsize=4)
def _read(path: Path, stamp: int) -> tuple[Term, ...]:
    found = []
    for match in _ENTRY.finditer(path.read_text("utf8")):
        forms = tuple((match["forms"] or match["name"]).split("|"))
        where = tuple(match["where"].split("|")) if match["where"] else ()
        home = re.search(r"\. \[[^\]]*\]\(\.\./([\w/-]+)\.md[^)]*\)$", match["meaning"])
        meaning = _plain(match["meaning"])
        found.append(
            Term(match["name"], match["anchor"], forms, meaning, where, home[1] if home else "")
        )
    return tuple(found)


def terms(root: Path | str = ".") -> tuple[Term, ...]:
    """The entries of the glossary of the repository below `root`."""
    path = Path(root) / "docs" / PAGE
    return _read(path, path.stat().st_mtime_ns) if path.is_file() else ()


@lru_cache(maxsize=4)
def _pattern(found: tuple[Term, ...]) -> tuple[re.Pattern, dict[str, Term]]:
    by_form = {form.lower(): term for term in found for form in term.forms}
    longest_first = sorted(by_form, key=len, reverse=True)
    joined = "|".join(re.escape(form).replace(r"\ ", r"\s+") for form in longest_first)
    # Not within a longer word, hyphened ones included.
    return re.compile(rf"(?<![\w-])(?:{joined})(?![\w-])", re.I), by_form


_ATTRIBUTES = r"""(?:[^<>"']|"[^"]*"|'[^']*')*"""
_ELEMENTS = re.compile(
    r"<!--.*?-->|<(?P<whole>script|style)\b.*?</(?P=whole)\s*>"
    rf"|<(?P<end>/?)(?P<tag>{'|'.join(sorted(PROSE | NOT_PROSE))})(?![\w-]){_ATTRIBUTES}>",
    re.S,
)
"""What decides whether text is prose: most of a page is skipped from one to the next."""
_TAGS = re.compile(rf"(<{_ATTRIBUTES}>)")


class _Marker:
    """Copies HTML, and marks the first occurrence of each term in prose."""

    def __init__(self, found: tuple[Term, ...], glossary: str):
        self.pattern, self.by_form = _pattern(found)
        self.glossary = glossary
        self.seen: set[str] = set()

    def copy(self, html: str) -> str:
        out: list[str] = []
        stack: list[str] = []
        above = False  # in the line above a title, which is a way back, and no prose
        at = 0
        for element in _ELEMENTS.finditer(html):
            prose = not above and not NOT_PROSE.intersection(stack) and PROSE.intersection(stack)
            text = html[at : element.start()]
            out += [self.text(text) if prose else text, element[0]]
            at = element.end()
            tag = element["tag"]
            if tag and element["end"]:
                above = above and tag != "p"
                if tag in stack:
                    while stack.pop() != tag:
                        pass
            elif tag and not element[0].endswith("/>"):
                above = above or 'class="eyebrow"' in element[0]
                stack.append(tag)
        return "".join([*out, html[at:]])

    def text(self, text: str) -> str:
        """Prose with other tags in it."""
        parts = _TAGS.split(text)
        parts[::2] = [self.pattern.sub(self.mark, part) for part in parts[::2]]
        return "".join(parts)

    def mark(self, match: re.Match) -> str:
        term = self.by_form[re.sub(r"\s+", " ", match[0].lower())]
        if term.anchor in self.seen:
            return match[0]
        self.seen.add(term.anchor)
        return (
            f'<a class="term" href="{self.glossary}#{term.anchor}" '
            f'aria-description="{escape(term.meaning)}">{match[0]}</a>'
        )


def of_page(url: str, found: tuple[Term, ...]) -> tuple[Term, ...]:
    """The terms that mean what they say on the page at `url`, and are not explained there."""
    section = url.partition("/")[0]
    here = [each for each in found if not each.where or section in each.where]
    return tuple(each for each in here if each.home != url.strip("/"))


def mark(html: str, url: str, found: tuple[Term, ...]) -> str:
    """The HTML of the page at `url` with the first occurrence of each term marked.

    >>> tile = Term("Tile", "tile", ("tile", "tiles"), "A block.")
    >>> print(mark("<h2>A tile</h2><p>Two tiles, one tile.</p>", "kernels/naive/", (tile,)))
    <h2>A tile</h2><p>Two <a class="term" href="../../reference/glossary/#tile" \
aria-description="A block.">tiles</a>, one tile.</p>
    """
    here = of_page(url, found)
    if not here:
        return html
    return _Marker(here, "../" * url.count("/") + URL).copy(html)
