"""The plots of the mathematics: their numbers, and what their captions and pages say of them."""

from __future__ import annotations

import re
import xml.etree.ElementTree as etree

import numpy as np
import pytest

from softmax_site.computed import math_figures as figures
from softmax_site.computed import rounding_table
from triton_softmax.reference import softmax_naive_numpy

FILES = figures.generate()


def panels(path: str) -> list[etree.Element]:
    """The SVG of a figure, which has to be well formed."""
    return [etree.fromstring(found) for found in re.findall(r"<svg.*?</svg>", FILES[path], re.S)]


@pytest.mark.parametrize("path", FILES)
def test_a_figure_has_a_caption_and_its_panels_are_told_in_words(path):
    assert re.search(r"<figcaption>\S.{60,}</figcaption>", FILES[path])
    assert panels(path)
    for panel in panels(path):
        assert len(panel.get("aria-label") or "") > 40
        assert panel.get("role") == "img"


@pytest.mark.parametrize("path", FILES)
def test_a_panel_fits_a_phone_and_keeps_to_its_frame(path):
    """And has no colour of its own: colours come from the sheet, in both schemes."""
    assert not re.search(r'(?:fill|stroke)="|#[0-9a-f]{3,6}\b', FILES[path])
    for panel in panels(path):
        width, height = float(panel.get("width")), float(panel.get("height"))
        assert width <= 340
        for each in panel.iter():
            for name, most in (("x", width), ("x2", width), ("cx", width), ("y", height)):
                assert each.get(name) is None or -1 <= float(each.get(name)) <= most + 1


def test_the_shares_of_a_shifted_row_are_drawn_three_times():
    shown = [text.text for text in panels("docs/_computed/figure-softmax.md")[0].iter("text")]
    for value in softmax_naive_numpy(figures.WORKED):
        assert shown.count(f"{value:.3f}") == len(figures.SHIFTS)


def test_the_heat_map_shows_every_derivative():
    table = panels("docs/_computed/figure-jacobian.md")[1]
    shown = [text.text for text in table.iter("text") if text.get("class") == "cell"]
    J = np.array([float(text.replace("−", "-")) for text in shown]).reshape(5, 5)
    y = softmax_naive_numpy(figures.ROW)
    np.testing.assert_allclose(J, np.diag(y) - np.outer(y, y), atol=6e-4)


def test_what_leaves_adds_up_to_zero():
    leaves = panels("docs/_computed/figure-vjp.md")[1]
    shown = [text.text for text in leaves.iter("text") if text.get("class") == "small"]
    assert abs(sum(float(text.replace("−", "-")) for text in shown)) < 3e-3


def test_both_trees_end_at_the_same_pair():
    chain, balanced = figures.chain(), figures.balanced()
    assert chain[0] == balanced[0] == max(figures.LEAVES)
    d = np.exp(np.array(figures.LEAVES) - max(figures.LEAVES)).sum()
    np.testing.assert_allclose([chain[1], balanced[1]], d)
    for panel in panels("docs/_computed/figure-merge.md"):
        assert [text.text for text in panel.iter("text")].count(f"d = {d:.4f}") == 1


def test_measured_errors_stay_below_their_bounds_and_a_tree_pays():
    rows = figures.length_errors()
    for row in rows:
        assert 0 < row["chain"] <= row["chain bound"]
        assert 0 < row["tree"] <= row["tree bound"]
    assert rows[-1]["chain"] > 50 * rows[-1]["tree"]
    assert rows[-1]["tree"] < 4  # hardly grows, as the page says


def test_subtracting_first_does_not_feel_the_offset():
    rows = figures.offset_errors()
    for row in rows:
        # The bounds are of first order.
        assert row["first"] <= row["first bound"] * (1 + row["first bound"])
        assert row["after"] <= row["after bound"] * 1.001
        assert row["after"] < 2e-6
    assert rows[-1]["first"] > 1e4 * rows[-1]["after"]


def test_what_a_choice_costs_stays_below_its_bound():
    """And the better way is better by more than a digit."""
    found = rounding_table.choices()
    assert len(found) == 6
    for choice in found:
        for error in (choice.loses, choice.keeps):
            assert 0 < error.measured <= error.bound, choice
        assert choice.keeps.measured < choice.loses.measured / 10, choice.what
