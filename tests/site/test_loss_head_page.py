"""The loss head and softmax with masks: what pages say of their speed follows from the data."""

import copy
import re

import pytest

from made_data import data
from softmax_bench.report import by_case
from softmax_bench.roster import CHOOSER, COPY, LIBRARIES
from softmax_site.benchmarks import quoted
from softmax_site.benchmarks.bookkeeping import reasons_fragment
from softmax_site.benchmarks.quoted import less_its_copy
from softmax_site.benchmarks.views import VOCABULARIES, fragments
from softmax_site.figures import home


@pytest.fixture
def made():
    return copy.deepcopy(data(("loss_head",)))


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


def with_peaks(made: dict, name: str, in_logits: float) -> None:
    """Let calls of a library take so much memory, in sizes of the logits."""
    for row in made["rows"]:
        if row["provider"] == name and row["op"] == "cross_entropy":
            row["peak_bytes"] = int(in_logits * row["bytes"] / 2)


def test_a_copy_that_is_timed_with_liger_is_said_and_taken_off(made):
    """Where its calls with a gradient take as much memory as the logits; and not where they take
    none."""
    for row in made["rows"]:  # it answers at every length, so that there is something to take off
        if row["provider"] == "liger" and row["op"] == "cross_entropy":
            row |= {"status": "ok", "us": {"p20": 900.0, "p50": 900.0, "p80": 900.0}}
    rows = [row for row in made["rows"] if row["op"] == "cross_entropy"]
    groups = by_case(rows).values()
    for in_logits, said in ((1.0, True), (0.001, False)):
        with_peaks(made, "liger", in_logits)
        for name in ("bench-loss_head", "loss-head-speeds"):
            assert (
                "Liger's loss writes its gradient over the logits" in text_of(made, name)
            ) == said
        taken = [us for group in groups if (us := less_its_copy(group))]
        wanted = [
            900.0 - group[COPY]["us"]["p50"]
            for group in groups
            if group[CHOOSER]["direction"] == "forward_backward" and said
        ]
        assert taken == pytest.approx(wanted)
    for name in (CHOOSER, COPY, *LIBRARIES):
        with_peaks(made, name, 1.0)
    last = [row["case"] for row in rows if row["provider"] == "liger"][-1]
    drawn = home.loss([row for row in rows if row["case"] == last])
    assert "… less its copy" in drawn


def test_memory_that_cannot_be_is_left_out(made):
    """A call that makes a gradient takes at least as much as that."""
    with_peaks(made, "torch", 3.0)
    with_peaks(made, "torch.compile", 0.01)
    text = text_of(made, "bench-loss_head")
    assert "Left out as wrong, being less than the gradient alone: torch.compile at" in text
    assert quoted.memory(made["rows"])["torch"].low == pytest.approx(3.0)
    assert "torch.compile" not in quoted.memory(
        [r for r in made["rows"] if r["inputs"] == "normal"]
    )


def test_masked_softmax_shows_its_time_or_that_it_has_none(made):
    (masked, *_) = (row for row in made["rows"] if row["op"] == "mapped_softmax" and row["us"])
    assert "plain softmax" in text_of(made, "masked-speeds")
    assert "98,765.4" not in text_of(made, "masked-speeds")
    masked["us"] = {**masked["us"], "p50": 98765.4}
    assert "98,765.4" in text_of(made, "masked-speeds")
    masked |= {"status": "not_run", "reason": "the time given was used up", "us": None}
    for name in ("masked-speeds", "bench-loss_head"):
        assert "not_run" in text_of(made, name)
    assert "the time given was used up" in reasons_fragment(made).text
