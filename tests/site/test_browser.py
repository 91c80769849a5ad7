"""A browser that dies in the middle of a run."""

import os
import signal

import pytest

from browser import Chromium, Tab, Windows, served

pytestmark = pytest.mark.browser


def kill(chromium: Chromium) -> None:
    """End the process of the browser, as a machine without memory does."""
    session = chromium.browser.new_browser_cdp_session()
    processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    (browser,) = (each["id"] for each in processes if each["type"] == "browser")
    os.kill(browser, signal.SIGKILL)


@pytest.fixture
def mortal(chromium):
    """A browser of this test alone."""
    other = Chromium(chromium.playwright)
    yield other
    other.close()


def test_a_dead_browser_is_started_anew_once_and_its_tabs_with_it(mortal, tmp_path):
    (tmp_path / "404.html").write_text("<title>Nowhere</title>")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").write_text(f"<title>{name}</title>")
    with served(tmp_path) as address:
        windows = Windows(mortal, address)
        tab = Tab(windows, address).open("a")
        assert tab.view.title() == "a" and mortal.starts == 1
        first = windows()
        kill(mortal)
        tab.again()
        assert tab.view.title() == "a" and mortal.starts == 2 and windows() is not first
        assert tab.open("b").view.title() == "b" and mortal.starts == 2
        kill(mortal)
        with pytest.raises(pytest.fail.Exception, match="for the second time"):
            tab.open("a")
        tab.close()
