"""The glossary: every term is used, and shows its meaning where it first occurs on a page."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from site_build import html_of, pages
from softmax_site import glossary

ROOT = Path(__file__).resolve().parents[2]
TERMS = glossary.terms(ROOT)
MARKED = [
    page for page in pages() if page.relative_to(ROOT / "docs").as_posix() not in glossary.WITHOUT
]


class _Page(HTMLParser):
    """The prose of a page's article, and the terms that are marked in it, in order."""

    def __init__(self):
        super().__init__()
        self.stack: list[str] = []
        self.prose = ""
        self.marked: list[tuple[str, dict]] = []
        self.ids: set[str] = set()
        self.above = False

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.ids.add(values.get("id") or "")
        self.above = self.above or "eyebrow" in (values.get("class") or "")
        if "term" in (values.get("class") or "").split():
            self.marked.append((values["href"].partition("#")[2], values))
            tag = "term"
        if tag in glossary.PROSE | glossary.NOT_PROSE | {"article", "term"}:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        self.above = self.above and tag != "p"
        if tag == "a" and "term" in self.stack:
            tag = "term"
        if tag in self.stack:
            while self.stack.pop() != tag:
                pass

    def handle_data(self, data):
        inside = set(self.stack)
        prose = glossary.PROSE & inside and not glossary.NOT_PROSE & inside
        if "article" in inside and prose and not self.above:
            self.prose += data
        else:
            self.prose += " | "  # no form of a term spans what is left out


def read(path: Path) -> _Page:
    parser = _Page()
    parser.feed(path.read_text("utf8"))
    return parser


@pytest.fixture(scope="module")
def read_pages(site):
    return {page: read(site / html_of(page)) for page in MARKED}


def test_every_entry_is_understood():
    text = (ROOT / "docs" / glossary.PAGE).read_text("utf8")
    assert len(TERMS) == len(re.findall(r"^:   ", text, re.M)) > 30
    forms = [form.lower() for term in TERMS for form in term.forms]
    assert len(forms) == len(set(forms)), "two entries claim one word"


def test_every_term_is_used(read_pages):
    used = {anchor for page in read_pages.values() for anchor, _ in page.marked}
    assert {term.anchor for term in TERMS} - used == set()


def test_every_first_occurrence_is_marked(read_pages):
    """Once on each page, with its meaning, and whatever comes before it is another word."""
    for page, found in read_pages.items():
        url = html_of(page).removesuffix("index.html")
        anchors = [anchor for anchor, _ in found.marked]
        assert len(anchors) == len(set(anchors)), f"{page.name}: marked twice"
        here = {term.anchor: term for term in glossary.of_page(url, TERMS)}
        assert set(anchors) <= here.keys()
        for anchor, values in found.marked:
            assert values["aria-description"] == here[anchor].meaning
        for anchor, term in here.items():
            words = "|".join(re.escape(form).replace(r"\ ", r"\s+") for form in term.forms)
            if anchor not in anchors:
                # A longer term may contain this one's name: "cache line" and "line".
                rest = found.prose
                for other in here.values():
                    for form in other.forms:
                        if other is not term and re.search(words, form, re.I):
                            rest = re.sub(re.escape(form), "|", rest, flags=re.I)
                missed = re.search(rf"(?<![\w-])(?:{words})(?![\w-])", rest, re.I)
                assert not missed, f"{page.name}: {missed and missed[0]} is not marked"


def test_every_link_to_the_glossary_arrives(site):
    ids = read(site / html_of(glossary.PAGE)).ids
    assert {term.anchor for term in TERMS} <= ids


def test_code_headings_and_links_stay_as_they_are():
    tile = glossary.Term("Tile", "tile", ("tile",), "A block.")
    left = '<h2>tile</h2><p><a href="x">tile</a> <code>tile</code> <math><mi>tile</mi></math></p>'
    assert glossary.mark(left, "math/x/", (tile,)) == left
    assert glossary.mark("<p>reptiles, tile-wise</p>", "math/x/", (tile,)).count("term") == 0


def test_a_term_is_not_marked_where_it_means_something_else():
    mask = glossary.Term("Mask", "mask", ("mask",), "Of a load.", where=("kernels",))
    assert "term" not in glossary.mark("<p>mask</p>", "math/attention/", (mask,))
    assert "term" in glossary.mark("<p>mask</p>", "kernels/naive/", (mask,))
