"""The glossary: every term is used, and shows its meaning where it first occurs on a page."""

import re
from functools import partial
from html import unescape

import pytest

from site_build import ROOT, html_of, pages
from softmax_site import glossary

TERMS = glossary.terms(ROOT)
ABBR = re.compile(r'<abbr tabindex="0" title="([^"]*)">(.*?)</abbr>', re.S)
TILE = glossary.Term("tile", ("tile", "tiles"), "A block.", ("kernels",), "kernels/home.md")
MARKED = '<abbr title="A block.">{}</abbr>'


@pytest.fixture(scope="module")
def marked(site) -> dict[str, list[tuple[str, str]]]:
    """The meanings and the words of what each page marks."""
    return {
        page.relative_to(ROOT / "docs").as_posix(): [
            (unescape(meaning), word)
            for meaning, word in ABBR.findall((site / html_of(page)).read_text("utf8"))
            if unescape(meaning) in TERMS
        ]
        for page in pages()
    }


def test_every_entry_is_understood(site):
    text = (ROOT / "docs" / glossary.PAGE).read_text("utf8")
    assert len(TERMS) == len(re.findall(r"^:   ", text, re.M)) > 30
    forms = [form.lower() for term in TERMS.values() for form in term.forms]
    assert len(forms) == len(set(forms)), "two entries claim one word"
    homes = {term.home for term in TERMS.values() if term.home}
    assert homes and all((ROOT / "docs" / home).is_file() for home in homes)
    page = (site / html_of(glossary.PAGE)).read_text("utf8")
    assert all(f'id="{term.anchor}"' in page for term in TERMS.values())


def test_every_term_is_used_and_marked_once_on_a_page(marked):
    used = {meaning for found in marked.values() for meaning, _ in found}
    assert not {term.anchor for text, term in TERMS.items() if text not in used}
    for page, found in marked.items():
        assert len({meaning for meaning, _ in found}) == len(found), f"{page}: marked twice"
        for meaning, word in found:
            assert TERMS[meaning].means_this_on(page), page
            assert word.lower() in [form.lower() for form in TERMS[meaning].forms]


@pytest.mark.parametrize("html, left", [
    ("<h2>A {tile}</h2><p>Two {tiles}, one {tile}.</p>", "<p>Two {tiles}, one tile.</p>"),
    ('<p><a href="x">{tile}</a> <code>tile</code></p>', ""),
    ("<p>{tile}-wise, sub-{tile}</p>", ""),
])  # fmt: skip
def test_a_term_is_marked_in_prose(html, left):
    mark = partial(re.sub, r"\{(\w+)\}", lambda match: MARKED.format(match[1]))
    shown = partial(glossary.first_only, mark(html), found={TILE.meaning: TILE})
    assert mark(left).replace("<abbr", '<abbr tabindex="0"') in shown("kernels/x.md")
    assert shown("kernels/x.md").count("<abbr") == bool(left)
    for page in ("math/x.md", "kernels/home.md", glossary.PAGE):
        assert "<abbr" not in shown(page)
