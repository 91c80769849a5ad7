"""What a reader meets: pages of bearable weight, nothing cut off, a search that finds, ends that
lead on.
"""

import json
import posixpath
import re
import tomllib
from urllib.parse import unquote, urljoin, urlsplit

import pytest

from browser import CLOSE_FOLDS, DESKTOP, OPEN_FOLDS, PHONE, url_of
from site_build import ROOT, Page, site_config
from site_build import read as read_page
from softmax_site.equations import navigated

HEAVIEST = 760_000
"""Bytes that a browser fetches to show a page, uncompressed: its HTML, style sheets, scripts,
pictures and fonts, without its charts. The search waits until it is used."""
FONTS = 190_000
"""Bytes of all fonts that a page may ask for; a browser fetches each once for the whole site."""
MOST_NODES = 8_000
"""Elements of a page, without its charts."""
LONGEST_INDEX = 345_000
MOST_SHEETS = 18

FOUND = tomllib.loads((ROOT / "tests/site/searches.toml").read_text("utf8"))
SEARCHES = [(words, page) for page, typed in FOUND.items() for words in typed]

CHARTS = ".plot *"
LOADED = "performance.getEntriesByType('resource').map((each) => each.name)"
NODES = f"""[...document.querySelectorAll("*")].length
    - document.querySelectorAll("{CHARTS}").length"""
CUT = """(what) => [...document.querySelectorAll(`.md-content :is(${what})`)].filter((each) => {
    for (let box = each; box && !box.matches(".md-content"); box = box.parentElement)
        if (box.scrollWidth > box.clientWidth + 1 && box.clientWidth
            && getComputedStyle(box).overflowX !== "visible") return true;
    return false;
}).map((each) => `${each.scrollWidth} px: ${each.innerText.trim().slice(0, 60)}`)"""


@pytest.fixture(scope="module")
def read(site) -> dict[str, Page]:
    """Each page of the site, by its address."""
    pages = {path.relative_to(site).as_posix(): path for path in site.rglob("*.html")}
    return {name.removesuffix("index.html"): read_page(path) for name, path in pages.items()}


def test_every_link_leads_somewhere(site, read):
    files = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    wrong = []
    for page, each in read.items():
        for href in each.links if page != "404.html" else ():
            url = urlsplit(urljoin(f"http://site/below/{page}", href))
            if url.netloc != "site" or url.scheme not in ("http", "https"):
                continue
            path, anchor = unquote(url.path), unquote(url.fragment)
            path = path.removeprefix("/below/").removesuffix("index.html")
            if path not in read and path not in files:
                wrong.append(f"{page}: {href}")
            elif anchor and path in read and anchor not in read[path].anchors | {"__skip"}:
                wrong.append(f"{page}: {href} has no such anchor")
    assert not wrong, "\n".join(wrong[:20])


def test_an_old_address_leads_to_the_page_of_today(site):
    for old, new in site_config().extra["moved"].items():
        text = (site / old / "index.html").read_text("utf8")
        up = "../" * (old.count("/") + 1)
        assert f'href="{up}{new}/"' in text and (site / new / "index.html").is_file()


def test_every_page_has_a_description_of_its_own(read):
    """A sentence of a length that a search engine shows. Front matter that is no YAML leaves a page
    with the description of the site."""
    seen = {site_config().site_description: "the site"}
    moved = [f"{old}/" for old in site_config().extra["moved"]]
    for page, each in sorted(read.items()):
        if page in ("404.html", *moved) or page.startswith("source/"):
            continue
        text = each.description
        short = not 40 <= len(text) <= 220
        assert not short, f"{page}: {len(text)} characters: {text!r}"
        assert text not in seen, f"{page}: the description of {seen[text]}"
        seen[text] = page


def lessons() -> list[tuple[str, str]]:
    """The pages of the tutorial, each with the one after it in the navigation."""
    navigation = (ROOT / "mkdocs.yml").read_text("utf8").partition("\n  - Tutorial:\n")[2]
    tutorial = re.findall(r"(\S+\.md)$", navigation.partition("\n  - ")[0], re.M)
    pages = navigated(ROOT)
    return [(page, pages[pages.index(page) + 1]) for page in tutorial]


@pytest.mark.parametrize(("page", "after"), lessons(), ids=[page for page, _ in lessons()])
def test_a_lesson_ends_with_questions_and_leads_on(page, after):
    """Three questions at least, of which one may lack a computed answer; then the next page."""
    end = (ROOT / "docs" / page).read_text("utf8").rpartition("\n## Questions\n")[2]
    questions = re.split(r"^\?\?\?\+? question ", end, flags=re.M)[1:]
    answers = [each for each in questions if re.search(r"```\{?\.?py|\[\[rendered|\{\{ ", each)]
    assert len(answers) >= max(3, len(questions) - 1)
    leads = re.search(r"\n\[Next: .+\]\((.+?)\)\{ \.next \}\s*\Z", end)
    assert leads and posixpath.normpath(f"{page}/../{leads[1]}") == after


def test_fonts_and_index_are_light_and_the_index_has_no_code(site):
    index = (site / "search/search_index.json").read_text("utf8")
    assert len(index.encode()) <= LONGEST_INDEX
    fonts = [path.stat().st_size for path in site.rglob("*.woff2")]
    assert fonts and sum(fonts) <= FONTS
    entries = json.loads(index)["docs"]
    assert len(entries) > 100
    for entry in entries:
        assert "<pre>" not in entry["text"] and ">>>" not in entry["text"], entry["location"]
        assert not entry["location"].startswith(("reference/internals", "source/"))


@pytest.fixture(scope="module")
def search(open_tab):
    """The search of a page that has nothing to do with what is looked for."""
    tab = open_tab().open("reference/contributing")
    yield tab.view
    tab.close()
    tab.check()


@pytest.mark.browser
@pytest.mark.parametrize(("words", "page_of"), SEARCHES)
def test_the_search_finds_the_page(search, words, page_of):
    said = "document.querySelector('.md-search-result__meta').innerText.includes('matching')"
    field = search.locator(".md-search__input")
    field.first.fill("")
    search.wait_for_function(f"!{said}")
    field.first.click()
    search.keyboard.insert_text(words)  # at once: what comes of half a word is no answer
    search.keyboard.press("End")
    search.wait_for_function(said)
    search.wait_for_selector(".md-search-result__item a", state="attached")
    found = search.evaluate(
        """() => [...document.querySelectorAll(".md-search-result__item")].slice(0, 3)
            .map((each) => each.querySelector("a").href)"""
    )
    pages = [urlsplit(url).path[1:] for url in found]
    assert page_of in pages, pages


@pytest.mark.browser
def test_a_page_is_light(page, site):
    urls = [page.address + url_of(page.page), *page.view.evaluate(LOADED)]
    sizes = {}
    for url in urls:
        path = site / unquote(urlsplit(url).path)[1:]
        path = path / "index.html" if path.is_dir() else path
        apart = {"bench", "vendor", "search"} & set(path.relative_to(site).parts)
        if path.is_file() and not apart:
            sizes[path] = path.stat().st_size
    charts = sum(
        page.view.evaluate(
            f"""[...document.querySelectorAll("{CHARTS}")].filter((each) =>
            !each.parentElement.closest("{CHARTS}")).map((each) => each.outerHTML.length)"""
        )
    )
    weight, nodes = sum(sizes.values()) - charts, page.view.evaluate(NODES)
    heavy = sorted(((size // 1000, path.name) for path, size in sizes.items()), reverse=True)
    assert weight <= HEAVIEST, heavy[:4]
    assert nodes <= MOST_NODES


@pytest.mark.browser
def test_the_search_waits_until_it_is_used(tab):
    """Neither the index nor the worker is fetched with a page: they come after a key, a touch of
    the button of a phone, and at once where an address asks."""
    tab.open("reference/contributing").view.wait_for_timeout(500)
    assert not [url for url in tab.requests if re.search(r"search_index|workers/search", url)]
    found = ".md-search-result__item a"
    tab.view.keyboard.press("/")
    tab.view.keyboard.type("jacobian")
    tab.view.wait_for_selector(found, state="attached")
    assert sum(url.endswith("search_index.json") for url in tab.requests) == 1
    tab.open("reference/contributing").resize(PHONE)
    tab.view.locator("label[for=__search].md-header__button").first.click()
    tab.view.keyboard.type("jacobian")
    tab.view.wait_for_selector(found, state="attached")
    tab.view.goto(tab.address + "reference/contributing/?q=jacobian", wait_until="load")
    tab.view.wait_for_selector(found, state="attached")


NARROW = """[...document.querySelectorAll(".md-content p")]
    .filter((each) => each.checkVisibility() && each.innerText.length > 60)
    .filter((each) => each.getBoundingClientRect().width < 200)
    .map((each) => each.innerText.slice(0, 60))"""


@pytest.mark.browser
def test_nothing_is_cut_at_the_width_of_a_laptop(page):
    """No line of code and no table, in folds neither; and beside code and figures a paragraph has
    room for a line."""
    assert page.view.viewport_size["width"] == DESKTOP == 1366
    assert not page.view.evaluate(NARROW)
    page.view.evaluate(OPEN_FOLDS)
    cut = page.view.evaluate(CUT, "pre:not(.editor pre), table")  # an editor is scrolled
    page.view.evaluate(CLOSE_FOLDS)
    assert not cut


@pytest.mark.browser
def test_a_page_prints_on_few_sheets(page):
    sheets = len(re.findall(rb"/Type\s*/Page\b", page.view.pdf(format="A4")))
    assert sheets, "a PDF that cannot be counted"
    assert sheets <= MOST_SHEETS
