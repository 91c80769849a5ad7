"""The page of shapes drawn at random: what its numbers say follows from the rows."""

from __future__ import annotations

import copy
import json
import re

import pytest

from made_data import data
from softmax_bench.roster import CHOOSER
from softmax_site.benchmarks.suites import PAGES
from softmax_site.benchmarks.suites.random import (
    SEEDS,
    TIME_IS_UP,
    compared,
    left_out,
    newest_seed,
    over_best,
    scatter,
    tiny_sentence,
    tuning_fragment,
    tuning_sentence,
)
from softmax_site.figures.home import at_random, limits


@pytest.fixture(scope="module")
def made():
    """Two seeds, of which the newer has ours at half its speed in a tenth of the cells."""
    old, new = data(("random",)), data(("random",))
    for row in old["rows"]:
        row |= {"seed": 3, "case": row["case"].replace("seed0", "seed3")}
    slow = 0
    for row in new["rows"]:
        row["utc"] = "2026-11-21T00:00:00Z"
        if row["us"] and row["provider"] == "triton_softmax":
            slow += 1
            if slow % 10 == 0:
                row["us"] = {name: 2 * us for name, us in row["us"].items()}
        if row["us"] and row["us"]["p50"] < 10:
            row["us_warm"] = row["us"]
    return {**new, "rows": old["rows"] + new["rows"]}


def test_the_newest_seed_is_the_one_on_the_page(made):
    assert {row["seed"] for row in newest_seed(made["rows"])} == {0}
    text = PAGES["random"](made).fragments["bench-random"].text
    assert "cells that seed 0 drew" in text and "seed3" not in text


def test_where_the_time_of_the_smallest_goes():
    def group(us, warm, copied, copied_warm, size=2**16):
        rows = {"triton_softmax": (us, warm), "copy": (copied, copied_warm)}
        return {
            name: {"status": "ok", "bytes": size, "us": {"p50": cold}, "us_warm": {"p50": hot}}
            for name, (cold, hot) in rows.items()
        }

    tiny, larger = group(6.0, 5.5, 5.0, 4.75), group(60.0, 55.0, 50.0, 47.0, 2**16 + 2)
    assert tiny_sentence([larger]) == ""
    text = tiny_sentence([tiny, larger, tiny, group(9.0, 5.5, 5.0, 1.0)])
    assert "The 3 smallest" in text and "64 KiB" in text
    assert "take 6.0 µs in the median, and a copy of them 5.0 µs" in text
    assert "adds 0.5 µs" in text and "moving the elements, 0.8 µs" in text


def test_the_distribution_adds_up(made):
    groups = compared(newest_seed(made["rows"]))
    ratios = [over_best(group) for group in groups]
    behind = sum(ratio < 0.98 for ratio in ratios)
    text = PAGES["random"](made).fragments["bench-random"].text
    assert 0 < behind < len(groups) and f"behind in {behind}" in text
    picture = scatter(groups, "a title")
    assert picture.count('class="behind"') == behind
    assert picture.count('class="ours"') == len(groups) - behind
    assert "with a warm one" in text
    worst = text.split("## The worst ten")[1].split("</table>")[0]
    found = [float(each) for each in re.findall(r"[▼=▲] ([\d.]+)", worst)]
    assert len(found) == 10 and found == sorted(found)
    assert found[0] == pytest.approx(min(ratios), abs=0.01)


def test_cells_that_were_not_reached_are_said_and_count_for_nobody(made):
    rows = copy.deepcopy(newest_seed(made["rows"]))
    assert left_out(rows) == ""
    before = compared(rows)
    halves = [row for row in rows if row["provider"] == CHOOSER and row["dtype"] == "float16"]
    for row in halves:
        row |= {"status": "not_run", "reason": TIME_IS_UP, "us": None}
    halves[0]["reason"] = "disturbed: said the machine"
    late = len(halves) - 1
    said = left_out(rows)
    assert f"before {late} of them" in said and f": {late} of {len(halves)} in float16." in said
    assert "1 more has no time of ours" in said and "float32" not in said
    assert "left out" not in said and "2 are left out" in left_out(
        [row for row in rows if row["case"] not in {row["case"] for row in halves[:2]}]
    )
    assert len(compared(rows)) == len(before) - len(halves)
    wrong = next(row for row in rows if row["provider"] == CHOOSER and row["status"] == "ok")
    wrong |= {"status": "wrong", "us": None}
    assert len(compared(rows)) == len(before) - len(halves), "a wrong answer still counts"


def test_the_front_page_says_the_same(made):
    groups = compared(newest_seed(made["rows"]))
    behind = sum(over_best(group) < 0.98 for group in groups)
    said = at_random(made)
    assert f"On {len(groups)} [" in said and f"slower in {behind}" in said
    level = re.search(r"in (\d+) %", said)[1]
    assert f"at least level in {level} %" in PAGES["random"](made).fragments["bench-random"].text
    assert at_random({"rows": []}) == ""
    assert f"faster in {behind} of {len(groups)} cases" in limits(made, None)
    assert "at random" not in limits({"rows": []}, None)


def test_seeds_of_the_tuning_stand_apart(tmp_path):
    assert "No seed" in tuning_fragment(tmp_path).text
    seed = {"seed": 8, "cells": 320, "level": 0.9, "over_best": 1.2, "worst": 0.7}
    path = tmp_path / SEEDS
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps([{**seed, "over_torch": 2.2, "of_copy": 0.8}]), encoding="utf-8")
    assert "90 %" in tuning_fragment(tmp_path).text and ">1.20<" in tuning_fragment(tmp_path).text


def test_a_seed_of_the_tuning_is_compared_in_what_is_alike(made):
    seed = {"seed": 8, "cells": 320, "against": ["torch"], "over_best": 1e-3, "of_copy": 0.5}
    text = tuning_sentence(seed, made["rows"])
    assert "0.50 on seed 8" in text and "torch alone" in text and "times higher" in text
    assert "times lower" in tuning_sentence({**seed, "over_best": 1e3}, made["rows"])
    assert tuning_sentence({**seed, "against": []}, made["rows"]) == ""
    assert tuning_sentence(seed, []) == ""


def test_rows_past_every_limit_and_steps_inside_torch_compile():
    made = data(("longest", "compiled"))
    longest = PAGES["longest"](made).fragments["bench-longest"].text
    assert "the copy’s time" in longest and "67,108,867" in longest
    compiled = PAGES["compiled"](made).fragments["bench-compiled"].text
    assert "reduce-overhead" in compiled and "torch’s time" in compiled
