"""Several GPUs: tables and sentences follow from the file of the measurement."""

import json
import re

import pytest

from site_build import ROOT
from softmax_site.benchmarks import ranks
from softmax_site.benchmarks.page import NOT_MEASURED
from softmax_site.benchmarks.words import side


@pytest.fixture
def data():
    """The file, as if all runs were of what is launched today."""
    found = json.loads((ROOT / ranks.FILE).read_text("utf8"))
    for run in found["runs"]:
        run |= {"changed": 0, "calls": 12}
    return found


def row(data: dict, call: str, n_ranks: int = 2, n_rows: int = 512) -> dict:
    run = next(run for run in data["runs"] if run["ranks"] == n_ranks)
    return next(each for each in run["rows"] if (each["call"], each["rows"]) == (call, n_rows))


def line(text: str, name: str) -> list[str]:
    """The cells of a row of a table, without their tags."""
    (found,) = (each for each in re.findall(r"<tr\b.*?</tr>", text) if f">{name}<" in each)
    return [re.sub("<[^>]+>", "", cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", found)]


def test_every_point_has_a_row_in_each_table(data):
    there = {f"{each.ranks} ranks, {each.rows:,} rows" for each in ranks.points(data)}
    growing = [[row for row in run["rows"] if "total" not in row] for run in data["runs"]]
    assert len(there) == sum(len({row["rows"] for row in rows}) for rows in growing)
    for text in (ranks.compared(data, each).text for each in (ranks.SOFTMAX, ranks.LOSS)):
        assert set(re.findall(r'<th scope="row">(.*?)</th>', text)) == there


def height(text: str) -> float:
    """Of our first mark, in per cent from the top."""
    return float(re.findall(r'<circle class="ours" cx="8.33%" cy="([\d.]+)%"', text)[0])


@pytest.mark.parametrize("call", [ranks.SOFTMAX, ranks.LOSS])
def test_tables_and_plots_follow_the_file(data, call):
    """A time of ours that is longer than that of others is shown, counted as behind where it is,
    and higher in the plot, with its numbers under the pointer."""
    ours = row(data, call)
    before = ranks.compared(data, call).text
    assert line(before, "2 ranks, 512 rows")[2].startswith(f"{ours['us']:,.0f} ")
    assert len(re.findall('<circle class="ours" cx', before)) == 6 + 1  # the last is its key
    assert before.count('data-tip="') == 6 and f'data-href="#ranks-{call}-2-512"' in before
    assert f'<tr id="ranks-{call}-2-512">' in before
    point = next(each for each in ranks.points(data) if (each.ranks, each.rows) == (2, 512))
    best = min(us for other in ranks.OTHERS[call] if (us := point.us(other)))
    ours["us"] = 4 * best
    after = ranks.compared(data, call).text
    cells = line(after, "2 ranks, 512 rows")
    assert cells[1] == "▼ 0.25" and cells[2].startswith(f"{4 * best:,.0f} ")
    quote = ranks.Quote(list(ranks.points(data)), call)
    assert [side(each) for each in quote.range].count("behind") == 1
    assert quote.range.low == pytest.approx(0.25)
    assert line(after, "4 ranks, 512 rows") == line(before, "4 ranks, 512 rows")
    assert height(after) < height(before) and f"ours {4 * best:,.0f} µs" in after


def test_the_words_on_processor_and_formula_follow_the_file(data):
    """Where the processor takes longer than the GPU is counted."""
    for at, point in enumerate(ranks.points(data)):
        for call in point.calls.values():
            call.pop("sustained_us", None)
        point.calls[ranks.LOSS] |= {"us": 100.0, "host_us": 150.0 if at < 2 else 50.0}
    quote = ranks.quoted(data).loss
    assert (quote.held_up, quote.count) == (2, 3)
    for other in set(ranks.OTHERS[ranks.LOSS]).intersection(point.calls):
        row(data, other)["host_us"] = 1500.0  # beside our 150, and more than the GPU takes
    assert ranks.quoted(data).loss.back_to_back[0] == pytest.approx(10)
    for point in ranks.points(data):
        point.calls[ranks.LOSS]["us"] = 1.1 * ranks.predicted_us(point)
    assert ranks.quoted(data).loss.of_formula == pytest.approx([1.1] * 3)


def test_a_call_that_ran_out_of_memory_is_a_dash(data):
    other = row(data, "softmax, DTensor of PyTorch", 4, 8192)
    for name in ("us", "us_p20", "us_p80", "host_us"):
        other.pop(name, None)
    other["error"] = "out of memory"
    cells = line(ranks.compared(data, ranks.SOFTMAX).text, "4 ranks, 8,192 rows")
    assert "–" in cells and any("no right answer" in each for each in cells)


def test_an_older_run_is_shown_and_not_spoken_of(data):
    """Its numbers stay in the tables; sentences are about today's code."""
    before, points = ranks.compared(data, ranks.LOSS).text, ranks.quoted(data).loss.count
    older = "an older version of ours, commit `0123abc`"
    data["runs"][1] |= {"changed": 3, "commit": "0123abc"}
    after = ranks.compared(data, ranks.LOSS).text
    assert line(after, "4 ranks, 512 rows") == line(before, "4 ranks, 512 rows")
    assert (points, ranks.quoted(data).loss.count) == (3, 3)
    assert older not in before and older in after
    assert ranks.compared(data, ranks.LOSS).measured.changed == 0


def test_pushed_words_follow_the_file(data):
    text = ranks.compared(data, ranks.SOFTMAX).text
    pushed, alone = (row(data, f"softmax, {name}")["us"] for name in ("words pushed", "part alone"))
    cells = line(text, "2 ranks, 512 rows")
    assert f"{pushed:,.0f}" == cells[3] and f"{alone:,.0f}" in cells[4:]
    for point in ranks.points(data):
        if pushed := point.calls.get(f"softmax, {ranks.PUSHED}"):
            pushed["us"] = 1.5 * point.calls["softmax, part alone"]["us"]
    assert ranks.quoted(data).softmax.pushed_alone[0] == pytest.approx(1.5)
    for run in data["runs"]:
        run["rows"] = [each for each in run["rows"] if ranks.PUSHED not in each["call"]]
    assert "pushed" not in ranks.compared(data, ranks.SOFTMAX).text


def test_matrices_that_ranks_share_follow_the_file(data):
    """In charts and tables of their own, over one rank too; nothing else changes."""
    before = [ranks.compared(data, each).text for each in (ranks.SOFTMAX, ranks.LOSS)]
    for run in data["runs"]:
        run["rows"] = [row for row in run["rows"] if "total" not in row]
    assert ranks.shared(data) == NOT_MEASURED
    data["runs"] = [run for run in data["runs"] if run["ranks"] > 1]
    data["runs"].append({**data["runs"][0], "ranks": 1, "rows": []})
    for run in data["runs"]:
        matrix = {"rows": 64, "columns": 152_064 // run["ranks"], "total": 152_064}
        for call in ("softmax", "cross-entropy"):
            for name, us in ((call, 30.0), (f"{call}, DTensor of PyTorch", 60.0)):
                times = {"us": us / run["ranks"], "host_us": 9.0}
                run["rows"].append({"call": name, **matrix, **times})
    after = ranks.shared(data).text
    rows = [re.sub("<[^>]+>", "|", each) for each in re.findall(r"<tr\b.*?</tr>", after)]
    ours = [each for each in rows if "64 × 152,064" in each]
    assert len(ours) == 2 * 3
    for n, us, times in ((1, 30, 1.0), (2, 15, 2.0), (4, 8, 4.0)):
        (shown, _) = [each for each in ours if f"|{n}|" in each]
        assert f"|{us}|" in shown and f"|{times:.2f} ×|" in shown
    assert after.count('<circle class="ours" cx') == 2 * (3 + 1)  # the last of each is its key
    assert before == [ranks.compared(data, each).text for each in (ranks.SOFTMAX, ranks.LOSS)]
    assert ranks.quoted(data).softmax.count == 3


def test_the_formula_takes_its_constants_from_the_file(data):
    point = next(each for each in ranks.points(data) if (each.ranks, each.rows) == (4, 8192))
    copied, message = point.calls["copy"]["us"], point.calls["message"]["us"]
    # A copy moves each element twice, the formula three times.
    assert ranks.predicted_us(point) == pytest.approx(1.5 * copied + message)
    cells = line(ranks.formula(data).text, "4 ranks, 8,192 rows")
    assert cells[1] == "1,024 MiB each" and cells[4] == f"{1.5 * copied + message:,.0f}"
    assert cells[5].startswith(f"{point.calls['softmax']['us']:,.0f} (")
    row(data, "copy", 4, 8192)["us"] *= 2
    changed = line(ranks.formula(data).text, "4 ranks, 8,192 rows")
    assert changed[4] == f"{3 * copied + message:,.0f}" and changed[3] == cells[3]


def test_the_formula_is_the_one_on_the_page(data):
    """The lines that the page shows give what the module computes."""
    page = (ROOT / "docs/benchmarks/ranks.md").read_text("utf8")
    shown = re.search(r"^ *>>> def seconds.*?(?=^ *```)", page, re.M | re.S)
    exec(re.sub(r"^ *(>>>|\.\.\.) ", "", shown[0], flags=re.M), names := {})
    for point in ranks.points(data):
        message, columns = point.calls["message"]["us"] * 1e-6, point.columns * point.ranks
        given = point.ranks, point.rows, columns, ranks.ITEMSIZE, point.memory, message
        assert 1e6 * names["seconds"](*given) == pytest.approx(ranks.predicted_us(point))


def test_without_the_file_the_page_says_so(tmp_path):
    assert set(ranks.fragments(tmp_path).values()) == {NOT_MEASURED}
    assert set(ranks.fragments(tmp_path)) == set(ranks.fragments(ROOT))
