"""The page of shapes drawn at random: what its numbers say follows from the rows."""

import copy
import re

import pytest

from made_data import as_read, data, turns
from site_build import ROOT
from softmax_bench.random_shapes import SEED
from softmax_bench.report import by_case
from softmax_bench.roster import CHOOSER, EVERYWHERE
from softmax_site.benchmarks.quoted import Drawn
from softmax_site.benchmarks.views import fragments


@pytest.fixture(scope="module")
def made():
    """Ours at half its speed in a tenth of the cells."""
    found, slow = data(("random",)), 0
    for row in found["rows"]:
        if row["us"] and row["provider"] == CHOOSER:
            slow += 1
            if slow % 10 == 0:
                row["us"] = {name: 2 * us for name, us in row["us"].items()}
                row["us_turns"] = turns(row["us"]["p50"])
        if row["us"] and row["us"]["p50"] < 10:
            row["us_warm"] = row["us"]
    return found


def drawn_of(rows):
    return Drawn(by_case(rows).values())


def test_the_distribution_adds_up(made):
    drawn, text = drawn_of(made["rows"]), fragments(as_read(made)).fragments
    assert drawn.seed == SEED
    behind = drawn.behind
    assert 0 < behind < drawn.cases == drawn.ahead + drawn.level + behind
    picture = text["bench-random"].text
    assert len(re.findall('class="behind(?: hollow)?"', picture)) == behind
    assert len(re.findall('class="ours(?: hollow)?"', picture)) == drawn.cases - behind
    assert picture.count('hollow"') == drawn.uncompiled.cases
    found = [float(each) for each in re.findall(r"[▼=▲] ([\d.]+)", text["random-worst"].text)]
    assert len(found) == 10 and found == sorted(found)
    assert found[0] == pytest.approx(min(drawn.factors), abs=0.01)
    assert drawn.worst.factor == min(drawn.factors)
    assert drawn.compiled.cases + drawn.uncompiled.cases == drawn.cases
    assert drawn.small.cases == len(drawn.warm) > 0


def test_how_many_rivals_answered_is_said(made):
    """A brute count, beside the names that the page and the home page use."""
    drawn = drawn_of(made["rows"])
    right = {
        name: sum(group.get(name, {}).get("status") == "ok" for group in drawn.groups)
        for name in EVERYWHERE
    }
    assert {name: each.right for name, each in drawn.answered.items()} == right
    assert all(sum(each) == drawn.measured for each in drawn.answered.values())
    assert right["torch.compile"] == drawn.compiled.cases < drawn.cases
    assert right["quack"] == 0
    for page in ("index", "benchmarks/random"):
        text = (ROOT / f"docs/{page}.md").read_text("utf8")
        assert "random.compiled.cases" in text and "random.compiled.behind" in text, page


def test_where_the_time_of_the_smallest_goes(made):
    """Medians, cold and warm, of what moves no more than the smallest."""
    rows = copy.deepcopy(made["rows"])
    for row in rows:
        if row["provider"] in (CHOOSER, "copy") and row["us"]:
            ours = row["provider"] == CHOOSER
            row["us"] = {**row["us"], "p50": 6.0 if ours else 5.0}
            row["us_warm"] = {"p50": 5.5 if ours else 4.75}
    tiny = drawn_of(rows).tiny
    assert tiny.count > 0 and tiny.kibibytes == 64
    assert [tiny.cold, tiny.copied, tiny.fetching, tiny.softmax] == [6.0, 5.0, 0.5, 0.75]
    wrong = next(row for row in rows if row["provider"] == CHOOSER and row["status"] == "ok")
    wrong |= {"status": "wrong", "us": None}
    assert drawn_of(rows).cases == drawn_of(made["rows"]).cases, "a wrong answer of ours counts"


def test_rows_past_every_limit_and_steps_inside_torch_compile():
    text = fragments(as_read(data(("longest", "compiled")))).fragments
    longest, compiled = (text[f"bench-{name}"].text for name in ("longest", "compiled"))
    assert "the copy's time" in longest and "67,108,867" in longest
    assert "reduce-overhead" in compiled and "torch's time" in compiled
