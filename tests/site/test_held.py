"""Formulas, numbers and names of pages: `held` and `held.toml` say what holds each."""

import json

import pytest

from held import NUMBER, faults, lists, miscounted, plain, prose, terms, valued
from mutate_pages import RESULT, all_mutants
from site_build import ROOT, pages


def path_of(page):
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", pages(), ids=path_of)
def test_what_a_page_says_is_held(page):
    loose = faults(path_of(page), page.read_text("utf8"))
    assert not loose, f"no code of the page, no count and no list holds: {loose}"


@pytest.mark.parametrize("path", lists()["counted"])
def test_what_is_counted_is_what_is_said(path):
    """In a docstring, too."""
    assert not miscounted(path, (ROOT / path).read_text("utf8"))


def test_every_listed_term_is_on_its_page():
    for page, listed in lists()["terms"].items():
        assert sorted(listed) == sorted(terms((ROOT / "docs" / page).read_text("utf8"))), page


def test_the_list_is_computed_where_it_can_be_and_says_nothing_that_no_page_says():
    for phrase, what in lists()["computed"].items():
        (number,) = NUMBER.findall(phrase)
        assert round(valued(what), len(number.partition(".")[2])) == float(plain(number)), phrase
    for page, each in lists().items():
        if page.endswith(".md"):
            words = " ".join(prose((ROOT / "docs" / page).read_text("utf8")).split())
            gone = [phrase for phrase in each["phrases"] if phrase not in words]
            assert each["from"] != "?" and not gone, f"{page} does not say {gone}"


PLANTED = [
    ("benchmarks/method.md", "at least 80 % of its roof", "at least 90 % of its roof"),
    ("kernels/primer.md", "four of its 32 bytes", "eight of its 32 bytes"),
    ("one-row.md", "second and the third tile", "second and the fourth tile"),
    ("reference/sources.md", "2^{31} - 1", "2^{32} - 1"),
    ("reference/sources.md", "5MN + 2M", "6MN + 2M"),
    ("kernels/two-loops.md", "costs two more exponentials", "costs three more exponentials"),
    ("reference/glossary.md", "32 banks", "64 banks"),
    ("practice/mistakes.md", "27 programs", "26 programs"),
    ("kernels/attention.md", "516 bytes", "518 bytes"),
    ("kernels/attention.md", "$4 B_k D$ bytes", "$3 B_k D$ bytes"),
]


@pytest.mark.parametrize("page, right, wrong", PLANTED)
def test_a_mistake_that_once_stood_on_a_page_is_noticed(page, right, wrong):
    text = (ROOT / "docs" / page).read_text("utf8")
    assert right in text and faults(f"docs/{page}", text.replace(right, wrong, 1))


@pytest.mark.slow
def test_a_mistake_in_a_display_equation_is_noticed():
    """All of them; those that remain are true as well, as j for i beside a δ."""
    mutants = [each for each in all_mutants() if each.kind == "formulas"]
    left = [each for each in mutants if not faults(each.page, each.text)]
    assert len(left) <= 0.01 * len(mutants) > 5, "\n".join(each.change for each in left)


def test_the_committed_result_keeps_what_is_promised():
    kinds = json.loads(RESULT.read_text("utf8"))["kinds"]
    share = {kind: each["noticed"] / each["drawn"] for kind, each in kinds.items()}
    assert sum(each["drawn"] for each in kinds.values()) >= 300
    assert min(share["formulas"], (share["formulas"] + share["formulas in lines"]) / 2) >= 0.97
    assert share["numbers"] >= 0.9 and share["code"] >= 0.95
