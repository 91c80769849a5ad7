"""Every page in Chromium: nothing is asked of the network, mathematics shows, axe is content,
phones can read it."""

from __future__ import annotations

import functools
import http.server
import re
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from site_build import pages
from triton_softmax.reference import online_steps

pytestmark = pytest.mark.browser

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
if CHROMIUM is None:
    pytest.skip("needs Chromium: apt install chromium", allow_module_level=True)
playwright_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
axe_api = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="needs axe-playwright-python"
)

ROOT = Path(__file__).resolve().parents[2]
PAGES = [page.relative_to(ROOT / "docs").with_suffix("").as_posix() for page in pages()]
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
SCROLLERS = (
    "pre, code, .equation-body, .md-typeset__scrollwrap, .highlight, .highlighttable, .linenodiv"
)

CHARTS_DRAWN = """document.querySelectorAll('.bench-figure').length
    === document.querySelectorAll('.bench-drawn').length"""
UNKNOWN_ELEMENTS = """[...document.querySelectorAll('*')]
    .filter((each) => each instanceof HTMLUnknownElement)
    .map((each) => each.outerHTML.slice(0, 60))"""

# Thousands of table cells and code tokens differ only in their text, and axe computes the contrast
# of each. A row that has the tags and classes of an earlier one goes, and so does a line of code
# without a kind of token that is new on the page.
KEEP_ONE_OF_EACH_KIND = """() => {
    const seen = new Set();
    const isNew = (kind) => !seen.has(kind) && seen.add(kind);
    const kind = (each) =>
        each.tagName + "." + each.getAttribute("class")
        + (each.hasAttribute("title") ? "[title]" : "");
    for (const row of document.querySelectorAll("tbody tr")) {
        const cells = [row, ...row.querySelectorAll("*:not(math *)")];
        if (!isNew(cells.map(kind).join(" "))) row.remove();
    }
    for (const line of document.querySelectorAll(".highlight code > span")) {
        const tokens = [...line.querySelectorAll("*")].map((each) => "code " + kind(each));
        if (!tokens.filter(isNew).length) line.remove();
    }
}"""


def url_of(page: str) -> str:
    folder = page.removesuffix("index").rstrip("/")
    return f"{folder}/" if folder else ""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def address(site):
    """Address of the built site, served on a port of the system's choice."""
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(_Quiet, directory=str(site))
    )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def browser():
    with playwright_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def contexts(browser):
    """One context per colour scheme, desktop size."""
    made = {
        scheme: browser.new_context(
            viewport={"width": 1280, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
        )
        for scheme in ("light", "dark")
    }
    yield made
    for context in made.values():
        context.close()


@pytest.fixture
def tab(contexts, address):
    """Open a page in a colour scheme; every request and every error is recorded and must be local
    and absent."""
    opened = []

    def open_page(page: str, scheme: str = "light", width: int = 1280):
        view = contexts[scheme].new_page()
        view.set_viewport_size({"width": width, "height": 900})
        requests, errors = [], []
        view.on("request", lambda request: requests.append(request.url))
        view.on("pageerror", lambda error: errors.append(str(error)))
        opened.append((view, requests, errors))
        view.goto(address + url_of(page), wait_until="load")
        view.wait_for_function(CHARTS_DRAWN)
        unknown = view.evaluate(UNKNOWN_ELEMENTS)
        assert not unknown, f"text that became elements, for want of an escape: {unknown}"
        return view

    yield open_page
    for view, requests, errors in opened:
        view.close()
        outside = [url for url in requests if not url.startswith((address, "data:", "blob:"))]
        assert not outside, f"asked of the network: {outside}"
        assert not errors, f"script errors: {errors}"


def serious_problems(view, scheme: str, **rules) -> list[str]:
    """What axe finds on the page, in the colour scheme that it has to be shown in."""
    shown = view.evaluate("document.body.dataset.mdColorScheme")
    assert shown == {"light": "default", "dark": "slate"}[scheme]
    view.evaluate(
        "document.querySelectorAll('details').forEach(each => { each.open = "
        "each.closest('.doc') === null })"
    )
    view.evaluate(KEEP_ONE_OF_EACH_KIND)
    options = {"resultTypes": ["violations"], **rules}
    return [
        f"{rule['id']}: {node['target']} {node.get('failureSummary', '').splitlines()[1:2]}"
        for rule in axe_api.Axe().run(view, options=options).response["violations"]
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"][:4]
    ]


@pytest.mark.parametrize("page", PAGES)
def test_axe_finds_no_serious_problem(tab, page):
    serious = serious_problems(tab(page), "light")
    assert not serious, "\n".join(serious)


@pytest.mark.parametrize("page", PAGES)
def test_a_phone_scrolls_nothing_sideways_and_the_dark_is_legible(tab, page):
    """One page is loaded for both: its width has nothing to do with its colours."""
    view = tab(page, "dark", width=390)
    assert view.evaluate("document.documentElement.scrollWidth") <= 390
    wide = view.evaluate(
        """(scrollers) => [...document.querySelectorAll(".md-content *")].filter((each) => {
            const box = each.getBoundingClientRect();
            return box.width > 0 && box.right > 391 && !each.closest(scrollers)
                && getComputedStyle(each).position !== "absolute";
        }).slice(0, 5).map((each) => each.outerHTML.slice(0, 120))""",
        SCROLLERS,
    )
    assert not wide, wide
    view.set_viewport_size({"width": 1280, "height": 900})
    # Nothing but colours differs in the dark.
    serious = serious_problems(view, "dark", runOnly=["color-contrast"])
    assert not serious, "\n".join(serious)


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("math/")])
def test_mathematics_shows_without_script(browser, address, page):
    """MathML has a size, in the font that came with the site, and no LaTeX is left over; JavaScript
    is off."""
    context = browser.new_context(java_script_enabled=False)
    view = context.new_page()
    view.goto(address + url_of(page))
    for formula in view.locator("math").all()[:60]:
        box = formula.bounding_box()
        assert box and box["width"] > 2 and box["height"] > 2
    body = view.locator(".md-content").inner_text()
    context.close()
    assert not re.search(r"\\(frac|sum|mathbb|operatorname|eqref|begin)\b", body)


def test_the_mathematics_font_is_loaded(tab):
    view = tab("math/softmax")
    assert view.evaluate(
        "document.fonts.ready.then(() => document.fonts.check('16px \"STIX Two Math\"'))"
    )
    assert view.evaluate(
        "[...document.fonts].some((font) => font.family.includes('STIX Two Math') && "
        "font.status === 'loaded')"
    )


def test_the_stepper_steps_by_keyboard(tab):
    view = tab("math/online")
    figure = view.locator(".stepper")
    status = figure.locator("[role=status]")
    assert "Column 1" in status.inner_text() and "m = −∞ and d = 0" in status.inner_text()
    figure.locator("button", has_text="Next column").focus()
    view.keyboard.press("Enter")
    assert "Column 2" in status.inner_text() and "1.3679" in status.inner_text()
    assert figure.locator("tr[aria-current=step] td").first.inner_text() == "2"
    view.keyboard.press("End")
    assert "1.5032" in status.inner_text()
    assert (
        view.evaluate("document.activeElement.textContent") == "Back"
    )  # `Next column` is disabled now
    view.keyboard.press("Home")
    assert "Column 1" in status.inner_text()
    figure.locator("select").select_option("2")
    figure.locator("button", has_text="Next column").press("End")
    assert "Column 7" in status.inner_text()


def test_the_stepper_takes_a_row_that_is_typed(tab):
    """Computed in the browser, and what the reference finds."""
    view = tab("math/online")
    figure = view.locator(".stepper")
    status = figure.locator("[role=status]")
    field = figure.locator("input")
    field.fill("-inf, 3, one")
    field.press("Enter")
    assert "Type numbers" in status.inner_text()
    row = (-float("inf"), 3.0, -1.5, 4.25, 4.25, 0.0)
    field.fill("-inf 3; −1.5, 4.25,4.25, 0")
    field.press("Enter")
    assert "Column 1 is −∞" in status.inner_text()
    shown = figure.locator("table:visible tbody tr").all()
    steps = online_steps(np.array(row))
    assert len(shown) == len(steps)
    for line, step in zip(shown, steps):
        scale, term, d = line.locator("td").all_text_contents()[3:]
        assert (scale, term, d) == tuple(f"{value:.4f}" for value in step[4:] + (step.d,))


def test_the_stepper_plays_and_pauses(tab):
    view = tab("math/online")
    figure = view.locator(".stepper")
    figure.locator("button", has_text="Play").click()
    playwright_api.expect(figure.locator("[role=status]")).to_contain_text("Column 3", timeout=9000)
    assert figure.locator("button", has_text="Play").is_visible()


def test_the_stepper_honours_reduced_motion(tab):
    view = tab("math/online")
    for part in (".stepper-room > .is", ".stepper-part"):
        duration = view.evaluate(
            "(part) => getComputedStyle(document.querySelector(part)).transitionDuration", part
        )
        assert duration == "0s"


def test_the_stepper_is_a_table_without_script(browser, address):
    context = browser.new_context(java_script_enabled=False)
    view = context.new_page()
    view.goto(address + "math/online/")
    assert view.locator(".stepper table").count() == 3
    assert view.locator(".stepper table").nth(2).locator("tbody tr").count() == 7
    assert view.locator(".stepper button").count() == 0
    assert "1.5032" in view.locator(".stepper").inner_text()
    context.close()
