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
from html.parser import HTMLParser
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


class _Marker(HTMLParser):
    """Copies HTML, and marks the first occurrence of each term in prose."""

    def __init__(self, found: tuple[Term, ...], glossary: str):
        super().__init__(convert_charrefs=False)
        self.pattern, self.by_form = _pattern(found)
        self.glossary = glossary
        self.stack: list[str] = []
        self.seen: set[str] = set()
        self.out: list[str] = []
        self.above = False

    def handle_starttag(self, tag, attrs):
        self.out.append(self.get_starttag_text() or "")
        if 'class="eyebrow"' in self.out[-1]:
            self.above = True  # the line above a title is a way back, and no prose
        if tag in PROSE | NOT_PROSE:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.out.append(self.get_starttag_text() or "")

    def handle_endtag(self, tag):
        self.out.append(f"</{tag}>")
        self.above = self.above and tag != "p"
        if tag in self.stack:
            while self.stack.pop() != tag:
                pass

    def handle_data(self, data):
        inside = set(self.stack)
        prose = PROSE & inside and not NOT_PROSE & inside and not self.above
        self.out.append(self.pattern.sub(self.mark, data) if prose else data)

    def handle_entityref(self, name):
        self.out.append(f"&{name};")

    def handle_charref(self, name):
        self.out.append(f"&#{name};")

    def handle_comment(self, data):
        self.out.append(f"<!--{data}-->")

    def handle_decl(self, decl):
        self.out.append(f"<!{decl}>")

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
    marker = _Marker(here, "../" * url.count("/") + URL)
    marker.feed(html)
    marker.close()
    return "".join(marker.out)
