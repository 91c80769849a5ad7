"""From data to pages: what is refused, what is marked, and what is said when the data grow old."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import markdown
import pytest

from made_data import data, environment, row
from softmax_bench import compare, gpu_report, schema, sources, targets
from softmax_bench.__main__ import main
from softmax_bench.cases import ACCURACY_INPUTS, Case
from softmax_bench.report import best_peer
from softmax_bench.roster import CHOOSER, COPY, PROVIDERS
from softmax_site import rendered
from softmax_site.benchmarks import gpu_tests, notice
from softmax_site.benchmarks.data import DATA, REASONS
from softmax_site.benchmarks.drawing import class_of, style_sheet
from softmax_site.benchmarks.page import ASSETS, Measured
from softmax_site.benchmarks.render import render
from softmax_site.benchmarks.sentences import summary
from softmax_site.benchmarks.suites import INPUTS, PAGES
from softmax_site.benchmarks.tables import library_table, speed_cell

ROOT = Path(__file__).resolve().parents[2]


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


def test_one_table_names_the_providers():
    """Every colour of the style sheet is that of the table, and every provider has one of each."""
    text = style_sheet()
    for name, provider in PROVIDERS.items():
        assert f".{class_of(name)} {{ --c: {provider.light}; }}" in text
        assert f".{class_of(name)} {{ --c: {provider.dark}; }}" in text
    assert text.count("--c:") == 2 * len(PROVIDERS)
    assert len({provider.label for provider in PROVIDERS.values()}) == len(PROVIDERS)


def test_every_kind_of_input_has_words():
    assert tuple(INPUTS) == ACCURACY_INPUTS


def test_every_include_of_the_pages_is_rendered_and_everything_rendered_is_included():
    named = [
        name
        for page in (ROOT / "docs").rglob("*.md")
        for name in re.findall(r"^\[\[rendered (.+)\]\]$", page.read_text("utf8"), re.M)
    ]
    assert set(named) == set(rendered.load(ROOT).fragments)


def test_every_row_is_on_its_page_and_in_its_csv(made):
    rows_of = data()["rows"]
    for suite in PAGES:
        rows = [r for r in rows_of if r["suite"] == suite]
        page = made.fragments[f"bench-{suite}"].text
        table = list(csv.DictReader(io.StringIO(made.assets[f"{ASSETS}/{suite}.csv"])))
        assert len(table) == len(rows)
        assert {line["gpu"] for line in table} == {"Made-up GPU"}
        for r in rows:
            assert f"<code>{r['case']}</code>" in page


def test_a_loss_is_marked_in_the_table_of_the_wins():
    shape = (131072, 1024)
    won, lost = Case("forward", shape), Case("forward", (2097152, 64))
    rows = [
        row(won, COPY),
        row(won, CHOOSER),
        row(won, "torch"),
        row(lost, COPY),
        row(lost, CHOOSER),
    ]
    fast = row(lost, "torch")
    fast["us"] = {name: value / 10 for name, value in fast["us"].items()}
    text = library_table([*rows, fast], speed_cell)
    by_size = {line.split("|")[1].strip(): line for line in text.splitlines()[2:]}
    assert "loss" not in by_size["1,024"]
    assert "▼" in by_size["64"] and "loss" in by_size["64"]
    assert "Losses: `forward/softmax/forward/float32/2097152x64`" in summary([*rows, fast])


@pytest.mark.parametrize(
    ("times", "stands"),
    [(1.03, "ahead in 1 of 1 cases"), (1.01, r"level \(within 2% either way\) in 1")]
    + [(0.99, r"level \(within 2% either way\) in 1"), (0.97, "behind in 1")],
)
def test_ahead_and_behind_begin_equally_far_from_level(times, stands):
    case = Case("forward", (131072, 1024))
    ours, peer = row(case, CHOOSER), row(case, "torch")
    peer["us"] = {name: value * times for name, value in ours["us"].items()}
    assert re.search(stands, summary([ours, peer]))
    assert ("loss" in library_table([ours, peer], speed_cell)) == (times < 0.98)


def test_a_row_without_a_result_shows_its_state_and_reason(made):
    page = made.fragments["bench-forward"].text
    assert '<abbr title="RuntimeError: too long">failed</abbr>' in page
    assert "no module &#124; named quack" in page


def test_a_wrong_answer_wins_nothing():
    case = Case("forward", (131072, 1024))
    wrong = row(case, "torch", status="wrong", reason="far off")
    wrong["us"] = {"p20": 0.1, "p50": 0.1, "p80": 0.1}
    group = {CHOOSER: row(case, CHOOSER), "torch": wrong, "liger": row(case, "liger")}
    assert best_peer(group) == "liger"


def test_charts_name_machine_code_and_time_for_every_point(made):
    specs = [text for path, text in made.assets.items() if path.endswith(".vl.json")]
    assert len(specs) > 20
    for text in specs:
        spec = json.loads(text)
        assert spec["description"]
        shown = {item["field"] for item in spec["layer"][-1]["encoding"]["tooltip"]}
        assert {"provider", "gpu", "driver", "torch", "triton", "commit", "utc"} <= shown
        runs = {run["run"] for run in spec["transform"][0]["from"]["data"]["values"]}
        assert {value["run"] for value in spec["data"]["values"]} <= runs
        assert "http" not in text


def test_the_drawn_picture_has_words_and_a_point_per_value(made):
    for line in made.fragments["bench-forward"].text.split("<svg")[1:]:
        picture = line.split("</svg>")[0]
        assert 'role="img"' in picture and 'aria-label="Softmax forward' in picture
        assert "nan" not in picture


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
    assert "| 32 kernels | made up to miss |" in text and "✗ 4 of 6" in text


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


def test_each_page_of_measurements_names_the_code_that_it_is_of(made):
    for suite in PAGES:
        assert CHOOSER in made.fragments[f"bench-{suite}"].measured.sources
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
    assert "* `tests.gpu.test_a::test_two`" in gpu_tests.text(made_report())


def test_the_page_names_the_commit_of_the_gpu_tests_and_says_when_the_code_changed(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1795200000")
    path = tmp_path / gpu_tests.REPORT
    path.parent.mkdir(parents=True)
    path.write_text(gpu_report.text(made_report()))
    fragment = gpu_tests.fragment(tmp_path)
    assert "commit `0123456789`" in fragment.text
    assert "`two_loops` has changed" in notice.markdown(fragment.measured)


def test_the_committed_report_keeps_to_its_schema():
    assert gpu_report.load(ROOT / gpu_tests.REPORT)["sources"]
