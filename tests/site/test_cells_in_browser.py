"""How a cell looks and behaves in Chromium, beside what `test_cells.py` does with it: what it says
while it runs, how long it may, and whether everything of it can be seen on a phone."""

import re

import pytest

from browser import CELL, HEIGHT, LONG, PAGES, Tab, finished
from site_build import ROOT

pytestmark = pytest.mark.browser

NARROW = 390
SAID = ".run-verdict:visible, .run-error:visible, .run-passed:visible"
HAS_A_CELL = re.compile(r"^ *\[\[run [\w/-]+(?: \w+)?\]\]$", re.M)
WITH_CELLS = [
    page for page in PAGES if HAS_A_CELL.search((ROOT / f"docs/{page}.md").read_text("utf8"))
]


@pytest.fixture
def phone(context_of, address):
    """A tab on a phone, which has no keyboard."""
    size = {"width": NARROW, "height": HEIGHT}
    tab = Tab(lambda: context_of(viewport=size, has_touch=True, is_mobile=True), address)
    tab.resize = lambda width: None
    yield tab
    tab.close()


def opened(tab, page: str):
    """A page's first cell, with its folds open and its scripts there."""
    view = tab.open(page).view
    view.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    cell = view.locator(CELL).first
    cell.scroll_into_view_if_needed()
    cell.locator(".run-go").wait_for(state="attached")
    return cell


HURRY = """() => {
    window.usual = window.setTimeout;
    window.setTimeout = (act, wait) => usual(act, wait === 10_000 ? 500 : wait);
}"""
"""What waits ten seconds waits half a second."""


def test_a_run_shows_nothing_that_an_earlier_one_has_said_and_ends_after_ten_seconds(tab):
    cell = opened(tab, "kernels/two-loops")
    view, call = tab.view, cell.locator("textarea").nth(1)
    view.evaluate(HURRY)
    assert not cell.locator(SAID).count()  # it is the reader's to see
    cell.get_by_role("button", name="Run", exact=True).click()
    finished(view, cell)
    assert "✓ Right" in cell.locator(SAID).inner_text()
    original = call.input_value()
    call.fill("while True:\n    pass")
    status = cell.locator(".run-status")
    before = "getComputedStyle(document.querySelector('.run-verdict'), '::before').content"
    assert view.evaluate(before) == '"Before your edit: "'
    assert status.inner_text() == "Edited, not run yet"
    call.press("Control+Enter")
    assert status.inner_text() == "Running …" and not cell.locator(SAID).count()
    finished(view, cell)
    words = "Stopped after 10 seconds. Is there a loop that does not end, or more data than fits?"
    assert cell.locator(SAID).inner_text() == words
    view.evaluate("window.setTimeout = usual")
    call.fill(original)
    call.press("Control+Enter")
    finished(view, cell)
    assert cell.locator(SAID).inner_text().startswith("✓ Right")
    assert view.evaluate(before) == "none"


def test_a_run_ends_that_of_another_cell(tab):
    """Both share one Python, which would keep the second waiting until it is stopped as well."""
    cell = opened(tab, "practice/mistakes")
    view, other = tab.view, tab.view.locator(CELL).nth(1)
    for each, text in ((cell, "while True:\n    pass"), (other, "show([1.0])")):
        each.evaluate("fold => { fold.open = true; }")  # which closes all others
        view.wait_for_timeout(100)
        each.locator("textarea").fill(text)
        each.locator("textarea").press("Control+Enter")
    view.wait_for_function("document.querySelectorAll('.run-cell')[1].dataset.took")
    assert "Stopped, because another cell runs." in cell.locator(".run-error").first.text_content()
    assert "Stopped" not in other.locator(".run-result").text_content()


def test_a_click_while_a_run_goes_on_ends_it_and_runs(tab):
    cell = opened(tab, "index")
    view, code = tab.view, cell.locator("textarea")
    right = code.input_value()
    for then, said in (("Run", "Right"), ("Skip the maximum", "y[1, 0] is NaN")):
        code.fill("while True:\n    pass")
        code.press("Control+Enter")
        code.fill(right)
        cell.get_by_role("button", name=then, exact=True).click()
        done = "document.querySelector('.run-status').textContent.startsWith('Done')"
        view.wait_for_function(done)
        assert said in cell.locator(SAID).inner_text()


FITS = """() => [...document.querySelectorAll(".editor")].flatMap((box) => {
    const [code, area] = [box.querySelector("code"), box.querySelector("textarea")];
    const numbers = box.querySelector(".editor-numbers");
    if (!box.checkVisibility({ contentVisibilityAuto: true })) return [];
    const height = parseFloat(getComputedStyle(code).lineHeight);
    const rows = numbers.textContent.split("\\n");
    const drawn = [...code.children].map((line) => Math.round(
        (line.getBoundingClientRect().top - numbers.getBoundingClientRect().top) / height));
    const typed = area.cloneNode(true);  // as high as the browser says that its text is
    typed.value = area.value;
    typed.style.cssText = `height:0;position:absolute;min-width:0;width:${area.clientWidth}px`;
    box.append(typed);
    const wrong = [
        box.scrollWidth > box.clientWidth && "scrolls sideways",
        box.scrollHeight > box.clientHeight && "is clipped",
        Math.abs(typed.scrollHeight - code.offsetHeight) > 1
            && `typed ${typed.scrollHeight} and drawn ${code.offsetHeight}`,
        drawn.some((row, line) => rows[row] !== String(line + 1)) && "numbers are beside others",
    ].filter(Boolean);
    typed.remove();
    return wrong.map((each) => `${area.ariaLabel}: ${each}`);
})"""


@pytest.mark.parametrize("page", ["kernels/attention", "kernels/attention-backward"])
def test_a_hundred_columns_fit_beside_the_result(tab, page):
    opened(tab, page)
    tab.view.wait_for_timeout(300)
    assert tab.view.evaluate(FITS) == []


def test_a_cell_that_comes_alive_moves_nothing_and_has_no_result_yet(tab):
    view = tab.open("kernels/flash-attention").view
    cell, height = view.locator(CELL), "(cell) => cell.offsetHeight"
    before = cell.evaluate(height)
    assert not view.locator(f"{CELL}.live").count()
    for state in ("waiting", "live"):
        assert not cell.locator(".run-result").is_visible(), state
        cell.scroll_into_view_if_needed()
        view.locator(f"{CELL}.live").wait_for()
    assert cell.evaluate(height) == before


@pytest.mark.parametrize("page", WITH_CELLS)
def test_all_code_is_seen_on_a_phone_with_the_numbers_of_its_lines(phone, page):
    opened(phone, page)
    view = phone.view
    for mistake in view.locator(".run-mistake").all() or [None]:  # of which one is open at a time
        if mistake:
            mistake.evaluate("each => { each.open = true; }")
        view.wait_for_timeout(50 if mistake else 300)
        assert view.evaluate("document.documentElement.scrollWidth") <= NARROW
        assert view.evaluate(FITS) == []
    help = set(view.locator(".run-cell .editor-help").all_text_contents())
    assert help == {"The Run button runs this code."}


def test_where_a_wrong_number_is_written_comes_onto_the_screen(phone):
    cell = opened(phone, "kernels/naive")
    view, code = phone.view, cell.locator("textarea")
    code.fill(code.input_value().replace("e / tl.load", "e * tl.load"))
    cell.get_by_role("button", name="Run", exact=True).tap()
    finished(view, cell)
    cell.get_by_role("button", name="Show where").tap()
    box = cell.locator(".run-says").bounding_box()
    assert 0 < box["y"] and box["y"] + box["height"] <= HEIGHT
    assert "of divide, line 29 reads 1 element of d and writes" in cell.inner_text()


def test_marks_follow_lines_that_go_on_in_a_second_row(phone):
    cell = opened(phone, "kernels/naive")
    view, code = phone.view, cell.locator("textarea")
    long = "show([" + "1.0, " * 30 + "])"
    code.fill(f"a = 1\n{long}\n\nb = a / 0")
    assert cell.locator(".editor-numbers").inner_text().split() == ["1", "2", "3", "4"]
    cell.get_by_role("button", name="Run", exact=True).click()
    finished(view, cell)
    place = """cell => ["code > :nth-child(4)", ".editor-mark.failed"].map((each) => {
        const { top, bottom } = cell.querySelector(`.editor ${each}`).getBoundingClientRect();
        return [Math.round(top), Math.round(bottom)]; })"""
    line, mark = cell.evaluate(place)
    assert line == pytest.approx(mark, abs=1)
    assert view.evaluate(FITS) == []


SEEN = """() => {
    const status = document.querySelector(".run-status");
    window.seen = [];
    new MutationObserver(() => seen.push(status.textContent)).observe(status, { childList: true });
}"""


def test_a_long_run_says_before_how_long_it_takes_and_can_be_stopped(tab):
    cell = opened(tab, "index")
    view, code = tab.view, cell.locator("textarea")
    view.evaluate(SEEN)
    cell.get_by_role("button", name="Run", exact=True).click()
    finished(view, cell)
    assert not re.search("it takes", str(view.evaluate("seen")))
    code.fill(LONG.replace("ROWS", "4"))
    code.press("Control+Enter")
    rows = round(4 * 15_000 / finished(view, cell))  # for some seconds
    code.fill(LONG.replace("ROWS", str(rows)))
    code.press("Control+Enter")
    took = finished(view, cell) / 1000
    *_, told = re.findall(r"Running: it takes (\d+) s in", str(view.evaluate("seen")))
    assert took / 6 < int(told) < took * 6, (told, took)
    assert "Right" not in cell.locator(SAID).inner_text()
    view.evaluate("seen.length = 0")
    code.fill(LONG.replace("ROWS", str(2 * rows)))
    code.press("Control+Enter")
    view.wait_for_function("seen.some((text) => /it takes \\d+ s/.test(text))")
    cell.get_by_role("button", name="Stop").click()
    finished(view, cell)
    assert cell.locator(SAID).inner_text() == "Stopped."
