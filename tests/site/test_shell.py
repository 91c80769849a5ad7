"""What stands around the pages: what they say of themselves, what they load, what can be copied,
where a lost reader ends, and the front page of the repository."""

import re
from pathlib import Path

import pytest

from site_build import ROOT, site_config
from softmax_bench import traffic
from softmax_site.benchmarks import data as measured
from softmax_site.benchmarks import quoted
from softmax_site.figures import front, home, share, trips


def read(site: Path, page: str) -> str:
    return (site / page).read_text("utf8")


def test_a_page_says_what_it_is(site):
    """The page's own heading in the tab, its description, and its place in the navigation; a page
    of the tutorial that had another line there would leave a hole in the numbers."""
    page = read(site, "math/vjp/index.html")
    heading = re.search(r"<h1[^>]*>(.*?)(?:<a |</h1>)", page)[1]
    assert f"<title>{heading} · triton_softmax</title>" in page
    assert f'<meta property="og:title" content="{heading}">' in page
    form = r'<p class="eyebrow">Tutorial · (\d+ of \d+)</p>\s*<h1'
    every = [page for at in ("math", "kernels") for page in (site / at).glob("*/index.html")]
    numbered = [each for page in every for each in re.findall(form, page.read_text("utf8"))]
    assert {*numbered} == {f"{at + 1} of {len(numbered)}" for at in range(len(numbered))}
    assert re.search(form, page) and '<p class="eyebrow">' not in read(site, "practice/index.html")


def test_without_an_address_nothing_speaks_of_one(site):
    """No canonical link, no map, no picture that cannot be found, and no link to nowhere."""
    for page in site.rglob("*.html"):
        text = page.read_text("utf8")
        assert 'rel="canonical"' not in text and "og:image" not in text, page
        assert not re.search(r'\s(?:href|content)="(?:|None)"', text), page
    assert not (site / "sitemap.xml").exists()


@pytest.fixture(scope="module")
def measurements() -> dict:
    return measured.measurements(ROOT)


def test_the_drawings_of_the_readme_and_its_words_are_up_to_date():
    made = {path: front.drawings(ROOT)[path] for path in front.DRAWINGS.values()}
    assert all("var(" not in drawn for drawn in made.values())
    for path, text in (made | {front.README: front.readme(ROOT)}).items():
        assert (ROOT / path).read_text("utf8") == text, f"{path}: run `make regenerate`"
        assert path == front.README or len(text.encode()) <= 16_000


def test_each_section_has_a_picture_for_shared_links_of_these_data():
    sections = [name for each in site_config().nav for name in each if isinstance(each[name], list)]
    assert ["", *sections] == [*front.CARDS]
    paths = {f"docs/{front.card(section)}" for section in front.CARDS}
    assert len(paths) == len(front.CARDS)
    for path in paths:
        png = (ROOT / path).read_bytes()
        assert png.endswith(front.digest(front.social_pages(ROOT)[path])), "run `make regenerate`"
        assert (int.from_bytes(png[16:20]), int.from_bytes(png[20:24])) == (1200, 630)
        assert len(png) <= 120_000
    assert f"# {front.CARDS['']}\n" in (ROOT / "docs/index.md").read_text("utf8")


def test_a_bar_of_the_first_picture_is_a_kernels_time_in_its_trips():
    """As many blocks as the kernel makes passes, together as long as its share of the time."""
    every = trips.rows(ROOT)
    drawn_in_trips = ["naive", "three_loops", "two_loops", "split_rows", "copy"]
    assert [row.name for row in every if row.trips] == drawn_in_trips
    drawn = trips.svg(every, 720, "")
    blocks = re.findall(r'<rect x="[\d.]+" y="([\d.]+)" width="([\d.]+)"', drawn)
    bars = [[float(width) + 2 for y, width in blocks if float(y) == float(blocks[0][0]) + 54 * at]
            for at in range(len(every))]  # fmt: skip
    for row, own in zip(every, bars):
        assert len(own) == max(1, len(row.trips))
        assert sum(own) / sum(bars[0]) == pytest.approx(row.us / every[0].us, abs=2e-3)
        if row.name in traffic.FORWARD:
            counted = traffic.FORWARD[row.name]
            assert row.trips.count("read") == counted.reads_mn
            assert row.trips.count("write") == counted.writes_mn
    slower = [row._replace(us=2 * row.us) if row.name == "split_rows" else row for row in every]
    assert trips.svg(slower, 720, "") != drawn and trips.title(slower) != trips.title(every)


def test_the_claim_counts_losses_like_wins(measurements):
    """Ahead, level and behind add up, and each is said."""
    grid, said = quoted.Quoted(ROOT, measurements)["grid"], front.said(ROOT, "claim")
    assert grid.cases == grid.ahead + grid.level + grid.behind > 0
    for count in (grid.ahead, grid.level, grid.behind):
        assert re.search(rf"\b{count}\b", said)


def test_a_phone_sees_every_length_too(measurements):
    """One drawing for each width, with the same rows."""
    every = share.rows(measurements)
    wide, narrow = home.figure(measurements).split("<svg")[1:]
    for drawn in (wide, narrow):
        assert all(f">{row.length:,}<" in drawn for row in every)
        assert all(share.verdict(row.factor, row.state)[0] in drawn for row in every)
