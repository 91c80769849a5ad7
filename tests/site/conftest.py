"""Chromium and its tabs; what a test does with them is told in `tests/browser.py`."""

import contextlib

import pytest

from browser import CHROMIUM, DESKTOP, DIED, HEIGHT, PAGES, Chromium, Tab, Windows, served


@pytest.fixture(scope="session")
def chromium():
    """The browser, one for each worker."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium: apt install chromium")
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    with api.sync_playwright() as playwright:
        browser = Chromium(playwright)
        yield browser
        browser.close()


@pytest.fixture(autouse=True)
def chromium_lives(request):
    """Say of the test in which the browser dies that this is why it fails."""
    yield
    if CHROMIUM is not None and "chromium" in request.fixturenames:
        browser = request.getfixturevalue("chromium")
        if browser.browser is not None and not browser.lives() and browser.starts < 2:
            pytest.fail(f"{DIED}. It is started anew for the next test, once.", pytrace=False)


@pytest.fixture(scope="session")
def address(site):
    """Where the built site is served."""
    with served(site) as address:
        yield address


@pytest.fixture(scope="session")
def context_of(chromium, address):
    """The windows of each kind."""
    return Windows(chromium, address)


@pytest.fixture(scope="session")
def open_tab(context_of, address):
    """Open a tab of the usual size, in the light, with or without script."""
    size = {"width": DESKTOP, "height": HEIGHT}
    usual = {"viewport": size, "color_scheme": "light", "reduced_motion": "reduce"}

    def show(script: bool = True, kind: str = "") -> Tab:
        return Tab(lambda: context_of(kind, java_script_enabled=script, **usual), address)

    return show


@pytest.fixture
def opened_with(context_of, address):
    """Open a page in a window of which more is said."""
    with contextlib.ExitStack() as stack:

        def show(page: str, **options):
            tab = Tab(lambda: context_of(**options), address)
            stack.callback(tab.close)
            return tab.open(page).view

        yield show


@pytest.fixture(scope="session")
def shared_tab(open_tab):
    """The tab that shows page after page."""
    return open_tab(kind="page after page")


@pytest.fixture(scope="session", params=PAGES)
def opened(shared_tab, request):
    """A page, opened once for all its checks."""
    yield shared_tab.open(request.param)
    shared_tab.check()


@pytest.fixture
def page(opened):
    """Each page of the site in turn, at its usual size and in the light."""
    opened.again()
    opened.resize(DESKTOP)
    opened.show("light")
    return opened


@pytest.fixture
def tab(open_tab):
    """A tab for this test alone."""
    tab = open_tab()
    yield tab
    tab.close()
    tab.check()


@pytest.fixture(scope="session")
def tab_without_script(open_tab):
    """A tab that runs no script."""
    return open_tab(script=False)
