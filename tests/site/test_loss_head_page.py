"""The loss head and softmax with maps: what pages say of their speed follows from the data."""

from __future__ import annotations

import copy
import re

import pytest

from made_data import data
from softmax_bench.report import by_case
from softmax_bench.roster import CHOOSER, COPY
from softmax_site.benchmarks.suites import PAGES
from softmax_site.benchmarks.suites.loss_head import VOCABULARIES, maps_fragment, speeds
from softmax_site.figures.home import limits


@pytest.fixture
def made():
    return copy.deepcopy(data(("loss_head",)))


def not_reached(made: dict) -> None:
    for row in made["rows"]:
        if row["op"] == "mapped_softmax":
            row |= {"status": "not_run", "reason": "the time given was used up", "us": None}


def test_the_table_has_an_aligned_and_an_odd_vocabulary(made):
    aligned, odd = VOCABULARIES
    assert aligned % 8 == 0 and odd % 2 == 1
    text = speeds(made).text
    assert len(re.findall(r'<th scope="row">', text)) == 4
    for vocabulary in VOCABULARIES:
        assert len(re.findall(rf"> ?[\d,]+ × {vocabulary:,}, ", text)) == 2


def test_the_table_follows_the_data(made):
    """A time of ours that is doubled halves the share of the copy; a library that fails says so."""
    rows = [row for row in made["rows"] if row["op"] == "cross_entropy"]
    group = next(
        group
        for group in by_case(rows).values()
        if (row := group[CHOOSER])["direction"] == "forward_backward"
        and row["inputs"] == "normal"
        and (row["dtype"], row["shape"][1]) == ("bfloat16", VOCABULARIES[1])
    )
    group[CHOOSER]["us"] = {name: 4 * group[COPY]["us"][name] for name in group[CHOOSER]["us"]}
    group["quack"] |= {"status": "failed", "reason": "it broke", "us": None}
    text = speeds(made).text
    (line,) = (each for each in re.findall("<tr>.*?</tr>", text) if ">0.25<" in each)
    assert f"{VOCABULARIES[1]:,}, bfloat16" in line and ">failed</a>" in line
    assert f"<b>{group[CHOOSER]['us']['p50']:,.1f}</b>" in line and "it broke" in text


def test_maps_are_said_not_to_be_timed_until_they_are(made):
    (masked, *_) = (row for row in made["rows"] if row["op"] == "mapped_softmax" and row["us"])
    assert "<th" in maps_fragment(made).text and "plain softmax" in maps_fragment(made).text
    before = maps_fragment(made).text
    masked["us"] = {**masked["us"], "p50": 98765.4}
    assert "98,765.4" in maps_fragment(made).text and "98,765.4" not in before
    assert "masks and scales" not in limits(made, None)
    assert "Not measured:" not in PAGES["loss_head"](made).fragments["bench-loss_head"].text
    not_reached(made)
    assert "has not been timed" in maps_fragment(made).text
    assert "masks and scales" in limits(made, None)
    text = PAGES["loss_head"](made).fragments["bench-loss_head"].text
    assert "Not measured:" in text and "causal softmax, bfloat16" in text
