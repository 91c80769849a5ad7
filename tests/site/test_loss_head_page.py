"""The loss head and softmax with masks: what pages say of their speed follows from the data."""

import copy
import re

import pytest

from made_data import as_read, data
from site_build import ROOT
from softmax_bench.report import by_case
from softmax_bench.roster import CHOOSER, COPY
from softmax_site.benchmarks import quoted
from softmax_site.benchmarks.bookkeeping import reasons_fragment
from softmax_site.benchmarks.data import measurements, of_suite
from softmax_site.benchmarks.views import VOCABULARIES, fragments


@pytest.fixture
def made():
    return as_read(copy.deepcopy(data(("loss_head",))))


def text_of(made: dict, name: str) -> str:
    return fragments(made).fragments[name].text


def test_the_table_has_an_aligned_and_an_odd_vocabulary(made):
    aligned, odd = VOCABULARIES
    assert aligned % 8 == 0 and odd % 2 == 1
    text = text_of(made, "loss-head-speeds")
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
    text = text_of(made, "loss-head-speeds")
    (line,) = (each for each in re.findall("<tr>.*?</tr>", text) if ">0.25<" in each)
    assert f"{VOCABULARIES[1]:,}, bfloat16" in line and ">failed</a>" in line
    assert f">{group[CHOOSER]['us']['p50']:,.1f}<" in line
    assert "it broke" in reasons_fragment(made).text


def test_no_call_takes_less_memory_than_its_gradient():
    """Of the committed data: of the losses that write one, in the size of the logits."""
    rows = of_suite(measurements(ROOT), "loss_head", op="cross_entropy", inputs="normal")
    for row in rows:
        if row["direction"] == "forward_backward" and row["provider"] not in ("liger", COPY):
            taken = row.get("peak_bytes", row["bytes"])
            assert row["status"] != "ok" or taken > row["bytes"] / 2 - 1
    assert quoted.memory(rows)["liger"].high < 0.1, "it overwrites its logits, and copies none"


def test_masked_softmax_shows_its_time_or_that_it_has_none(made):
    (masked, *_) = (row for row in made["rows"] if row["op"] == "modified_softmax" and row["us"])
    assert "plain softmax" in text_of(made, "masked-speeds")
    assert "98,765.4" not in text_of(made, "masked-speeds")
    masked["us"] = {**masked["us"], "p50": 98765.4}
    assert "98,765.4" in text_of(made, "masked-speeds")
    masked |= {"status": "not_run", "reason": "the time given was used up", "us": None}
    for name in ("masked-speeds", "bench-loss_head"):
        assert "not_run" in text_of(made, name)
    assert "the time given was used up" in reasons_fragment(made).text
