"""The plots of the benchmark pages by keyboard, by touch of a button, and the rows they open."""

import pytest

pytestmark = pytest.mark.browser


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
    button = plot.locator("button", has_text="Liger")
    assert button.get_attribute("aria-pressed") == "false"
    assert plot.locator("g[data-series=liger] text").first.is_hidden()
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert plot.locator("g[data-series=liger] text").first.is_visible()
