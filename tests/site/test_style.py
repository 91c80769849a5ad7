"""The mechanical part of the guide to style (docs/reference/contributing.md), on every page of the
navigation."""

import re

import pytest

from site_build import ROOT
from softmax_site.equations import navigated

FORBIDDEN = re.compile(
    r"\bThis page (?:shows|is|has|explains|describes|lists|derives|says)\b|\bof which no \w+ is\b"
    r"|\bnobody wants\b|\bIt is worth noting\b|\bnot just \w+ but\b|\bregisters? of one bit\b"
    r"|\bpushed words?\b|\bas good a check as any\b|\bstrands? of numbers\b|[\u2018-\u201d]"
)
NAMED = re.compile(r"`(tests/[\w/]*\w\.py)\b")
"""A file of tests, as a page names it."""

KNOWN = {*"AMD API CPU CPUs GB GPT GPU GPUs JSON KB LM MB NVIDIA SOFTMAX TB TRL XGLM".split()}
"""Abbreviations, units and names that need no entry in the glossary."""

GLOSSARY = (ROOT / "docs/reference/glossary.md").read_text("utf8")
PAGES = navigated(ROOT)


def prose(text: str) -> list[str]:
    """The paragraphs and items of a page, without front matter, code, tables and directives."""
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.S)
    text = re.sub(r"^( *)(`{3,}).*?^ *\2`*$", "", text, flags=re.S | re.M)
    text = re.sub(r"^///.*?^///$|\$\$.*?\$\$", "", text, flags=re.S | re.M)
    text = re.sub(r"\$[^$\n]+\$|`[^`\n]+`|\{\{.*?\}\}|\[\[.*?\]\]", "x", text)
    text = re.sub(r"\[([^\]]*)\](?:\([^)\s]*\)|\[[^\]]*\])|<[^>]+>", r"\1", text)
    text = re.sub(r"^ *(?:\||--8<--|#|!!!|\?\?\?|===).*$", "", text, flags=re.M)
    return re.split(r"\n\s*\n|\n(?= *(?:[-*]|\d+\.|:) )", text)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_keeps_to_the_style(page):
    wrong = []
    for paragraph in prose((ROOT / "docs" / page).read_text("utf8")):
        said = " ".join(paragraph.split())
        wrong += [match[0] for match in FORBIDDEN.finditer(said)]
        if page != "reference/sources.md":  # its abbreviations are parts of titles
            short = re.findall(r"\b[A-Z]{2,}s?\b", said)
            wrong += [each for each in short if each not in KNOWN and each not in GLOSSARY]
    assert not wrong, "\n".join(wrong)


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
