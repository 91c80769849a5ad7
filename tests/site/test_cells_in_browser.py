"""What a reader does with cells in Chromium, at a desk and on a phone: runs, steps through, edits,
breaks, stops and mends them."""

import json
import re

import pytest

from browser import CELL, HEIGHT, LONG, PAGES, PHONE, TWO_FRAMES, Tab, finished, ran
from site_build import ROOT
from softmax_playground import cells
from softmax_playground.small_triton import session
from tests.site.test_cells import NAMES, VERDICTS

pytestmark = pytest.mark.browser

NARROW = 390
SAID = ".run-verdict:visible, .run-error:visible, .run-passed:visible"
HAS_A_CELL = re.compile(r"^ *\[\[run [\w/-]+(?: \w+)?\]\]$", re.M)
WITH_CELLS = [
    page for page in PAGES if HAS_A_CELL.search((ROOT / f"docs/{page}.md").read_text("utf8"))
]
ENDLESS = "while True:\n    pass"
DRAWN = f"() => ({TWO_FRAMES})().then(() => document.fonts.ready).then({TWO_FRAMES})"


@pytest.fixture
def phone(context_of, address):
    """A tab on a phone, which has no keyboard."""
    size = {"width": NARROW, "height": HEIGHT}
    tab = Tab(lambda: context_of(viewport=size, has_touch=True, is_mobile=True), address)
    tab.resize = lambda width: None
    yield tab
    tab.close()


def opened(tab, page: str, folds: bool = True):
    """A page's first cell, with its folds open and its scripts there."""
    view = tab.open(page).view
    if folds:
        view.evaluate("document.querySelectorAll('details').forEach((each) => each.open = true)")
    cell = view.locator(CELL).first
    cell.scroll_into_view_if_needed()
    cell.locator(".run-go").wait_for(state="attached")
    return cell


def names(cell):
    """The names of the program that runs, each with its lanes."""
    return cell.evaluate("""cell => Object.fromEntries([...cell.querySelectorAll("[data-name]")]
        .map((each) => [each.dataset.name,
            [...each.querySelectorAll(".lane")].map((lane) => lane.textContent)]))""")


def test_a_click_breaks_the_kernel_of_the_front_page_and_mends_it(tab):
    cell = opened(tab, "index")
    area, why_shown = cell.locator("textarea"), cell.locator(".run-comes")
    numbers = cell.locator(".run-result td")
    whole, shown = area.input_value(), numbers.all_text_contents()
    for label, old, new, why in cells.read(ROOT, "home").tries:
        ran(cell, press=label)
        assert area.input_value() == whole.replace(old, new) and why_shown.inner_text() == why
        assert cell.locator(".editor-mark.right").count() == 1
        ran(cell, press="Run")  # what stands there; and what is edited is no longer what was tried
        assert area.input_value() != whole and why_shown.inner_text() == why
        area.fill(area.input_value() + "# mine\n")
        assert not why_shown.inner_text()
        ran(cell, press=f"Undo: {label}")
        assert area.input_value() == whole
        ran(cell, press=label)
        ran(cell, press="Reset")
        assert area.input_value() == whole and not why_shown.inner_text()
        assert numbers.all_text_contents() == shown


def test_a_cell_by_mouse_and_keyboard(tab):
    cell = opened(tab, "kernels/two-loops", folds=False)
    view, result = tab.view, cell.locator(".run-result")
    kernel, call = (cell.locator("textarea").nth(at) for at in (0, 1))
    static = result.locator("td").all_text_contents()

    def loaded():
        return [url for url in tab.requests if "micropython" in url or "runtime.json" in url]

    def press(key, times=1):
        for _ in range(times):
            view.keyboard.press(key)

    assert not loaded(), "a page that is only read loads no Python"
    assert not kernel.is_visible()
    ran(cell, press="Run")
    assert len(loaded()) == 3 and result.locator("td").all_text_contents() == static

    # Step through the kernel: every name of it, and what is read.
    slider = cell.get_by_label("Step", exact=True)
    slider.focus()
    press("Home")
    assert cell.locator("td.touched").count() == 0 and not names(cell)
    press("ArrowRight", 12)
    assert cell.locator("td.now").all_inner_texts() == ["1", "2", "1", "3"]
    says = cell.locator(".run-says").inner_text()
    assert says == "Step 12 of 42: program 0, line 26 reads 4 elements of x and sets x."
    assert cell.locator('[data-count="load"]').inner_text() == "16"
    assert cell.locator(".editor-mark.now").count() == cell.locator(".run-name.set").count() == 1
    assert "x = tl.load(" in cell.locator(".run-line").inner_text()
    assert names(cell)["x"] == ["1", "2", "1", "3"] and names(cell)["m"] == ["−∞", "−∞"]
    press("ArrowRight", 3)
    frames = cell.locator(".run-frame-name").all_inner_texts()
    assert frames == ["softmax_forward_two_loops_kernel", "merge"]
    assert names(cell)["m2"] == ["2", "3"]
    press("ArrowLeft")
    assert "m2" not in names(cell) and "d_tile" in names(cell)

    # The second turn of the loop: a lane of each row lies behind its end.
    cell.get_by_label("Turn of a loop").select_option("Line 23: start = 2")
    assert names(cell)["start"] == ["2"] and names(cell)["m"] == ["2", "3"]
    for _ in range(3):
        cell.get_by_role("button", name="One step on").click()
    assert names(cell)["x"] == ["3", "−∞", "5", "−∞"]
    assert cell.locator("[data-name=x] .lane.masked").all_inner_texts() == ["−∞", "−∞"]

    # A step has opened the fold of the kernel; a line that fails opens it again. A longer tile.
    assert kernel.is_visible()
    whole, text = kernel.input_value(), call.input_value()
    kernel.fill(whole.replace("tl.max(", "tl.most("))
    cell.locator(".run-fold summary").click()
    ran(cell, press="Run")
    assert kernel.is_visible() and cell.locator(".editor-mark.failed").count() == 1
    kernel.fill(whole)
    ran(cell, text.replace("BLOCK_COLS=2", "BLOCK_COLS=4"))
    assert int(slider.get_attribute("max")) == 25
    verdict = "✓ Right: y is softmax(x). It reads x twice: 72 bytes, where 48 would do."
    assert cell.locator(".run-verdict").inner_text() == verdict
    ran(cell, whole.replace("rows[:, None] * x_row_stride", "rows[:, None] * 0"), editor=0)
    assert cell.locator("td.off").count() == 3 and "y, as it should be" in result.inner_text()

    # Tab indents, Escape lets go of it.
    call.focus()
    press("Control+End")
    press("Tab")
    assert call.input_value().endswith(")   ")
    press("Escape")
    press("Tab")
    assert view.evaluate("document.activeElement.closest('.run-names')")


def test_an_editor_keeps_what_is_written_and_a_link_carries_it(tab, open_tab):
    """Indentation; over a reload; back to the original and undone again; in another browser, where
    nothing runs unasked."""
    cell = opened(tab, "kernels/two-loops")
    view, call = tab.view, cell.locator("textarea").nth(1)
    original = call.input_value()
    call.focus()
    view.keyboard.press("Control+End")
    for key in ("Enter", "f", "o", "r", " ", "i", ":", "Enter", "Tab", "Backspace", "x"):
        view.keyboard.press(key)
    mine = f"{original}\nfor i:\n    x"
    assert call.input_value() == mine
    view.reload()
    cell.scroll_into_view_if_needed()
    cell.get_by_text("Your code from before, not run yet").wait_for()
    assert call.input_value() == mine

    cell.get_by_role("button", name="Link").click()
    cell.get_by_text("carries this code").wait_for()
    other = open_tab(kind="a reader who follows a link")
    other.view.goto(view.url)
    theirs = other.view.locator(CELL).first
    theirs.get_by_text("From a link, not run yet").wait_for()
    assert theirs.locator("textarea").nth(1).input_value() == mine
    assert theirs.get_attribute("data-took") is None
    other.close()

    ran(cell, press="Reset")
    assert call.input_value() == original
    call.focus()
    view.keyboard.press("Control+z")
    assert call.input_value() == mine
    ran(cell, press="Reset")
    view.goto(view.url.split("#")[0])
    view.reload()
    cell.scroll_into_view_if_needed()
    cell.locator(".run-go").wait_for()
    view.wait_for_timeout(200)
    assert call.input_value() == original and not cell.locator(".run-status").inner_text()


CALLS = [
    "tl.gather",
    "tl.sotfmax",
    "tl.logsumexp",
    "print(tl.sort(tl.arange(0, 4), descending=True), tl.arange(0, 4).sum(axis=0))",
    "print(tl.cumsum(tl.arange(0, 8)), tl.topk(tl.arange(0, 8), 2), tl.full((2,), 1, tl.float32))",
    "x = tl.reshape(tl.arange(0, 8).to(tl.float32), (4, 2))\n"
    "print(tl.dot(x.trans(), x), tl.sigmoid(x))",
]


def test_every_cell_in_the_page_computes_what_the_page_shows(tab):
    """In MicroPython, what the build has computed in CPython: the same HTML and the same trace."""
    view = tab.open("practice/mistakes").view
    session.provide(cells.library(ROOT))
    requests = [{"texts": [text]} for text in CALLS]
    for name in NAMES:
        each = cells.read(ROOT, name)
        kinds = ("wrong", "right") if each.is_mistake else ("wrong",)
        requests += [each.request(each.texts(kind)) for kind in kinds]
    for name, old, new, _ in VERDICTS:
        each = cells.read(ROOT, name)
        requests.append(each.request([text.replace(old, new) for text in each.texts()]))
    run = "async request => (await import('/assets/run/runner.js')).run(request)"
    for request in requests:
        wanted = json.loads(json.dumps(session.run_cell(request)))
        assert view.evaluate(run, request) == wanted, request["texts"]


HURRY = """() => {
    window.usual = window.setTimeout;
    window.setTimeout = (act, wait) => usual(act, wait === 10_000 ? 2_000 : wait);
}"""
"""What waits ten seconds waits two, in which a busy machine can look at what runs."""


def test_a_run_shows_nothing_that_an_earlier_one_has_said_and_ends_after_ten_seconds(tab):
    cell = opened(tab, "kernels/two-loops")
    view, call = tab.view, cell.locator("textarea").nth(1)
    status, said, original = cell.locator(".run-status"), cell.locator(SAID), call.input_value()
    before = "getComputedStyle(document.querySelector('.run-verdict'), '::before').content"
    assert not said.count()  # it is the reader's to see
    ran(cell, press="Run")
    assert "✓ Right" in said.inner_text()
    view.evaluate(HURRY)
    call.fill(ENDLESS)
    assert view.evaluate(before) == '"Before your edit: "'
    assert status.inner_text() == "Edited, not run yet"
    call.press("Control+Enter")
    assert status.inner_text() == "Running …" and not said.count()
    finished(cell)
    words = "Stopped after 10 seconds. Is there a loop that does not end, or more data than fits?"
    assert said.inner_text() == words
    view.evaluate("window.setTimeout = usual")
    ran(cell, original)
    assert said.inner_text().startswith("✓ Right") and view.evaluate(before) == "none"


def test_a_run_ends_that_of_another_cell(tab):
    """Both share one Python, which would keep the second waiting until it is stopped as well."""
    cell = opened(tab, "practice/mistakes")
    view, other = tab.view, tab.view.locator(CELL).nth(1)
    for each, text in ((cell, ENDLESS), (other, "show([1.0])")):
        each.evaluate("fold => { fold.open = true; }")  # which closes all others
        view.wait_for_timeout(100)
        each.locator("textarea").fill(text)
        each.locator("textarea").press("Control+Enter")
    view.wait_for_function("document.querySelectorAll('.run-cell')[1].dataset.took")
    assert "Stopped, because another cell runs." in cell.locator(".run-error").first.text_content()
    assert "Stopped" not in other.locator(".run-result").text_content()


def test_a_click_while_a_run_goes_on_ends_it_and_runs(tab):
    cell = opened(tab, "index")
    code = cell.locator("textarea")
    right = code.input_value()
    for then, said in (("Run", "Right"), ("Skip the maximum", "y[1, 0] is NaN")):
        code.fill(ENDLESS)
        code.press("Control+Enter")
        code.fill(right)
        cell.get_by_role("button", name=then, exact=True).click()
        done = "document.querySelector('.run-status').textContent.startsWith('Done')"
        tab.view.wait_for_function(done)
        assert said in cell.locator(SAID).inner_text()


SEEN = """() => {
    const status = document.querySelector(".run-status");
    window.seen = [];
    new MutationObserver(() => seen.push(status.textContent)).observe(status, { childList: true });
}"""


def test_a_long_run_says_before_how_long_it_takes_and_can_be_stopped(tab):
    cell = opened(tab, "index")
    view = tab.view
    view.evaluate(SEEN)
    ran(cell, press="Run")
    assert not re.search("it takes", str(view.evaluate("seen")))
    quick = min(ran(cell, LONG.replace("ROWS", "4")) for _ in range(2))
    rows = round(4 * 15_000 / quick)  # for some seconds
    took = ran(cell, LONG.replace("ROWS", str(rows))) / 1000
    *_, told = re.findall(r"Running: it takes (\d+) s in", str(view.evaluate("seen")))
    assert took / 6 < int(told) < took * 6, (told, took)
    assert "Right" not in cell.locator(SAID).inner_text()
    view.evaluate("seen.length = 0")
    cell.locator("textarea").fill(LONG.replace("ROWS", str(rows + 1)))
    cell.locator("textarea").press("Control+Enter")
    says = "() => seen.some((text) => /it takes \\d+ s/.test(text))"
    view.wait_for_function(says, timeout=60_000)  # which has the time that runs have
    cell.get_by_role("button", name="Stop").click()
    finished(cell)
    assert cell.locator(SAID).inner_text() == "Stopped."


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
    tab.view.evaluate(DRAWN)
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
        view.evaluate(DRAWN)
        assert view.evaluate("document.documentElement.scrollWidth") <= NARROW
        assert view.evaluate(FITS) == []
    help = set(view.locator(".run-cell .editor-help").all_text_contents())
    assert help == {"The Run button runs this code."}


def test_where_a_wrong_number_is_written_comes_onto_the_screen(phone):
    cell = opened(phone, "kernels/naive")
    code = cell.locator("textarea")
    code.fill(code.input_value().replace("e / tl.load", "e * tl.load"))
    cell.get_by_role("button", name="Run", exact=True).tap()
    finished(cell)
    cell.get_by_role("button", name="Show where").tap()
    box = cell.locator(".run-says").bounding_box()
    assert 0 < box["y"] and box["y"] + box["height"] <= HEIGHT
    assert "of divide, line 29 reads 1 element of d and writes" in cell.inner_text()


def test_marks_follow_lines_that_go_on_in_a_second_row(phone):
    cell = opened(phone, "kernels/naive")
    long = "show([" + "1.0, " * 30 + "])"
    cell.locator("textarea").fill(f"a = 1\n{long}\n\nb = a / 0")
    assert cell.locator(".editor-numbers").inner_text().split() == ["1", "2", "3", "4"]
    ran(cell, press="Run")
    place = """cell => ["code > :nth-child(4)", ".editor-mark.failed"].map((each) => {
        const { top, bottom } = cell.querySelector(`.editor ${each}`).getBoundingClientRect();
        return [Math.round(top), Math.round(bottom)]; })"""
    line, mark = cell.evaluate(place)
    assert line == pytest.approx(mark, abs=1)
    assert phone.view.evaluate(FITS) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_open_cell_on_a_phone_passes_axe(tab, scheme):
    api = pytest.importorskip("axe_playwright_python.base", reason="needs axe-playwright-python")
    cell = opened(tab, "kernels/strided", folds=False)
    tab.resize(PHONE)
    tab.show(scheme)
    ran(cell, press="Run")
    cell.get_by_label("Program", exact=True).select_option("Program 1")
    assert "program 1" in cell.locator(".run-says").inner_text() and names(cell)
    assert tab.view.evaluate("document.documentElement.scrollWidth <= innerWidth")
    tab.view.evaluate(api.AXE_SCRIPT)
    found = tab.view.evaluate("only => axe.run(only).then((found) => found.violations)", CELL)
    assert not [each["id"] for each in found if each["impact"] in ("serious", "critical")]
