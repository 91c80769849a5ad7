"""Terms that show their meaning where they first occur on a page.

The glossary page is the list: `Term { #anchor data-forms="term|terms" data-where="kernels" }`, and
`:   meaning` on the next line. Python-Markdown's `abbr` marks every occurrence of a form; what is
left of them here is the first in the prose of each page (of these sections, if the term means
something else in others), but none on the page that explains it.
"""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import NamedTuple

PAGE = "reference/glossary.md"
WITHOUT = (PAGE, "reference/api.md", "reference/internals.md")
"""Pages on which no term is marked."""
NOT_PROSE = "a|button|figcaption|h1|h2|h3|h4|h5|h6|summary|th"
"""Elements in which no term is marked."""

_ENTRY = re.compile(
    r'^(?P<name>[^\n{]+?) \{ #(?P<anchor>[\w-]+)(?: data-forms="(?P<forms>[^"]+)")?'
    r'(?: data-where="(?P<where>[^"]+)")? \}\n:   (?P<meaning>[^\n]+)$',
    re.M,
)
_HOME = re.compile(r"(?<=\.) \[[^\]]*\]\(\.\./(?P<page>[\w/-]+\.md)[^)]*\)$")
_ABBR = r'<abbr title="(?P<meaning>[^"]*)">(?P<form>.*?)</abbr>'
_MARKED = re.compile(
    rf"<(?P<tag>{NOT_PROSE})\b.*?</(?P=tag)>|(?P<part>(?<=[\w-]))?{_ABBR}(?P<more>(?=[\w-]))?", re.S
)


class Term(NamedTuple):
    """One entry of the glossary."""

    anchor: str
    forms: tuple[str, ...]
    """How it is written in prose, but for a capital at the beginning of a sentence."""
    meaning: str
    """Plain text."""
    where: tuple[str, ...]
    """Sections of the site in which it means this; none for all."""
    home: str
    """The page that explains it."""

    def means_this_on(self, page: str) -> bool:
        here = not self.where or page.partition("/")[0] in self.where
        return here and page not in (self.home, *WITHOUT)


def terms(root: Path | str) -> dict[str, Term]:
    """The entries of the glossary of the repository below `root`, by their meanings."""
    path = Path(root) / "docs" / PAGE
    found = {}
    for match in _ENTRY.finditer(path.read_text("utf8") if path.is_file() else ""):
        forms = (match["forms"] or match["name"]).split("|")
        where = tuple(match["where"].split("|")) if match["where"] else ()
        home = _HOME.search(match["meaning"])
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)|`", r"\1", _HOME.sub("", match["meaning"]))
        found[text] = Term(match["anchor"], (*forms,), text, where, home["page"] if home else "")
    return found


def abbreviations(found: dict[str, Term]) -> dict[str, str]:
    """The meaning of each form, as `abbr` takes it."""
    return {
        written: term.meaning
        for term in found.values()
        for form in term.forms
        for written in {form[0].lower() + form[1:], form[0].upper() + form[1:]}
    }


def first_only(html: str, page: str, found: dict[str, Term]) -> str:
    """The HTML of a page with the first occurrence of each term marked, and no other."""
    left = {text for text, term in found.items() if term.means_this_on(page)}

    def choose(match: re.Match) -> str:
        if match["tag"]:
            return re.sub(_ABBR, lambda inside: inside["form"], match[0], flags=re.S)
        meaning = unescape(match["meaning"])
        if meaning not in found:
            return match[0]
        if meaning not in left or match["part"] is not None or match["more"] is not None:
            return match["form"]
        left.discard(meaning)
        return match[0].replace("<abbr ", '<abbr tabindex="0" ', 1)  # for the keyboard

    return _MARKED.sub(choose, html)
