"""Numbers that are typed on pages: `held` and `held.toml` say what holds each."""

import pytest

from held import NUMBER, lists, miscounted, plain, prose, uncorrected, unheld, valued
from site_build import ROOT, pages


def name(page):
    return page.relative_to(ROOT / "docs").as_posix()


@pytest.mark.parametrize("page", pages(), ids=name)
def test_every_number_is_held(page):
    loose = unheld(name(page), page.read_text("utf8"))
    assert not loose, f"no code of the page and no list holds: {loose}"


@pytest.mark.parametrize("path", lists()["counted"])
def test_what_is_counted_is_what_is_said(path):
    assert not miscounted(path, (ROOT / path).read_text("utf8"))


def test_the_list_is_computed_where_it_can_be_and_says_nothing_that_no_page_says():
    for phrase, what in lists()["computed"].items():
        (number,) = NUMBER.findall(phrase)
        assert round(valued(what), len(number.partition(".")[2])) == float(plain(number)), phrase
    for page, each in lists().items():
        if page.endswith(".md"):
            words = " ".join(prose((ROOT / "docs" / page).read_text("utf8")).split())
            gone = [phrase for phrase in each["phrases"] if phrase not in words]
            assert each["from"] != "?" and not gone, f"{page} does not say {gone}"


def test_the_figures_of_corrections_are_those_of_their_tests():
    assert not uncorrected((ROOT / "docs/reference/sources.md").read_text("utf8"))
