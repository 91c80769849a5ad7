"""What a reader can look up: abbreviations, what holds a claim, tests that are named, sources."""

import re

import pytest

from held import prose
from site_build import ROOT
from softmax_site.equations import navigated

NAMED = re.compile(r"`(tests/[\w/]*\w\.py)\b")
"""A file of tests, as a page names it."""

KNOWN = {*"AMD API CPU CPUs GB GPT GPU GPUs JSON KB LM MB NVIDIA SOFTMAX TB TRL XGLM".split()}
"""Abbreviations, units and names that need no entry in the glossary."""

GLOSSARY = (ROOT / "docs/reference/glossary.md").read_text("utf8")
PAGES = navigated(ROOT)


@pytest.mark.parametrize("page", [page for page in PAGES if page != "reference/sources.md"])
def test_an_abbreviation_is_explained_in_the_glossary(page):
    """Those of the sources are parts of titles."""
    text = prose((ROOT / "docs" / page).read_text("utf8"))
    said = re.sub(r"^ *[|#].*$", "", text, flags=re.M)
    short = set(re.findall(r"\b[A-Z]{2,}s?\b", said)) - KNOWN
    assert not [each for each in short if each not in GLOSSARY]


def test_a_description_that_claims_every_or_never_is_listed_with_what_holds_it():
    text = (ROOT / "docs/reference/what-checks-what.md").read_text("utf8")
    listed = dict(re.findall(r"^\| `([\w/-]+\.md)` \| (.*) \|$", text, re.M))
    claims = re.compile(r"^description: .*\b(?:every|never|nothing|same)\b", re.M | re.I)
    claiming = {page for page in PAGES if claims.search((ROOT / "docs" / page).read_text("utf8"))}
    assert claiming <= set(listed), sorted(claiming - set(listed))


def test_every_test_that_a_page_names_exists():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    named = {each for page in pages for each in NAMED.findall(page.read_text("utf8"))}
    assert named and not [each for each in named if not (ROOT / each).exists()]


@pytest.mark.parametrize("letter", "ABCD")
def test_a_reader_can_look_up_what_is_corrected(letter):
    """Each text is linked where it is taken up, outside this site."""
    page = (ROOT / "docs/reference/sources.md").read_text("utf8")
    section = page.split(f"\n## {letter}. ")[1].split("\n## ")[0].split("??? example")[0]
    assert re.search(r"\]\(https://[^)]+\)", section)
