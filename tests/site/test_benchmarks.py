"""From data to pages: what is refused, what is marked, and what is said when the data grow old."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import UTC, datetime, timedelta
from math import prod
from pathlib import Path

import markdown
import pytest

from made_data import data, environment, row
from softmax_bench import compare, gpu_report, schema, sources, targets
from softmax_bench.__main__ import main
from softmax_bench.cases import ACCURACY_INPUTS, Case
from softmax_bench.registers import choose
from softmax_bench.report import best_peer
from softmax_bench.roster import CHOOSER, COPY
from softmax_site import rendered
from softmax_site.benchmarks import bookkeeping, heat, notice, overview
from softmax_site.benchmarks.data import DATA, REASONS, anchor, shape_words
from softmax_site.benchmarks.page import ASSETS, Measured
from softmax_site.benchmarks.plots import Column, Plot, Series, draw
from softmax_site.benchmarks.render import render
from softmax_site.benchmarks.rungs import HEADLINES, headline
from softmax_site.benchmarks.suites import PAGES
from softmax_site.benchmarks.suites.accuracy import INPUTS
from softmax_site.benchmarks.suites.articles import gain_sentence
from softmax_site.benchmarks.suites.strides import gap_share
from softmax_site.benchmarks.tables import Reasons, case_table
from softmax_site.benchmarks.words import PAGES as PLACES
from softmax_site.benchmarks.words import reason_groups, verdict_sentence
from softmax_site.kernel_map import GEOMETRIES

ROOT = Path(__file__).resolve().parents[2]
ON_THE_MAP = {entry.module for entry in GEOMETRIES}


def put(root: Path, made: dict, name: str = "made.json") -> Path:
    path = root / DATA / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(schema.dump(made))
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("repository")
    put(root, data())
    return render(root)


def test_the_committed_data_keep_to_the_schema():
    files = list((ROOT / DATA).glob("*.json"))
    assert files
    for path in files:
        assert schema.load(path)["rows"]


def test_the_committed_data_hold_one_row_a_line():
    """So a new measurement shows line by line what has changed."""
    for path in (ROOT / DATA).glob("*.json"):
        text = path.read_text("utf8")
        assert text == schema.dump(json.loads(text)), f"{path.name} is not as `dump` writes it"
        lines = [line for line in text.splitlines() if line.startswith('{"case"')]
        assert len(lines) == len(json.loads(text)["rows"])


def test_rendering_is_stable(tmp_path, made):
    put(tmp_path, data())
    assert render(tmp_path) == made


def test_without_data_the_pages_say_so(tmp_path):
    there = render(tmp_path).fragments
    assert there["bench-forward"].text == there["bench-rung-naive"].text == "Not measured yet.\n"
    assert set(there) == set(render(ROOT).fragments)


def test_what_is_rendered_follows_the_files(tmp_path):
    path = put(tmp_path, data(("host_time",), gpu="Old GPU"))
    (tmp_path / "tests/site").mkdir(parents=True)
    (tmp_path / "tests/site/test_corrections.py").write_text("def test_one():\n    pass\n")
    assert "Old GPU" in rendered.markdown("bench-host_time", tmp_path)
    assert 'id="test-one"' in rendered.markdown("corrections", tmp_path)
    new = schema.dump(data(("host_time",), gpu="New GPU, rather"))
    path.write_text(new)
    rendered.forget()
    assert "New GPU, rather" in rendered.markdown("bench-host_time", tmp_path)
    with pytest.raises(KeyError, match="nothing rendered is named 'nowhere'"):
        rendered.markdown("nowhere", tmp_path)


def test_every_kind_of_input_has_words():
    assert tuple(INPUTS) == ACCURACY_INPUTS


OFFERED = re.compile(r"(?:reaches|moved|fact)-|bench-logsumexp$|traffic-|modules-")
"""Fragments that a page may leave aside."""


def test_every_include_of_the_pages_is_rendered_and_every_measurement_is_included():
    named = {
        name
        for page in (ROOT / "docs").rglob("*.md")
        for name in re.findall(r"^\[\[rendered (.+)\]\]$", page.read_text("utf8"), re.M)
    }
    there = set(rendered.load(ROOT).fragments)
    assert named <= there
    assert not {name for name in there - named if not OFFERED.match(name)}


def test_every_row_is_in_the_csv_of_its_page_and_every_case_in_its_table(made):
    rows_of = data()["rows"]
    for suite in PAGES:
        rows = [r for r in rows_of if r["suite"] == suite]
        page = made.fragments[f"bench-{suite}"].text
        table = list(csv.DictReader(io.StringIO(made.assets[f"{ASSETS}/{suite}.csv"])))
        assert len(table) == len(rows)
        assert {line["gpu"] for line in table} == {"Made-up GPU"}
        if suite not in ("accuracy", "article", "compiles", "host_time", "compiled", "random"):
            for r in rows:
                assert f'id="{anchor(r)}"' in page


def links(text: str) -> list[str]:
    return re.findall(r'(?:data-)?href="([^"]*#[^"]+)"', text)


def test_every_cell_opens_a_row_that_is_there(made):
    """Links that are HTML already, which the strict build does not follow."""
    ids = {
        name: set(re.findall(r'\bid="([^"]+)"', fragment.text))
        for name, fragment in made.fragments.items()
    }
    at = {"bench-overview": "", "bench-targets": "../"}
    at |= dict.fromkeys(("loss-head-speeds", "maps-speed"), "../../benchmarks/")
    suites = {
        page: [f"bench-{s}" for s, p in PLACES.items() if p == page]
        for page in set(PLACES.values())
    }
    followed = 0
    for name, fragment in made.fragments.items():
        for link in links(fragment.text):
            page, _, target = link.partition("#")
            if not page:
                assert target in ids[name], f"{name}: {link}"
            else:
                place = page.removeprefix(at[name]).rstrip("/")
                assert any(target in ids[other] for other in suites[place]), f"{name}: {link}"
            followed += 1
    assert followed > 500


def test_shapes_are_written_as_people_write_them_and_names_of_cases_stay_on_one_page(made):
    names = {r["case"] for r in data()["rows"]}
    for fragment, (text, *_) in made.fragments.items():
        shown = re.sub(r'(?:id|href|data-href)="[^"]*"', "", text).replace("<wbr>", "")
        if fragment != "bench-targets":
            assert not {name for name in names if name in shown}, fragment
    assert "4,067,203 × 33" in made.fragments["bench-forward"].text


def pair(times: float) -> list[dict]:
    """Ours and a torch that takes so many times as long."""
    case = Case("forward", (131072, 1024))
    ours, peer = row(case, CHOOSER), row(case, "torch")
    peer["us"] = {name: value * times for name, value in ours["us"].items()}
    return [ours, peer]


@pytest.mark.parametrize(
    ("times", "said", "cell", "verdict"),
    [
        (1.03, "Ahead in 1 cells</b>, level within 2 % in 0", ">1.03<", "▲ 1.03"),
        (1.01, "Ahead in 0 cells</b>, level within 2 % in 1", ">=<", "= 1.01"),
        (0.99, "Ahead in 0 cells</b>, level within 2 % in 1", ">=<", "= 0.99"),
        (0.97, "behind in 1</b>", ">▼\N{THIN SPACE}0.97<", "▼ 0.97"),
        (0.979, "behind in 1</b>", ">▼\N{THIN SPACE}0.979<", "▼ 0.979"),
    ],
)
def test_ahead_and_behind_begin_equally_far_from_level(times, said, cell, verdict):
    """In the sentence, in the heat map and in the table, by sign and not by colour alone."""
    rows = pair(times)
    assert said in verdict_sentence(rows)
    assert cell in heat.heat_map("", rows, heat.by_dtype(rows, ("forward",)))
    assert verdict in case_table(rows, Reasons("forward", rows))


def test_the_sentence_links_where_we_lose_most():
    rows = pair(0.5)
    assert f'href="#{anchor(rows[0])}"' in verdict_sentence(rows)
    assert "Where we lose" not in verdict_sentence(pair(1.5))


def test_a_heat_map_marks_odd_lengths_and_says_each_cell_in_words(made):
    page = made.fragments["bench-forward"].text
    rows = re.findall(
        r'<tr role="row"( class="odd")?><th role="rowheader" scope="row">'
        r"<span>([\d,]+)</span>",
        page,
    )
    assert rows and all(bool(odd) == (int(n.replace(",", "")) % 2 == 1) for odd, n in rows)
    assert re.search(r'aria-label="forward, bf16, 4,067,203 × 33: [^"]+ the speed of \w+"', page)


def test_the_verdict_stands_right_after_the_shape(made):
    for name in ("forward", "backward", "few_rows", "strided", "log_softmax"):
        heads = re.findall(
            r"<thead><tr>(.*?)</tr></thead>", made.fragments[f"bench-{name}"].text, re.S
        )
        for head in heads:
            columns = re.findall(r"<th[^>]*>(.*?)</th>", head)
            assert columns[:3] == ["shape", "against the best other", "of a copy"]


def test_a_row_without_a_result_links_to_its_reason(made):
    """Not in a title, which neither a finger nor the keyboard reaches."""
    for name in ("forward", "ladder", "accuracy", "few_rows"):
        page = made.fragments[f"bench-{name}"].text
        assert "<abbr" not in page and " title=" not in page
    page = made.fragments["bench-forward"].text
    assert "RuntimeError: too long" in page and "no module | named quack" in page
    target = re.search(r'<a href="#(why-forward-\d+)">failed</a>', page)
    assert target and f'<li id="{target[1]}"><b>Liger</b> failed' in page


def test_reasons_that_differ_in_numbers_alone_are_one():
    rows = [
        row(Case("forward", (2, n)), "quack", reason=f"Input N {n} is not divisible by {v}")
        for n, v in ((33, 4), (129, 8), (781, 8))
    ]
    ((provider, state, reason, members),) = reason_groups(rows)
    assert (provider, state, len(members)) == ("quack", "skipped", 3)
    assert reason == "Input N 33 … 781 is not divisible by 4 or 8"


def test_the_reasons_on_the_page_of_the_environment_are_few():
    text = render(ROOT).fragments["bench-environment"].text
    assert text.count("<tr>", text.index("what it said"), text.index("SHA-256")) <= 20


def test_a_copy_that_is_slow_itself_is_no_baseline():
    """Rows with gaps are compared with the fastest copy of the page, by bytes."""
    even = Case("strided", (8192, 16384), dim=0)
    gaps = Case("strided", (8192, 16384), layout="row_strided")
    rows = [row(even, COPY), row(gaps, COPY), row(gaps, CHOOSER)]
    for r, us in zip(rows, (100.0, 200.0, 104.0), strict=True):
        r["us"] = {"p20": us, "p50": us, "p80": us}
    share = gap_share(rows)({COPY: rows[1], CHOOSER: rows[2]}, CHOOSER)
    assert share == pytest.approx(100 / 104)


def test_the_gain_over_the_naive_lines_is_bytes_times_speeds():
    case = Case("article", (4096, 4096))
    rows = [row(case, COPY), row(case, CHOOSER), row(case, "naive")]
    for r, us in zip(rows, (100.0, 100.0, 500.0), strict=True):
        r["us"] = {"p20": us, "p50": us, "p80": us}
    said = gain_sentence(rows)
    assert "5.0 in the geometric mean, although it moves only 4.00 times less" in said
    assert "4.00 × 1.00 / 0.80 is 5.0" in said


def test_findings_that_the_data_do_not_bear_are_not_made():
    made_up = data()
    good = " ".join(overview.findings(made_up))
    assert "Odd lengths" in good
    for r in made_up["rows"]:
        if r["provider"] == CHOOSER and r["us"]:
            r["us"] = {name: 3 * value for name, value in r["us"].items()}
    bad = " ".join(overview.findings(made_up))
    assert "Odd lengths" not in bad and "does not fit one program" not in bad


def test_headlines_name_their_shape_and_come_from_the_data(made):
    made_up = data()
    for name, asked in HEADLINES.items():
        share, found = headline(made_up, name)
        text = made.fragments[f"reaches-{name}"].text
        assert f"<b>{share:.2f}</b>" in text and shape_words(found) in text
        assert found["provider"] == asked.provider and found["dtype"] == "float32"


@pytest.mark.parametrize("name", [name for name in HEADLINES if name in ON_THE_MAP])
def test_the_number_beside_a_title_is_of_a_shape_that_the_kernel_gets(name):
    shape, dim = HEADLINES[name].shape, HEADLINES[name].dim % len(HEADLINES[name].shape)
    before, along, across = prod(shape[:dim]), shape[dim], prod(shape[dim + 1 :])
    seen = (before, along) if across == 1 else (before, along, across)
    assert choose("softmax", "fp32", seen).kernel == name


def test_every_geometry_has_a_number_beside_its_title():
    assert HEADLINES.keys() >= ON_THE_MAP
    for name in HEADLINES:
        pages = [path.read_text("utf8") for path in (ROOT / "docs/kernels").glob("*.md")]
        assert sum(f"[[rendered reaches-{name}]]" in page for page in pages) == 1, name


def test_a_strided_kernel_shows_the_shapes_that_it_gets(made):
    text = made.fragments["bench-rung-strided"].text
    assert "dim 1" in text and "gaps" not in text and "· another kernel" in text
    assert "Not measured" in made.fragments["bench-rung-split_strided"].text


def test_a_rung_says_against_whom(made):
    """Where all libraries were asked a kernel is compared with the fastest of them."""
    for name, rival in (("strided", "the fastest other library"), ("two_loops", "torch")):
        text = made.fragments[f"bench-rung-{name}"].text
        assert f"▲ faster than {rival}" in text
        assert f"slower than {rival}" in text


def test_three_loops_show_no_backward_pass(made):
    assert '<th scope="col">backward' not in made.fragments["bench-rung-three_loops"].text
    assert '<th scope="col">backward' in made.fragments["bench-rung-two_loops"].text


def test_the_table_of_a_rung_puts_forward_and_float32_first(made):
    for name in ("single_block", "strided"):
        text = made.fragments[f"bench-rung-{name}"].text
        heads = re.findall(r'<th scope="col">(\w+) <span>(\w+)</span>', text)
        assert heads == [
            ("forward", "fp32"),
            ("forward", "bf16"),
            ("backward", "fp32"),
            ("backward", "bf16"),
        ]


def test_blocks_of_bytes_follow_the_count(made):
    text = made.fragments["moved-single_block"].text
    now = text[text.index('class="now"') :]
    assert now.count('class="read"') == now.count('class="write"') == 1
    assert "three loops" in text and "3 read + 1 written = </span>4 MN" in text


# Plots


def test_a_plot_starts_with_few_series_and_waits_with_the_others(made):
    page = made.fragments["bench-forward"].text
    plot = page[page.index('<div class="plot') :]
    plot = plot[: plot.index("</svg><div")]
    pressed = re.findall(r'aria-pressed="(true|false)" data-series="([\w.]+)"', plot)
    assert [name for on, name in pressed if on == "true"] == [CHOOSER, "best", "torch"]
    waiting = [name for on, name in pressed if on == "false"]
    assert "torch.compile" in waiting
    for name in waiting:
        assert f'<g data-series="{name}" class="off">' in plot


def test_plots_have_words_short_tips_and_bold_odd_lengths(made):
    plots = 0
    for fragment in made.fragments.values():
        for label in re.findall(r'<svg role="img" aria-label="([^"]+)"', fragment.text):
            assert len(label) > 20
            plots += 1
        for tip in re.findall(r'data-tip="([^"]*)"', fragment.text):
            assert 2 <= len(tip.split("&#10;")) <= 4
            assert "undefined" not in tip and "None" not in tip and "e-" not in tip
        assert "nan" not in fragment.text
    assert plots > 25
    assert '<text class="bold">50,257</text>' in made.fragments["bench-forward"].text


def test_shares_have_the_same_axis_everywhere():
    """Also where a share passes one by a little."""
    for top in (0.4, 1.04):
        text = draw(Plot("t", "a", [Column("1", {CHOOSER: top})], [Series(CHOOSER, "ours")]))
        assert re.findall(r">(\d+ %)<", text) == ["0 %", "25 %", "50 %", "75 %", "100 %"]


def test_a_wrong_answer_wins_nothing():
    case = Case("forward", (131072, 1024))
    wrong = row(case, "torch", status="wrong", reason="far off")
    wrong["us"] = {"p20": 0.1, "p50": 0.1, "p80": 0.1}
    group = {CHOOSER: row(case, CHOOSER), "torch": wrong, "liger": row(case, "liger")}
    assert best_peer(group) == "liger"


def test_both_ways_of_counting_bytes_are_named(made):
    page = made.fragments["bench-article"].text
    assert (
        "2·M·N elements counted" in page and "### As in the tutorial: M·N elements counted" in page
    )
    first = next(csv.DictReader(io.StringIO(made.assets[f"{ASSETS}/article.csv"])))
    assert float(first["gb_per_s"]) == pytest.approx(
        2 * float(first["gb_per_s_counting_m_n"]), rel=1e-3
    )


def test_a_rung_links_to_the_page_with_the_rest_of_its_suite(made):
    for name, page in (("strided", "strides"), ("naive", "ladder"), ("split_rows", "ladder")):
        assert f"(../benchmarks/{page}.md)" in made.fragments[f"bench-rung-{name}"].text


def test_the_newest_file_is_shown(tmp_path):
    put(tmp_path, data(("host_time",), gpu="Old GPU"), "a.json")
    new = data(("host_time",), gpu="New GPU")
    for r in new["rows"]:
        r["utc"] = "2026-12-01T00:00:00Z"
    put(tmp_path, new, "b.json")
    there = render(tmp_path).fragments
    assert "New GPU" in there["bench-host_time"].text
    listed = "[a.json](data/a.json), [b.json](data/b.json) (shown)"
    assert listed in there["bench-environment"].text


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (lambda d: d["rows"][0].pop("bytes"), "rows[0]"),
        (lambda d: d["rows"][0].update(dtype="int8"), "rows[0].dtype"),
        (lambda d: d["rows"][1].update(environment="run9"), "rows[1].environment"),
        (lambda d: d["rows"][1].update(status="failed", reason=None), "rows[1].reason"),
        (lambda d: d["rows"][1].update(us=None, max_rel_error=None), "rows[1].us"),
        (lambda d: d["rows"].append(d["rows"][0]), "provider"),
        (lambda d: d["environments"]["run1"].update(driver=3), "environments.run1.driver"),
        (lambda d: d.update(format="other"), "format"),
    ],
)
def test_data_that_break_the_schema_are_refused_naming_file_and_field(
    spoil, named, tmp_path, capsys
):
    made = data(("host_time",))
    assert main(["check", str(put(tmp_path, made))]) == 0
    spoil(made)
    assert main(["check", str(put(tmp_path, made))]) == 2
    said = capsys.readouterr().err
    assert "made.json" in said and named in said


def test_the_published_schema_is_the_one_that_validates(made):
    assert json.loads(made.assets["benchmarks/schema.json"]) == schema.SCHEMA


# Targets


def test_targets_are_judged_cell_by_cell():
    case = Case("forward", (131072, 1024))
    rows = [row(case, COPY), row(case, CHOOSER), row(case, "torch")]
    for r, us in zip(rows, (100.0, 104.0, 103.0)):
        r["us"] = {"p20": us, "p50": us, "p80": us}
    share, peer = targets.cells(rows)
    assert share.met and share.reached == "0.962 of the copy"
    assert peer.met and peer.reached == "0.990 (torch)"
    rows[1]["us"]["p50"] = 110.0
    assert [cell.met for cell in targets.cells(rows)] == [False, False]


def test_a_case_without_an_answer_of_ours_is_a_miss():
    case = Case("forward", (131072, 1024))
    rows = [
        row(case, COPY),
        row(case, CHOOSER, status="failed", reason="boom", us=None),
        row(case, "torch"),
    ]
    assert [cell.met for cell in targets.cells(rows)] == [False, False]


def test_missed_targets_keep_number_and_reason(tmp_path):
    made = data(("compiles",))
    put(tmp_path, made)
    (tmp_path / REASONS).write_text('{"compiles/*float16*": "made up to miss"}')
    text = render(tmp_path).fragments["bench-targets"].text
    assert (
        ">▼ 32 kernels<" in text
        and ">made up to miss<" in text
        and "✗ 4\N{NO-BREAK SPACE}of\N{NO-BREAK SPACE}6" in text
    )


# Notices


NOVEMBER = "2026-11-20T20:00:00Z"


def measured(sha: str | None = None) -> Measured:
    return Measured(NOVEMBER, {"two_loops": sha or sources.hash_of("two_loops")})


def test_fresh_numbers_of_unchanged_code_need_no_notice():
    assert notice.notices(measured(), datetime(2026, 11, 21, tzinfo=UTC)) == []


def test_a_changed_kernel_is_named_with_the_day_of_measurement():
    ((title, text),) = notice.notices(measured("0" * 64), datetime(2026, 11, 21, tzinfo=UTC))
    assert title == "Changed since measured on 2026-11-20" and "`two_loops`" in text


def test_numbers_older_than_ninety_days_say_so():
    day = datetime(2026, 11, 20, 20, tzinfo=UTC)
    assert notice.notices(measured(), day + timedelta(days=90)) == []
    ((title, text),) = notice.notices(measured(), day + timedelta(days=91))
    assert title == "Measured long ago" and "91 days" in text


def test_the_notice_is_a_warning_above_the_text(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1795200000")
    text = "Before.\n\n" + notice.markdown(measured("0" * 64)) + "After."
    html = markdown.markdown(text, extensions=["admonition"])
    assert (
        '<div class="admonition warning">' in html
        and "Changed since measured on 2026-11-20" in html
    )
    assert "<p>After.</p>" in html
    assert notice.markdown(measured()) == ""


def test_a_number_beside_a_title_says_in_a_word_that_the_code_has_changed(made, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1795200000")
    text, fresh, brief = made.fragments["reaches-two_loops"]
    assert brief and notice.briefly(text, fresh) == text
    stale = Measured(fresh.utc, {"two_loops": "0" * 64})
    assert ", before the last change</span>" in notice.briefly(text, stale)


def test_each_page_of_measurements_names_the_code_that_it_is_of(made):
    for suite in PAGES:
        code = suite if suite in sources.BESIDE else CHOOSER
        assert code in made.fragments[f"bench-{suite}"].measured.sources
    assert made.fragments["bench-rung-split_rows"].measured.sources.keys() == {"split_rows"}
    assert "two_loops" in made.fragments["bench-ladder"].measured.sources


# Two runs side by side


def test_compare_fails_past_the_slowdown(tmp_path, capsys):
    before, after = data(("batch",)), data(("batch",))
    paths = [str(tmp_path / name) for name in ("a.json", "b.json")]
    for path, made in zip(paths, (before, after)):
        Path(path).write_text(schema.dump(made))
    assert main(["compare", *paths]) == 0
    slow = next(r for r in after["rows"] if r["provider"] == CHOOSER)
    slow["us"]["p50"] *= 1.06
    Path(paths[1]).write_text(schema.dump(after))
    assert main(["compare", *paths]) == 1
    assert "1.060  SLOWER" in capsys.readouterr().out
    assert main(["compare", *paths, "--max-slowdown", "1.1"]) == 0


def test_compare_counts_a_lost_answer_as_slower():
    before, after = data(("batch",)), data(("batch",))
    lost = next(r for r in after["rows"] if r["provider"] == CHOOSER)
    lost.update(status="wrong", reason="far off")
    assert not compare.compare(before, after, 1.5)[1]


def test_compare_relative_to_the_copy_allows_for_a_slower_machine():
    before, after = data(("batch",)), data(("batch",))
    for r in after["rows"]:
        r["us"]["p50"] *= 2
    assert not compare.compare(before, after, 1.05)[1]
    assert compare.compare(before, after, 1.05, per_copy=True)[1]


def test_nothing_in_common_is_no_pass():
    assert not compare.compare(data(("batch",)), data(("host_time",)), 1.05)[1]


# The report of the GPU tests

JUNIT = """<testsuites><testsuite time="2.5">
<testcase classname="tests.gpu.test_a" name="test_one"/>
<testcase classname="tests.gpu.test_a" name="test_two"><failure message="no"/></testcase>
<testcase classname="tests.gpu.test_b" name="test_three"><skipped type="pytest.skip"/></testcase>
</testsuite></testsuites>"""


def made_report() -> dict:
    return {
        "format": gpu_report.FORMAT,
        "utc": "2026-11-20T20:00:00Z",
        "commit": "0123456789",
        "command": "pytest -m gpu",
        "seconds": 2.5,
        "counts": {"passed": 1, "failed": 1, "skipped": 1, "xfailed": 0},
        "machine": {
            key: environment()[key] for key in ("gpu", "driver", "cuda", "torch", "triton")
        },
        "sources": {"two_loops": "0" * 64},
        "modules": {"tests.gpu.test_a": [1, 1, 0], "tests.gpu.test_b": [0, 0, 1]},
        "failures": ["tests.gpu.test_a::test_two"],
    }


def test_the_report_counts_by_state_and_module(tmp_path, capsys):
    junit, out = tmp_path / "junit.xml", tmp_path / "gpu-tests.json"
    junit.write_text(JUNIT)
    assert (
        main(["gpu-report", "--junitxml", str(junit), "--out", str(out), "--commit", "0123456789"])
        == 0
    )
    loaded = gpu_report.load(out)
    assert (
        loaded["counts"] == made_report()["counts"]
        and loaded["modules"] == made_report()["modules"]
    )
    assert loaded["failures"] == ["tests.gpu.test_a::test_two"]
    assert "1 passed, 1 failed, 1 skipped" in capsys.readouterr().out
    assert loaded["sources"]["two_loops"] == sources.hash_of("two_loops")
    assert "* `tests.gpu.test_a::test_two`" in bookkeeping.gpu_tests_text(made_report())


def test_the_page_names_the_commit_of_the_gpu_tests_and_says_when_the_code_changed(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1795200000")
    path = tmp_path / bookkeeping.TESTS
    path.parent.mkdir(parents=True)
    path.write_text(gpu_report.text(made_report()))
    fragment = bookkeeping.gpu_tests_fragment(tmp_path)
    assert "commit `0123456789`" in fragment.text
    assert "`two_loops` has changed" in notice.markdown(fragment.measured)


def test_the_page_names_the_commit_of_the_sanitizer_and_says_when_the_code_changed(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1795200000")
    run = json.loads((ROOT / bookkeeping.SANITIZER).read_text("utf8"))
    fragment = bookkeeping.sanitizer_fragment(ROOT)
    assert f"commit `{run['commit'][:12]}`" in fragment.text
    assert set(fragment.measured.sources) == set(sources.hashes())


def test_the_committed_report_keeps_to_its_schema():
    assert gpu_report.load(ROOT / bookkeeping.TESTS)["sources"]


def test_every_row_that_is_linked_is_there():
    """Links to a case lead to the row of a table that bears its name."""
    pages = {
        name: fragment.text
        for name, fragment in render(ROOT).fragments.items()
        if name.startswith("bench-")
    }
    rows = {each for text in pages.values() for each in re.findall(r'id="([^"]+)"', text)}
    links = {
        (name, link)
        for name, text in pages.items()
        for link in re.findall(r'href="[^"#]*#([^"]+-(?:float|bfloat)[^"]+)"', text)
    }
    assert len(links) > 100
    assert not {link for link in links if link[1] not in rows}
