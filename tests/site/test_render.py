"""From data to pages: what is refused, what is marked, and what is said when the data grow old."""

from __future__ import annotations

import csv
import io
import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import markdown
import pytest

from made_data import data, environment, row
from triton_softmax.bench import (
    compare,
    gpu_report,
    notice,
    render,
    runner,
    schema,
    sources,
    targets,
)
from triton_softmax.bench.__main__ import main
from triton_softmax.bench.cases import CHOOSER, COPY, Case

ROOT = Path(__file__).resolve().parents[2]


def put(root: Path, made: dict, name: str = "made.json") -> Path:
    path = root / render.DATA / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(runner.dump(made))
    return path


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    root = tmp_path_factory.mktemp("repository")
    put(root, data())
    render.write(root)
    return root


def fragment(root: Path, name: str) -> str:
    return (root / render.FRAGMENTS / f"bench-{name}.md").read_text()


def test_pages_and_committed_data_agree():
    assert render.stale(ROOT) == []


def test_rendering_is_stable_and_checked(rendered, capsys):
    assert render.stale(rendered) == []
    assert main(["render", "--root", str(rendered), "--check"]) == 0
    page = rendered / render.FRAGMENTS / "bench-forward.md"
    before = page.read_text()
    page.write_text(before.replace("4", "5", 1))
    stray = rendered / render.ASSETS / "old.csv"
    stray.write_text("x")
    assert main(["render", "--root", str(rendered), "--check"]) == 1
    said = capsys.readouterr().out
    assert "bench-forward.md" in said and "old.csv" in said
    assert main(["render", "--root", str(rendered)]) == 0
    assert page.read_text() == before and not stray.exists()


def test_every_include_of_the_pages_is_rendered(rendered):
    (rendered / render.GPU_TESTS).write_text(gpu_report.text(made_report()))
    there = set(render.generate(rendered))
    for page in (ROOT / "docs/benchmarks").glob("*.md"):
        for line in page.read_text("utf8").splitlines():
            if line.startswith("--8<--"):
                assert line.split('"')[1] in there, f"{page.name}: {line}"
    (rendered / render.GPU_TESTS).unlink()


def test_every_row_is_on_its_page_and_in_its_csv(rendered):
    made = data()
    for suite in render.PAGES:
        rows = [r for r in made["rows"] if r["suite"] == suite]
        page = fragment(rendered, suite)
        with open(rendered / render.ASSETS / f"{suite}.csv", newline="") as file:
            table = list(csv.DictReader(file))
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
    text = render.library_table([*rows, fast], render.speed_cell)
    by_size = {line.split("|")[1].strip(): line for line in text.splitlines()[2:]}
    assert "loss" not in by_size["1,024"]
    assert "▼" in by_size["64"] and "loss" in by_size["64"]
    assert "Losses: `forward/softmax/forward/float32/2097152x64`" in render.summary([*rows, fast])


def test_a_row_without_a_result_shows_its_state_and_reason(rendered):
    page = fragment(rendered, "forward")
    assert '<abbr title="RuntimeError: too long">failed</abbr>' in page
    assert "no module &#124; named quack" in page


def test_a_wrong_answer_wins_nothing():
    case = Case("forward", (131072, 1024))
    wrong = row(case, "torch", status="wrong", reason="far off")
    wrong["us"] = {"p20": 0.1, "p50": 0.1, "p80": 0.1}
    group = {CHOOSER: row(case, CHOOSER), "torch": wrong, "liger": row(case, "liger")}
    assert render.best_peer(group) == "liger"


def test_charts_name_machine_code_and_time_for_every_point(rendered):
    specs = list((rendered / render.ASSETS).glob("*.vl.json"))
    assert len(specs) > 20
    for path in specs:
        spec = json.loads(path.read_text())
        assert spec["description"]
        shown = {item["field"] for item in spec["layer"][-1]["encoding"]["tooltip"]}
        assert {"provider", "gpu", "driver", "torch", "triton", "commit", "utc"} <= shown
        runs = {run["run"] for run in spec["transform"][0]["from"]["data"]["values"]}
        assert {value["run"] for value in spec["data"]["values"]} <= runs
        assert "http" not in path.read_text()


def test_the_drawn_picture_has_words_and_a_point_per_value(rendered):
    for line in fragment(rendered, "forward").split("<svg")[1:]:
        picture = line.split("</svg>")[0]
        assert 'role="img"' in picture and 'aria-label="Softmax forward' in picture
        assert "nan" not in picture


def test_both_ways_of_counting_bytes_are_named(rendered):
    page = fragment(rendered, "article")
    assert (
        "2·M·N elements counted" in page and "### As in the tutorial: M·N elements counted" in page
    )
    first = next(
        csv.DictReader(io.StringIO((rendered / render.ASSETS / "article.csv").read_text()))
    )
    assert float(first["gb_per_s"]) == pytest.approx(
        2 * float(first["gb_per_s_counting_m_n"]), rel=1e-3
    )


def test_the_newest_file_is_shown(tmp_path):
    put(tmp_path, data(("host_time",), gpu="Old GPU"), "a.json")
    new = data(("host_time",), gpu="New GPU")
    for r in new["rows"]:
        r["utc"] = "2026-12-01T00:00:00Z"
    put(tmp_path, new, "b.json")
    render.write(tmp_path)
    assert "New GPU" in fragment(tmp_path, "host_time")
    assert "[a.json](data/a.json), [b.json](data/b.json) (shown)" in fragment(
        tmp_path, "environment"
    )


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
    spoil(made)
    put(tmp_path, made)
    assert main(["render", "--root", str(tmp_path), "--check"]) == 2
    said = capsys.readouterr().err
    assert "made.json" in said and named in said


def test_the_published_schema_is_the_one_that_validates():
    assert json.loads((ROOT / render.PUBLISHED_SCHEMA).read_text()) == schema.SCHEMA


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
    (tmp_path / render.REASONS).write_text('{"compiles/*float16*": "made up to miss"}')
    render.write(tmp_path)
    text = fragment(tmp_path, "targets")
    assert "| 32 kernels | made up to miss |" in text and "✗ 4 of 6" in text


# Notices


def measured(**changes) -> dict:
    return {
        "utc": "2026-11-20T20:00:00Z",
        "sources": {"two_loops": sources.hash_of("two_loops")},
        **changes,
    }


def test_fresh_numbers_of_unchanged_code_need_no_notice():
    assert notice.notices(measured(), datetime(2026, 11, 21, tzinfo=timezone.utc)) == []


def test_a_changed_kernel_is_named_with_the_day_of_measurement():
    ((title, text),) = notice.notices(
        measured(sources={"two_loops": "0" * 64}), datetime(2026, 11, 21, tzinfo=timezone.utc)
    )
    assert title == "Changed since measured on 2026-11-20" and "`two_loops`" in text


def test_numbers_older_than_ninety_days_say_so():
    day = datetime(2026, 11, 20, 20, tzinfo=timezone.utc)
    assert notice.notices(measured(), day + timedelta(days=90)) == []
    ((title, text),) = notice.notices(measured(), day + timedelta(days=91))
    assert title == "Measured long ago" and "91 days" in text


def test_the_marker_becomes_a_warning_at_build(monkeypatch):
    line = f"<!-- measured: {json.dumps(measured(sources={'two_loops': '0' * 64}))} -->"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1795200000")
    html = markdown.markdown(
        f"Before.\n\n{line}\n\nAfter.", extensions=["admonition", "triton_softmax.bench.notice"]
    )
    assert (
        '<div class="admonition warning">' in html
        and "Changed since measured on 2026-11-20" in html
    )
    assert "After." in html and "measured:" not in html


def test_a_comment_or_docstring_does_not_change_the_hash(tmp_path):
    package = tmp_path / "package"
    (package / "kernels").mkdir(parents=True)
    kernel = package / "kernels/two_loops.py"
    (package / "kernels/online.py").write_text("A = 1\n")

    def sha(text: str) -> str:
        kernel.write_text(text)
        return sources.hash_of("two_loops", package)

    first = sha('"""Doc."""\nfrom .online import A\n\ndef f():\n    return A\n')
    assert first == sha(
        '"""Other."""\nfrom .online import A\ndef f():\n    "doc"\n    # why\n    return A\n'
    )
    assert first != sha('"""Doc."""\nfrom .online import A\n\ndef f():\n    return A + 1\n')
    again = sha('"""Doc."""\nfrom .online import A\n\ndef f():\n    return A\n')
    assert first == again
    (package / "kernels/online.py").write_text("A = 2\n")
    assert sources.hash_of("two_loops", package) != first


# Two runs side by side


def test_compare_fails_past_the_slowdown(tmp_path, capsys):
    before, after = data(("batch",)), data(("batch",))
    paths = [str(tmp_path / name) for name in ("a.json", "b.json")]
    for path, made in zip(paths, (before, after)):
        Path(path).write_text(runner.dump(made))
    assert main(["compare", *paths]) == 0
    slow = next(r for r in after["rows"] if r["provider"] == CHOOSER)
    slow["us"]["p50"] *= 1.06
    Path(paths[1]).write_text(runner.dump(after))
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
    assert "* `tests.gpu.test_a::test_two`" in gpu_report.fragment(made_report())
