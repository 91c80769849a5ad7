"""Chromium and its tabs; what a test does with them is told in `tests/browser.py`."""

from __future__ import annotations

import contextlib

import pytest

from browser import CHROMIUM, DESKTOP, FLAGS, HEIGHT, PAGES, Tab, served


@pytest.fixture(scope="session")
def chromium():
    """The browser, one for each worker."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium: apt install chromium")
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def address(site):
    """Where the built site is served."""
    with served(site) as address:
        yield address


@pytest.fixture(scope="session")
def open_tab(chromium, address):
    """Open a tab of the usual size, in the light, with or without script."""
    with contextlib.ExitStack() as stack:

        def new(script: bool = True) -> Tab:
            context = chromium.new_context(
                viewport={"width": DESKTOP, "height": HEIGHT},
                color_scheme="light",
                reduced_motion="reduce",
                java_script_enabled=script,
            )
            stack.callback(context.close)
            return Tab(context, address)

        yield new


@pytest.fixture(scope="session")
def shared_tab(open_tab):
    """The tab that shows page after page."""
    return open_tab()


@pytest.fixture(
    scope="session",
    params=[pytest.param(page, marks=pytest.mark.xdist_group(page)) for page in PAGES],
)
def opened(shared_tab, request):
    """A page, opened once for all its checks."""
    yield shared_tab.open(request.param)
    shared_tab.check()


@pytest.fixture
def page(opened):
    """Each page of the site in turn; size and colours are as before when the test ends."""
    yield opened
    opened.resize(DESKTOP)
    opened.show("light")


@pytest.fixture
def tab(open_tab):
    """A tab for this test alone."""
    tab = open_tab()
    yield tab
    tab.view.close()
    tab.check()


@pytest.fixture(scope="session")
def tab_without_script(open_tab):
    """A tab that runs no script."""
    return open_tab(script=False)
