"""Pages of the built site in Chromium.

A page is opened once, in the light at desktop width, and every check of it looks at that one tab:

    def test_something(page):                   # runs for each page of the site
        assert page.view.evaluate("…")          # `view` is Playwright's page

    def test_something_on_a_phone(page):
        page.resize(PHONE)                      # put back before the next, like `page.show("dark")`
        assert page.view.evaluate("…")

All tests that take `page`, of whatever file, run page after page, and the tests of a page on one
worker. What a check removes from the page it has to put back. A check that is about one page, or
needs a tab of its own, takes `tab` and calls `tab.open("math/softmax")`; one without script takes
`tab_without_script`. The fixtures are in `tests/site/conftest.py`.

If Chromium dies, the test that it dies in fails and says so; for the next it is started anew, once.
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import shutil
import threading
from collections.abc import Callable
from typing import Any

import pytest

from site_build import ROOT, pages

try:
    from playwright.sync_api import Error
except ImportError:  # then no test has a browser
    Error = OSError

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
FLAGS = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync".split()
FLAGS += ["--disable-background-networking", "--disable-component-update"]
FLAGS += ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
PAGES = [page.relative_to(ROOT / "docs").with_suffix("").as_posix() for page in pages()]
DESKTOP, PHONE = 1366, 360
HEIGHT = 768

OPEN_FOLDS = """document.querySelectorAll(".md-content details:not([open])").forEach((each) => {
    each.open = true; each.dataset.opened = ""; })"""
CLOSE_FOLDS = """document.querySelectorAll("[data-opened]").forEach((each) => {
    each.open = false; delete each.dataset.opened; })"""

TWO_FRAMES = """() => new Promise((done) =>
    requestAnimationFrame(() => requestAnimationFrame(done)))"""
SCHEMES = {"light": "default", "dark": "slate"}
SHOW = """(scheme) => document.querySelector(`input[data-md-color-scheme="${scheme}"]`).click()"""
SETTLED = """(scheme) => document.body.dataset.mdColorScheme === scheme
    && !document.getAnimations().length"""


def url_of(page: str) -> str:
    """Where a page is served, given without its suffix.

    >>> url_of("math/softmax"), url_of("math/index"), url_of("index")
    ('math/softmax/', 'math/', '')
    """
    folder = page.removesuffix("index").rstrip("/")
    return f"{folder}/" if folder else ""


CELL = ".run-cell"
LONG = """
@triton.jit
def largest(x_ptr, m_ptr, n, BLOCK: tl.constexpr):
    row, m = tl.program_id(0), -inf
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        m = tl.maximum(m, tl.max(tl.load(x_ptr + row * n + cols, mask=cols < n, other=-inf)))
    for each in (1, 2):
        m = m + 0.0
    tl.store(m_ptr + row, m)

x, m = Tensor([[1.0] * 2000] * ROWS, name="x"), empty((ROWS,), name="m")
largest[(ROWS,)](x, m, 2000, BLOCK=4)
"""
"""A cell that runs the longer the more ROWS it is given, and is right."""


def ran(cell, text: str | None = None, *, editor: int = -1, press: str = "") -> float:
    """Run the page's first cell, with a text in one of its editors if one is given, by a button or
    from the keyboard, and take the time of it in milliseconds."""
    area = cell.locator("textarea").nth(editor)
    if text is not None:
        area.fill(text)
    if press:
        cell.get_by_role("button", name=press, exact=press == "Run").click()
    else:
        area.press("Control+Enter")
    return finished(cell)


def finished(cell) -> float:
    """Wait until a run has ended, and take the time of it in milliseconds."""
    done = "() => document.querySelector('.run-cell').dataset.took"
    cell.page.wait_for_function(done, timeout=60_000)
    took = float(cell.get_attribute("data-took"))
    cell.evaluate("cell => delete cell.dataset.took")
    return took


class Chromium:
    """The browser, which a busy machine may kill: whoever asks for it next starts it anew, once."""

    def __init__(self, playwright) -> None:
        self.playwright = playwright
        self.starts, self.browser = 0, None

    def now(self):
        """The browser that runs.

        Raises:
            pytest.fail.Exception: it has died twice.
        """
        if self.browser is None or not self.lives():
            if self.starts == 2:
                pytest.fail(f"{DIED}, for the second time. It is not started again.", pytrace=False)
            self.starts += 1
            launch = self.playwright.chromium.launch
            self.browser = launch(executable_path=CHROMIUM, args=FLAGS)
            self.probe = self.browser.new_page()
        return self.browser

    def lives(self) -> bool:
        """Whether it answers."""
        try:
            return self.probe.evaluate("true")
        except Error:
            return False

    def new_context(self, **options):
        """A window of its own."""
        return self.now().new_context(**options)

    def new_page(self):
        """A tab in a window of its own."""
        return self.now().new_page()

    def close(self) -> None:
        """End it."""
        if self.browser is not None:
            self.browser.close()


DIED = "Chromium has died, as it does where memory is short or the machine is busy"


class Windows:
    """The windows of each kind, which share what the browser has fetched and compiled; a kind of
    its own shares nothing. A tab of each stays open, since the next then starts no process."""

    def __init__(self, chromium: Chromium, address: str) -> None:
        self.chromium, self.address = chromium, address
        self.made: dict[tuple, Any] = {}

    def __call__(self, kind: str = "", **options):
        """The window of a kind in the browser that runs."""
        browser = self.chromium.now()
        key = self.chromium.starts, kind, str(options)
        if key not in self.made:
            self.made[key] = browser.new_context(**options)
            self.made[key].new_page().goto(f"{self.address}404.html")
        return self.made[key]


class Tab:
    """One tab, and what the page that it shows has asked for and complained of. `window` finds the
    window that it belongs to, in whatever browser runs."""

    def __init__(self, window: Callable[[], Any], address: str) -> None:
        self.window, self.address = window, address
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.start()

    def start(self) -> None:
        """Open the tab."""
        self.view = self.window().new_page()
        self.width, self.scheme = DESKTOP, "light"
        self.view.on("request", lambda request: self.requests.append(request.url))
        self.view.on("pageerror", lambda error: self.errors.append(str(error)))

    def lives(self) -> bool:
        """Whether it answers."""
        try:
            return self.view.evaluate("true")
        except Error:
            return False

    def again(self) -> None:
        """Open it anew with its page, if the browser has died."""
        if not self.lives():
            self.start()
            self.open(self.page)

    def open(self, page: str) -> Tab:
        """Show a page, given as `PAGES` gives it."""
        self.page = page
        if not self.lives():
            self.start()
        self.resize(DESKTOP)
        if self.scheme != "light":
            self.view.evaluate("localStorage.clear()")
            self.scheme = "light"
        self.view.goto(self.address + url_of(page), wait_until="load")
        return self

    def resize(self, width: int) -> None:
        """Make the window that wide, in CSS pixels, and wait until the page has followed."""
        if width != self.width:
            self.view.set_viewport_size({"width": width, "height": HEIGHT})
            self.view.evaluate(TWO_FRAMES)
            self.width = width

    def show(self, scheme: str) -> None:
        """Change to "light" or "dark" as a reader does, and wait until no colour moves."""
        if scheme != self.scheme:
            self.view.evaluate(SHOW, SCHEMES[scheme])
            self.view.wait_for_function(SETTLED, arg=SCHEMES[scheme])
            self.scheme = scheme

    def close(self) -> None:
        """Leave nothing for the next tab but what was fetched."""
        if not self.lives():
            return
        if self.view.url.startswith(self.address):
            self.view.evaluate("localStorage.clear(); sessionStorage.clear()")
        self.view.close()

    def check(self) -> None:
        """Nothing was asked of the network, and no script has failed."""
        local = (self.address, "data:", "blob:")
        outside = [url for url in self.requests if not url.startswith(local)]
        errors = list(self.errors)
        self.requests.clear()
        self.errors.clear()
        assert not outside, f"{self.page} asked of the network: {outside}"
        assert not errors, f"{self.page}: script errors: {errors}"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def end_headers(self):
        """What one page has fetched, the next need not ask for."""
        self.send_header("Cache-Control", "max-age=3600")
        super().end_headers()


@contextlib.contextmanager
def served(folder, handler=Quiet):
    """The address of a folder, on a port of the system's choice."""
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(handler, directory=str(folder))
    )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()
