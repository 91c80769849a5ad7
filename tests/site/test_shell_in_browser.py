"""The shell of the site in Chromium: the first screens, lines of prose, print, what is copied, the
page for lost readers, and plots by keyboard and button."""

import re

import pytest

from browser import HEIGHT, PHONE, Quiet, served

pytestmark = pytest.mark.browser

BOTTOM = "(what) => document.querySelector(what).getBoundingClientRect().bottom + scrollY"
PRINTED = """(what) => [...document.querySelectorAll(what)].map((each) =>
    each.checkVisibility({ contentVisibilityAuto: true }) && each.getClientRects().length > 0)"""


def test_the_first_screen_has_claim_install_doors_and_a_picture(tab):
    view = tab.open("index").view
    view.evaluate("document.fonts.ready")
    assert view.evaluate("document.querySelector('.md-header').offsetHeight") == 56
    for what in ("h1", ".hero strong", ".install", ".doors", ".trips"):
        assert view.evaluate(BOTTOM, what) <= HEIGHT, what
    loaded = view.evaluate(
        "[...document.fonts].filter((font) => font.status === 'loaded').map((font) => font.family)"
    )
    assert {"Source Serif 4", "Inter", "JetBrains Mono"} <= {name.strip('"') for name in loaded}


@pytest.mark.parametrize("page", ["math/monoid", "kernels/split-rows"])
def test_a_section_that_one_goes_to_is_marked(tab, page):
    view = tab.open(page).view
    for link in view.locator(".md-sidebar .md-nav--secondary a:visible").all()[:-1]:
        link.click()
        marked = "(link) => link.matches('.md-nav__link--active')"
        view.wait_for_function(marked, arg=link.element_handle())


def test_two_screens_of_a_phone_have_them_too_and_a_door_is_a_link_as_a_whole(tab):
    view = tab.open("index").view
    for width in (PHONE, 390):
        view.set_viewport_size({"width": width, "height": 844})
        assert view.evaluate("document.documentElement.scrollWidth") <= width
    assert view.evaluate(BOTTOM, ".doors") <= 2 * 844
    shown = view.locator(".copy-share svg").evaluate_all(
        "(all) => all.filter((each) => each.checkVisibility()).map((each) => each.classList[0])"
    )
    assert shown == ["for-narrow"]
    view.locator(".doors > div").first.click(position={"x": 8, "y": 8})
    view.wait_for_url("**/one-row/")


@pytest.mark.parametrize("page", ["index", "math/softmax", "kernels/three-loops"])
def test_eleven_stops_of_the_keyboard_lie_before_the_text(tab, page):
    keyboard = tab.open(page).view.keyboard
    for _ in range(12):
        keyboard.press("Tab")
    assert tab.view.evaluate("Boolean(document.activeElement.closest('article'))")


def test_a_page_of_more_than_two_screens_has_its_contents_in_sight(page):
    sections, height = page.view.evaluate(
        """() => [document.querySelectorAll("article h2").length,
            document.querySelector("article").offsetHeight]"""
    )
    shown = page.view.locator(".md-nav--secondary .md-nav__link:visible").count()
    short = height < 2 * HEIGHT or sections < 2
    assert shown or short or page.page in ("index", "one-row")  # there a figure goes along


def test_the_keyboard_shows_the_meaning_of_a_term(tab):
    view = tab.open("kernels/primer").view
    term = view.locator("article abbr").first
    meaning = term.get_attribute("title")
    assert meaning and not view.locator(".md-tooltip2").count()
    view.locator("article h1").click()  # the next stop of the keyboard is behind it
    while not term.evaluate("(each) => each === document.activeElement"):
        view.keyboard.press("Tab")
        assert view.evaluate("document.activeElement.closest('article') !== null")
    view.locator(".md-tooltip2", has_text=meaning).wait_for()


def test_print_has_answers_and_short_tables_and_nothing_to_press(tab):
    view = tab.open("math/vjp").view
    view.emulate_media(media="print")
    shown = view.evaluate(PRINTED, ".md-header, .md-sidebar, .md-footer, [data-md-type=copy]")
    assert shown and not any(shown)
    answers = view.evaluate(PRINTED, "details.question > :not(summary)")
    assert len(answers) > 2 and all(answers)
    for page, folds in (("practice/mistakes", ".run-why"), ("practice/one-row", ".solution")):
        found = tab.open(page).view.evaluate(PRINTED, f"{folds} > :not(summary, button)")
        assert len(found) > 5 and all(found), page
    tab.open("benchmarks/loss-head")
    rows = view.evaluate(PRINTED, "details table")
    assert len(rows) > 1 and all(rows)
    tab.open("index")
    assert view.evaluate(PRINTED, ".copy-share svg").count(True) == 1


def test_a_session_is_copied_as_it_was_typed(tab):
    view = tab.open("kernels/edge-cases").view
    view.context.grant_permissions(["clipboard-read", "clipboard-write"])
    block = view.locator(".language-pycon").first
    block.scroll_into_view_if_needed()
    block.locator("button[data-md-type=copy]").click()
    copied = view.evaluate("navigator.clipboard.readText()")
    compile(copied, "copied", "exec")
    typed = [line for line in block.inner_text().splitlines() if re.match(r">>>|\.\.\.", line)]
    assert copied.splitlines() == [line[4:] for line in typed] and "import" in copied


class BelowAFolder(Quiet):
    """The site below /some/where/; for what it has not, its page for lost readers."""

    def translate_path(self, path):
        below = path.removeprefix("/some/where")
        return super().translate_path(below if below != path else "/nothing")

    def send_error(self, code, *arguments):
        assert code == 404
        with open(f"{self.directory}/404.html", "rb") as page:
            content = page.read()
        self.send_response(404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def test_a_lost_reader_finds_the_way_from_any_address(chromium, site):
    """Style, links and search work where the site lies below a folder that nothing names."""
    with served(site, BelowAFolder) as address, chromium.new_context() as context:
        view = context.new_page()
        errors = []
        view.on("pageerror", lambda error: errors.append(str(error)))
        view.goto(f"{address}some/where/math/no/such/page", wait_until="load")
        assert view.evaluate("document.querySelector('.md-header').offsetHeight") == 56
        view.keyboard.press("/")
        view.keyboard.type("jacobian")
        found = view.locator(".md-search-result__link").first
        found.wait_for()
        assert found.get_attribute("href").startswith(f"{address}some/where/math/jacobian/")
        view.keyboard.press("Escape")
        view.locator("article a", has_text="Tutorial").click()
        view.wait_for_url(f"{address}some/where/math/softmax/")
        assert not errors


def test_arrow_keys_walk_through_a_plot_and_enter_opens_the_row(tab):
    tab.open("benchmarks/forward")
    view = tab.view
    area = view.locator(".plot-area").first
    area.focus()
    view.keyboard.press("ArrowRight")
    view.keyboard.press("ArrowRight")
    lines = area.locator(".plot-tip").inner_text().splitlines()
    assert 2 <= len(lines) <= 4 and "× 33" in lines[0] and "of a copy" in lines[1]
    view.keyboard.press("Enter")
    view.wait_for_function("document.querySelector(':target')?.closest('details').open")
    assert view.locator(":target").first.inner_text().startswith("33\t")


def test_a_button_shows_a_series_that_waits(tab):
    tab.open("benchmarks/forward")
    plot = tab.view.locator(".plot").first
    shown = plot.locator("button[aria-pressed=true]")
    pressed = shown.evaluate_all("(all) => all.map((each) => each.dataset.series)")
    assert pressed == ["triton_softmax", "best", "torch"]
    button = plot.locator("button", has_text="Liger")
    assert button.get_attribute("aria-pressed") == "false"
    assert plot.locator("g[data-series=liger] text").first.is_hidden()
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert plot.locator("g[data-series=liger] text").first.is_visible()
