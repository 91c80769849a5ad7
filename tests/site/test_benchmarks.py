"""From data to pages: what is refused, what is marked, and what is said when the data grow old."""

import csv
import io
import json
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from math import prod
from pathlib import Path

import markdown
import numpy as np
import pytest

from made_data import data, environment, row, turns
from site_build import ROOT
from softmax_bench import launches, schema, targets
from softmax_bench.__main__ import main
from softmax_bench.attention import tflops
from softmax_bench.case import Case
from softmax_bench.report import APART, LEVEL, NEAR, best_peer, by_case, compare
from softmax_bench.roster import CHOOSER, COPY, LIBRARIES, RUNGS
from softmax_bench.tune import device_of, problem_of
from softmax_site import kernel_map, rendered, source
from softmax_site.benchmarks import attention, bookkeeping, profiled, quoted
from softmax_site.benchmarks.charts import Column, Series, over_columns
from softmax_site.benchmarks.data import REASONS, anchor, measurements, shape_words
from softmax_site.benchmarks.page import (
    ASSETS,
    NOT_MEASURED,
    Measured,
    measured_by,
    origin,
    warning,
)
from softmax_site.benchmarks.rungs import HEADLINES, Rung, headline, headline_fragment
from softmax_site.benchmarks.stand import of_rows
from softmax_site.benchmarks.tables import SHAPE, heat_map, share_of
from softmax_site.benchmarks.values import QuoteError, filled, value_of
from softmax_site.benchmarks.views import SUITES, VOCABULARIES, full_table, gap_share, length
from softmax_site.benchmarks.words import reason_groups

ON_THE_MAP = {entry.kernel for entry in kernel_map.entries(ROOT) if entry.group == "geometries"}


def put(root: Path, made: dict) -> Path:
    path = root / launches.DATA / "measurements.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(schema.dump(made))
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("repository")
    put(root, data())
    return rendered.measurements(root)


@pytest.fixture(scope="module")
def published():
    """The names that pages quote, of the committed data."""
    return quoted.load(ROOT)


def take(rows: list[dict], *microseconds: float) -> None:
    """Let each row take so long."""
    for each, us in zip(rows, microseconds, strict=True):
        each |= {"us": {"p20": us, "p50": us, "p80": us}, "us_turns": turns(us)}


def page_of(made, suite: str) -> str:
    """Everything that is rendered of a suite."""
    return "".join(f.text for name, f in made.fragments.items() if suite in name.split("-"))


def test_the_committed_data_keep_to_the_schema_and_hold_one_row_a_line():
    """So a new measurement shows line by line what has changed. Times are in order, and speeds of
    attention follow from them."""
    runs_of: dict[str, set] = {}
    for path in (ROOT / launches.DATA).iterdir():
        text, rows = path.read_text("utf8"), schema.load(path)["rows"]
        assert text == schema.dump(json.loads(text)), "it is not as `dump` writes it"
        assert rows and sum(line.startswith('{"case"') for line in text.splitlines()) == len(rows)
        for each in rows:
            runs_of.setdefault(each["case"], set()).add(path)
    assert {len(paths) for paths in runs_of.values()} == {1}, "a case is of one run"
    for path in (ROOT / "docs/benchmarks").glob("*.json"):
        assert path.name == "schema.json" or not [*schema.disordered(schema.read_json(path), path)]
    (run,) = schema.read_json(ROOT / attention.FILE)["runs"]
    rows = [row for row in run["rows"] if "tflops" in row]
    assert len(rows) > 200 and all(row["tflops"] == tflops(row) for row in rows)


@pytest.mark.parametrize("field, by", [("us", 0.97), ("us", 1.03), ("bytes", 2)])
def test_a_number_of_the_data_that_is_edited_is_noticed(field, by):
    """A time of what was timed in turns; of what was not, one that leaves its percentiles."""
    runs = map(schema.load, (ROOT / launches.DATA).glob("*.json"))
    data = next(run for run in runs if run["rows"][0]["suite"] == "compiles")
    of_turns = next(row for row in data["rows"] if row.get("us_turns"))
    if field == "us":
        of_turns["us"] = {name: us * by for name, us in of_turns["us"].items()}
    else:
        of_turns[field] *= by
    with pytest.raises(schema.DataError, match="and its turns|where the case makes it"):
        schema.validate(data, "data")
    alone = next(row for row in data["rows"] if row["us"] and not row.get("us_turns"))
    alone["us"]["p50"] *= 0.7
    with pytest.raises(schema.DataError, match="does not hold"):
        schema.check(data, "data")


def test_what_is_rendered_follows_the_files(tmp_path, made):
    there = rendered.measurements(tmp_path).fragments
    assert there["origin-forward"].text == there["bench-rung-naive"].text == "Not measured yet.\n"
    put(tmp_path, data())
    source.forget()
    assert rendered.measurements(tmp_path) == made
    (tmp_path / "tests/site").mkdir(parents=True)
    (tmp_path / "mkdocs.yml").write_text("nav: []\n")
    (tmp_path / "tests/site/test_corrections.py").write_text("def test_one():\n    pass\n")
    for gpu in ("Old GPU", "New GPU, rather"):
        put(tmp_path, data(("host_time",), gpu=gpu))
        source.forget()
        assert gpu in rendered.markdown("origin-host_time", tmp_path)
    assert 'id="test-one"' in rendered.markdown("corrections", tmp_path)
    with pytest.raises(KeyError, match="nothing rendered is named 'nowhere'"):
        rendered.markdown("nowhere", tmp_path)


def test_a_run_with_one_case_says_which():
    first, *others = ({**each, "environment": environment()} for each in data()["rows"])
    alone = first | {"environment": environment() | {"commit": "f" * 40, "started": "2026"}}
    assert f"of `{'f' * 12}` one case: forward, " in origin([alone, *others])
    assert "one case" not in origin([first, *others]) + origin([alone])


def test_every_include_of_the_pages_is_rendered_and_every_measurement_is_included():
    named = {
        name
        for page in (ROOT / "docs").rglob("*.md")
        for name in re.findall(r"^ *\[\[rendered (.+)\]\]$", page.read_text("utf8"), re.M)
    }
    fragments, unsaid = rendered.load(ROOT).fragments, quoted.load(ROOT).unsaid
    assert {name for name in named if f"[[rendered {name}]]" not in unsaid} <= {*fragments}
    of_data = rendered.measurements(ROOT).fragments.items()
    assert {name for name, each in of_data if each is not NOT_MEASURED} <= named


NO_SPEEDS = {"worked", "page_mutants", "machine.gpu", "rounding", "checks", "gpu_tests", "mutants"}
"""What pages quote that no GPU was timed for."""


def test_a_page_with_numbers_says_what_was_measured_when():
    """In the line that carries the notices; the others have a fragment with notices of its own."""
    for page in (ROOT / "docs").rglob("*.md"):
        text = re.sub("`[^`]*`", "", page.read_text("utf8"))
        if "{{ " in text:
            of = set(re.findall(r"\{\{ ([\w.]+)", text)) - NO_SPEEDS
            if all(f"{{{{ {each}[machine][gpu] }}}}" in text for each in of):
                continue
            names = re.findall(r"^ *\[\[rendered (.+)\]\]$", text, re.M)
            there = rendered.load(ROOT).fragments
            assert any(there[name].measured for name in names), page


def test_a_page_quotes_what_the_data_say(published):
    """A brute count over the rows, beside the names that pages use."""
    rows = [r for r in measurements(ROOT)["rows"] if r["suite"] in ("forward", "backward")]
    factors, states = [], Counter()
    for group in by_case(rows).values():
        best = min(
            (r for name, r in group.items() if name in LIBRARIES and r["status"] == "ok"),
            key=lambda r: r["us"]["p50"],
        )
        own = group[CHOOSER]
        factors.append(best["us"]["p50"] / own["us"]["p50"])
        more = np.array(best["us_turns"]) > own["us_turns"]
        apart = best["us"]["p50"] - own["us"]["p50"]
        least = max(APART, NEAR * own["us"]["p50"])
        ahead, behind = sum(more) >= 9 and apart > least, sum(more) <= 1 and apart < -least
        states["ahead" if ahead else "behind" if behind else "level"] += 1
    grid = published["grid"]
    assert grid.cases == len(factors)
    assert {name: getattr(grid, name) for name in ("ahead", "level", "behind")} == states
    mean = prod(factors) ** (1 / len(factors))
    assert filled("{{ grid.over_best:.2f }}", published, bare=True) == f"{mean:.2f}"
    assert f"{min(factors):.2f}" == f"{grid.worst.factor:.2f}"


def test_loops_columns_and_steps_are_counted_as_the_data_have_them(published):
    rows, found = measurements(ROOT)["rows"], []
    for group in by_case([r for r in rows if r["suite"] == "few_rows"]).values():
        us = {n: r["us_loop"] for n, r in group.items() if r["status"] == "ok" and "us_loop" in r}
        found.append(us[CHOOSER] / min(us[name] for name in us.keys() & {*LIBRARIES}))
    loop = published["few_rows_in_a_loop"]
    assert (loop.cases, loop.slower) == (len(found), sum(1 / each < 1 - LEVEL for each in found))
    assert loop.most == pytest.approx(max(found))
    columns = {r["case"] for r in rows if r["suite"] == "random" and "/dim" in r["case"]}
    assert published["random"].columns.measured == len(columns) > 0
    theirs, *others = json.loads((ROOT / "docs/benchmarks/training.json").read_text())["rows"]
    step = published["training"]["Llama_sdpa_loss"]
    same = {key: theirs[key] for key in ("model", "attention", "batch", "of")}
    for each in (other for other in others if same.items() <= other.items()):
        said = step[each["provider"].replace(", ", "_").replace(" ", "_")]
        assert said.time == pytest.approx(each["ms"]["p50"] / theirs["ms"]["p50"])
        assert said.memory == pytest.approx(each["bytes"] / theirs["bytes"])
    assert step["transformers"].time is None and len(step) > 4


def test_a_box_counts_the_calls_that_its_page_shows():
    rows = measurements(ROOT)["rows"]
    ours = [r for r in rows if r["provider"] in (CHOOSER, *RUNGS) and r["status"] == "ok"]
    shown = {
        "bench-targets": len({cell.case for cell in targets.cells(rows)}),
        "loss-head-speeds": sum(
            r["op"] == "cross_entropy"
            and r["direction"] == "forward_backward"
            and r["inputs"] == "normal"
            and r["shape"][1] in VOCABULARIES
            for r in ours
        ),  # fmt: skip
        "token-speeds": sum(r["op"] == "token_logprobs" for r in ours),
        "masked-speeds": sum(r["op"] == "modified_softmax" for r in ours),
    }
    there = rendered.load(ROOT).fragments
    assert {name: there[name].measured.calls for name in shown} == shown


@pytest.mark.parametrize("wrong", [
    "{{ nowhere.ahead }}", "{{ grid.nothing }}", "{{ grid.over_best }}",  # without a format
    "{{ ladder.of[nobody].mean:.2f }}", "[[holds grid.ahead < 0]]", "[[holds 0 < level < 1]]",
])  # fmt: skip
def test_an_unknown_name_and_a_claim_that_fails_stop_the_build(published, wrong):
    with pytest.raises(QuoteError):
        filled(f"So: {wrong}", published)


def test_every_row_is_in_the_csv_of_its_page_and_every_case_in_its_table(made):
    rows_of = data()["rows"]
    for suite in SUITES:
        rows = [r for r in rows_of if r["suite"] == suite]
        table = list(csv.DictReader(io.StringIO(made.assets[f"{ASSETS}/{suite}.csv"])))
        assert len(table) == len(rows)
        assert {line["gpu"] for line in table} == {"Made-up GPU"}
        twice, once = (table[0].get(f"gb_per_s{how}") for how in ("", "_counting_m_n"))
        assert suite != "article" or float(twice) == pytest.approx(2 * float(once), rel=1e-3)
        if (in_a_loop := suite in ("few_rows", "loss_head")) or suite == "log_softmax":
            assert (">in a loop: ours<" in page_of(made, suite)) == in_a_loop
        if suite not in ("accuracy", "article", "compiles", "random"):
            assert not {anchor(r) for r in rows} - set(
                re.findall(r'id="([^"]+)"', page_of(made, suite))
            )


def test_shapes_are_written_as_people_write_them_and_names_of_cases_stay_on_one_page(made):
    names = {r["case"] for r in data()["rows"]}
    for fragment, (text, *_) in made.fragments.items():
        shown = re.sub(r'(?:id|href|data-href)="[^"]*"', "", text).replace("<wbr>", "")
        if fragment != "targets-missed":
            assert not {name for name in names if name in shown}, fragment
    assert "4,067,203 × 33" in page_of(made, "forward")


def beside_torch(shape, times: float, noise: float) -> list[dict]:
    """A case in which torch takes `times` as long, on an average that noise blurs."""
    rows = [row(Case("forward", shape), name) for name in (CHOOSER, "torch")]
    take(rows, 300.0, 300.0 * times)
    rows[1]["us_turns"] = [
        us * times * (1 + noise * (-1) ** at) for at, us in enumerate(rows[0]["us_turns"])
    ]
    return rows


@pytest.mark.parametrize(("times", "noise", "cell", "verdict"), [
    (1.03, 0.001, ">1.03<", "▲ 1.03"),
    (1.015, 0.001, ">=<", "= 1.01"),
    (1.03, 0.06, ">=<", "= 1.03"),
    (1.0007, 0.0, ">=<", "= 1.001"),
    (0.97, 0.06, ">=<", "= 0.97"),
    (0.985, 0.001, ">=<", "= 0.98"),
    (0.97, 0.001, ">▼\N{THIN SPACE}0.97<", "▼ 0.97"),
])  # fmt: skip
def test_who_is_ahead_follows_from_paired_turns(times, noise, cell, verdict):
    """In sentences, in the heat map and in the table, by sign and not by colour alone; the worst
    case is none that noise explains."""
    stand = of_rows(rows := beside_torch((131072, 1024), times, noise))
    state = {"▲": "ahead", "=": "level", "▼": "behind"}[verdict[0]]
    assert getattr(stand, state) == stand.cases == 1
    assert filled("{{ a.worst.factor }}", {"a": stand}, bare=True) in verdict
    assert anchor(rows[0]) in stand.worst.link
    assert cell in heat_map("", rows, length)
    assert verdict in full_table(rows, share_of, SHAPE)
    if state == "behind":
        stand = of_rows([*rows, *beside_torch((9, 8), 0.9, 0.2)])
        assert f"{stand.worst.factor}" == "0.97" and stand.longer == [1 / 0.97]


def test_what_alternates_from_launch_to_launch_is_no_difference():
    """The floor is what was measured."""
    pace = json.loads((ROOT / quoted.AS_THEY_ARE["pace"]).read_text("utf8"))
    assert pace["apart"]["outside"] == APART


def test_a_heat_map_marks_odd_lengths_and_says_each_cell_in_words(made):
    page = made.fragments["heat-forward"].text
    rows = re.findall(r'scope="row"( class="odd")?><span>([\d,]+)</span>', page)
    assert rows and all(bool(odd) == (int(n.replace(",", "")) % 2 == 1) for odd, n in rows)
    assert re.search(r'aria-label="forward, bf16, 4,067,203 × 33: [^"]+ the speed of \w+"', page)


@pytest.mark.parametrize("suite", ["forward", "few_rows", "strided", "log_softmax"])
def test_a_rival_that_is_missing_is_said_beside_the_heat_map(suite):
    """Of the committed data: how many answers of each are right, wrong, refused or failed, and in
    how many cases it was not asked; each case is one of the four."""
    rows = [row for row in measurements(ROOT)["rows"] if row["suite"] == suite]
    text = rendered.load(ROOT).fragments[f"heat-{suite}"].text
    cells = len(by_case(rows))
    for name, label in (("torch", "torch"), ("liger", "Liger"), ("quack", "QuACK")):
        states = Counter(row["status"] for row in rows if row["provider"] == name)
        counts = states["ok"], states["wrong"], states["refused"] + states["failed"]
        said = "".join(rf"<td[^>]*>{count}</td>\s*" for count in (*counts, cells - sum(counts)))
        assert states.total() == 0 or re.search(rf">{label}</t[hd]>\s*{said}", text), (name, states)


def test_who_was_not_asked_is_not_beaten_in_silence(published):
    """A page that counts wins over cases in which a library has no right answer names those that
    have, or shows what became of the cases of each."""
    everyone, quiet = {"torch", "torch.compile", "liger", "flag_gems", "quack"}, []
    for page in (ROOT / "docs").rglob("*.md"):
        text = re.sub("`[^`]*`", "", page.read_text("utf8"))
        for name in set(re.findall(r"\{\{ ([\w.\[\]]+)\.(?:behind|over_best)\b", text)):
            stand = value_of(name, published)
            if stand.over is not best_peer:
                continue
            missing = everyone - {who for who, each in stand.answered.items() if each.right}
            named = re.findall(r"\{\{ ([\w.\[\]]+\.rivals) \}\}", text)
            said = any(value_of(each, published) == stand.rivals for each in named)
            if missing and not said and ".right }}" not in text and "[[rendered heat-" not in text:
                quiet.append(f"{page.relative_to(ROOT)}: {name} has no right answer of {missing}")
    assert not quiet, "\n".join(quiet)


def test_an_error_that_says_no_is_a_refusal(tmp_path):
    """Whatever its type; another one is a failure."""
    says_no = "RuntimeError: n = 81188 exceeds the recommended Triton blocksize = 65536."
    rows = [
        row(Case("forward", (2, n)), "liger", status="failed", reason=reason, us=None)
        for n, reason in ((3, says_no), (4, "RuntimeError: boom"))
    ]
    put(tmp_path, {**data(("host_time",)), "rows": rows})
    found = measurements(tmp_path)["rows"]
    assert [each["status"] for each in found] == ["refused", "failed"]


def test_the_range_of_a_kernel_is_of_all_shapes_that_got_it():
    """The slowest cell drawn at random is in the map's range."""
    every = measurements(ROOT)["rows"]
    shares = []
    for suite in ("forward", "backward", "few_rows", "strided", "random", "longest"):
        for group in by_case([each for each in every if each["suite"] == suite]).values():
            ours = group.get(CHOOSER)
            if ours and ours["kernels"] == ["split_strided_kernel"] and ours["op"] == "softmax":
                if ours["direction"] == "backward" and ours["layout"] == "contiguous":
                    shares.append(share_of(group))
    text = rendered.load(ROOT).fragments["map-geometries"].text
    row_of = text[text.index('id="map-split_strided"') :]
    assert f"({min(shares):.2f}–{max(shares):.2f}, {len(shares)} shapes)" in row_of


def test_a_row_without_a_result_links_to_its_reason(made):
    """Not in a title, which neither a finger nor the keyboard reaches."""
    for name in ("forward", "ladder", "accuracy", "few_rows"):
        page = page_of(made, name)
        assert "<abbr" not in page and " title=" not in page
    page, said = page_of(made, "forward"), made.fragments["bench-reasons"].text
    assert "RuntimeError: too long" in said and "no module | named quack" in said
    target = re.search(r'<a href="/benchmarks/method/#(why-liger-failed)">failed</a>', page)
    assert target and re.search(rf'<tr id="{target[1]}">.*>Liger<.*failed', said)


def test_reasons_that_differ_in_numbers_alone_are_one():
    rows = [
        row(Case("forward", (2, n)), "quack", reason=f"Input N {n} is not divisible by {v}")
        for n, v in ((33, 4), (129, 8), (781, 8))
    ]
    ((provider, state, reason, members),) = reason_groups(rows)
    assert (provider, state, len(members)) == ("quack", "skipped", 3)
    assert reason == "Input N 33 … 781 is not divisible by 4 or 8"


def test_each_program_of_a_failure_is_linked():
    folder = ROOT / "docs/benchmarks/failures"
    page = (ROOT / "docs/benchmarks/method.md").read_text("utf8")
    linked = re.findall(r"\(failures/([\w-]+\.\w+)\)", page)
    assert sorted(linked) == sorted(path.name for path in folder.iterdir())


def test_a_copy_that_is_slow_itself_is_no_baseline():
    """Rows with gaps are compared with the fastest copy of the page, by bytes."""
    even = Case("strided", (8192, 16384), dim=0)
    gaps = Case("strided", (8192, 16384), layout="row_strided")
    rows = [row(even, COPY), row(gaps, COPY), row(gaps, CHOOSER)]
    take(rows, 100.0, 200.0, 104.0)
    share = gap_share(rows)({COPY: rows[1], CHOOSER: rows[2]}, CHOOSER)
    assert share == pytest.approx(100 / 104)


def test_the_gain_over_the_naive_lines_is_bytes_times_speeds():
    case = Case("article", (4096, 4096))
    rows = [row(case, COPY), row(case, CHOOSER), row(case, "naive")]
    take(rows, 100.0, 100.0, 500.0)
    gain = quoted.gain(rows)
    means = [gain.time.mean, gain.bytes.mean, gain.ours.mean, gain.naive.mean]
    assert means == pytest.approx([5, 4, 1, 0.8], rel=1e-2)


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
    assert problem_of(Case("", seen, dim=1), device_of(132)).library().kernel == name


def test_a_strided_kernel_shows_the_shapes_that_it_gets(made):
    text = made.fragments["bench-rung-strided"].text
    assert "dim 1" in text and "gaps" not in text and "· another kernel" in text
    assert "Not measured" in made.fragments["bench-rung-split_strided"].text


def test_a_rung_is_compared_with_all_libraries_where_all_were_asked(made):
    """And what its page says of it follows from the rows."""
    for name, rival in (("strided", "the fastest other library"), ("two_loops", "torch")):
        assert f"▲ ahead of {rival}, = " in made.fragments[f"bench-rung-{name}"].text
        rung = Rung(data(), name)
        pairs = []
        for group in rung.groups:
            other = best_peer(group) if name == "strided" else "torch"
            pairs.append((group[other]["us"]["p50"], group[name]["us"]["p50"]))
        factors = [other / own for other, own in pairs]
        assert rung.behind == sum(own > other + max(APART, NEAR * own) for other, own in pairs)
        assert rung.worst.factor == pytest.approx(min(factors)) and rung.cases == len(factors)


def test_blocks_of_bytes_follow_the_count(made):
    text = made.fragments["moved-three_loops"].text
    now = text[text.index('class="now"') :]
    assert now.count('class="read"') == 3 and now.count('class="write"') == 1
    assert "single block" in text and "3 reads + 1 write = </span>4 trips" in text


# Plots


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
    assert '<text class="bold">50,257</text>' in page_of(made, "forward")
    for top in (0.4, 1.04):  # the same axis everywhere, also where a share passes one by a little
        text = over_columns("t", "a", [Column("1", {CHOOSER: top})], [Series(CHOOSER, "ours")])
        assert re.findall(r">(\d+ %)<", text) == ["0 %", "25 %", "50 %", "75 %", "100 %"]


def test_a_wrong_answer_wins_nothing():
    case = Case("forward", (131072, 1024))
    wrong = row(case, "torch", status="wrong", reason="far off")
    wrong["us"] = {"p20": 0.1, "p50": 0.1, "p80": 0.1}
    group = {CHOOSER: row(case, CHOOSER), "torch": wrong, "liger": row(case, "liger")}
    assert best_peer(group) == "liger"


@pytest.mark.parametrize(("spoil", "named"), [
    (lambda d: d["rows"][0].pop("bytes"), "rows[0]"),
    (lambda d: d["rows"][0].update(dtype="int8"), "rows[0].dtype"),
    (lambda d: d["rows"][1].update(status="failed", reason=None), "rows[1].reason"),
    (lambda d: d["rows"][1].update(us=None, max_rel_error=None), "rows[1].us"),
    (lambda d: d["rows"].append(d["rows"][0]), "provider"),
    (lambda d: d["environment"].update(driver=3), "environment.driver"),
    (lambda d: d.update(format="other"), "format"),
])  # fmt: skip
def test_data_that_break_the_schema_are_refused_naming_file_and_field(
    spoil, named, tmp_path, capsys
):
    spoil(made := data(("host_time",)))
    path = str(put(tmp_path, made))
    assert main(["compare", path, path]) == 2
    said = capsys.readouterr().err
    assert "measurements.json" in said and named in said


def test_every_suite_keeps_to_the_published_schema():
    """A case of it, by each of its providers."""
    assert schema.SCHEMA.removeprefix("docs/benchmarks/") in (
        ROOT / "docs/benchmarks/method.md"
    ).read_text("utf8")
    made = data()
    rows = made["rows"]
    assert len({(row["case"], row["provider"]) for row in rows}) == len(rows)
    made["rows"] = [*{(row["suite"], row["provider"]): row for row in rows}.values()]
    assert schema.validate(made, "made up")


# Targets


def test_targets_are_judged_cell_by_cell():
    case = Case("forward", (131072, 1024))
    rows = [row(case, COPY), row(case, CHOOSER), row(case, "torch")]
    take(rows, 100.0, 104.0, 103.0)
    share, peer = targets.cells(rows)
    assert share.met and share.reached == "0.962 of the copy"
    assert peer.met and peer.reached == "0.990 (torch)"
    rows[1]["us"]["p50"] = 110.0
    assert [cell.met for cell in targets.cells(rows)] == [False, False]
    rows[1] = row(case, CHOOSER, status="failed", reason="boom", us=None)
    assert [cell.met for cell in targets.cells(rows)] == [False, False], "no answer is a miss"


def test_missed_targets_keep_number_and_reason(tmp_path):
    made = data(("compiles",))
    put(tmp_path, made)
    (tmp_path / REASONS).write_text('{"compiles/*float16*": "made up to miss"}')
    there = rendered.measurements(tmp_path).fragments
    text = there["bench-targets"].text + there["targets-missed"].text
    assert ">✗ 32 kernels<" in text and ">made up to miss<" in text
    assert "✗\N{NO-BREAK SPACE}4\N{NO-BREAK SPACE}of\N{NO-BREAK SPACE}6" in text


def test_a_reason_quotes_counters_of_all_its_cases_or_says_that_there_are_none(tmp_path):
    """Of two cases one has a profile, then both."""
    cases = [Case("forward", shape) for shape in ((131072, 1024), (65536, 2048))]
    run = {"environment": environment()}
    rows = [row(case, name) | run for case in cases for name in (COPY, CHOOSER)]
    take(rows, 100.0, 200.0, 100.0, 210.0)
    launch = dict.fromkeys(("ns", "dram_read", "dram_write", "spilled_write", "instructions"), 1)
    cells = {row["case"]: {CHOOSER: [launch | {"xu": 50, "stalls": {}}]} for row in rows[:2]}
    (tmp_path / profiled.FILE).parent.mkdir(parents=True)

    def told() -> str:
        (tmp_path / profiled.FILE).write_text(json.dumps({"runs": [{"cells": cells}]}))
        reasons = {"*": "Busy for {{ ours.xu.low:.0f }} to {{ ours.xu.high:.0f }} %."}
        profiles = profiled.Profiles(tmp_path, rows)
        return bookkeeping.missed_fragment(data() | {"rows": rows}, reasons, profiles).text

    assert re.sub("<[^>]+>", "", told()).count("(not measured) to (not measured) %.") == 1
    cells[rows[2]["case"]] = {CHOOSER: [launch | {"xu": 75, "stalls": {}}]}
    assert 'Busy for <data value="50">50</data> to <data value="75">75</data> %.' in told()


# Notices


NOVEMBER = "2026-11-20T20:00:00Z"


def measured(changed: int = 0) -> Measured:
    return Measured(NOVEMBER, changed, 7)


def test_a_warning_says_when_code_has_changed_or_numbers_are_old():
    """Fresh numbers of unchanged launches need none."""
    day = datetime(2026, 11, 20, 20, tzinfo=UTC)
    assert warning(measured(), day) == warning(measured(), day + timedelta(days=90)) == ""
    html = markdown.markdown(f"Before.\n\n{warning(measured(3), day)}After.")
    assert '<div class="admonition warning" data-search-exclude>' in html
    assert "Measured on 20 November 2026</p>" in html and "earlier code: 3 of 7. <a" in html
    several = warning(measured(3)._replace(last="2026-11-28T01:00:00Z"), day)
    assert "Measured on 20 November 2026 to 28 November 2026" in several
    old = warning(measured(), day + timedelta(days=91))
    assert "This was 91 days before" in old and "earlier code" not in old


def test_a_number_beside_a_title_says_in_a_word_that_the_code_has_changed():
    found = {"rows": [{**row, "changed": False} for row in measurements(ROOT)["rows"]]}
    before, said = headline_fragment(found, "two_loops").text, ", before the last change"
    headline(found, "two_loops")[1]["changed"] = True
    after = headline_fragment(found, "two_loops").text
    assert said not in before and after.replace(said, "") == before != after


def test_a_call_that_launches_something_else_is_marked_and_counted(made, tmp_path):
    then = {f"forward/a {CHOOSER}": [], f"forward/b {CHOOSER}": []}
    today = {**then, f"forward/a {CHOOSER}": [launches.Launch("kernel", "machine", "1", "")]}
    launches.write_down(tmp_path, {"commit": [*then]}, then, today, {})
    put(tmp_path, data(("forward",)))
    text = bookkeeping.launched_fragment(tmp_path).text
    assert "measured calls 1 of 2 launch something else today, and 0 of 0 over" in text
    rows = data(("forward",))["rows"]
    calls = sum(row["provider"] == CHOOSER for row in rows)
    times = [each["utc"] for each in rows]
    assert measured_by(rows) == Measured(min(times), 0, calls, max(times))
    next(row for row in rows if row["provider"] == CHOOSER)["changed"] = True
    assert measured_by(rows).changed == 1


# Two runs side by side


def test_what_compare_takes_for_slower(tmp_path, capsys):
    """A lost answer; twice the time, unless the copy takes it too; and nothing in common."""
    before, lost, slower, twice = (data(("batch",)) for _ in range(4))

    def compared(after: dict, *options: str) -> int:
        paths = [tmp_path / "before.json", tmp_path / "after.json"]
        for path, made in zip(paths, (before, after)):
            path.write_text(schema.dump(made))
        return main(["compare", *map(str, paths), *options])

    assert compared(before) == 0
    (row, lost_row) = (
        next(r for r in made["rows"] if r["provider"] == CHOOSER) for made in (slower, lost)
    )
    take([row], row["us"]["p50"] * 1.06)
    assert compared(slower) == 1 and "1.060  SLOWER" in capsys.readouterr().out
    assert compared(slower, "--max-slowdown", "1.1") == 0
    lost_row.update(status="wrong", reason="far off")
    for each in twice["rows"]:
        each["us"]["p50"] *= 2
    rows = before["rows"]
    assert not compare(rows, lost["rows"], 1.5)[1] and not compare(rows, twice["rows"], 1.05)[1]
    assert compare(rows, twice["rows"], 1.05, per_copy=True)[1]
    assert not compare(rows, data(("host_time",))["rows"], 1.05)[1]


# The report of the GPU tests

JUNIT = """<testsuites><testsuite time="2.5">
<testcase classname="tests.gpu.test_a" name="test_one"/>
<testcase classname="tests.gpu.test_a" name="test_two"><failure message="no"/></testcase>
<testcase classname="tests.gpu.test_b" name="test_three"><skipped type="pytest.skip"/></testcase>
</testsuite></testsuites>"""


def test_the_report_counts_by_state_and_module_and_its_page_names_the_commit(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1795200000")
    junit, out = tmp_path / "junit.xml", tmp_path / bookkeeping.TESTS
    junit.write_text(JUNIT)
    out.parent.mkdir(parents=True)
    asked = ["--junitxml", str(junit), "--out", str(out), "--commit", "0123456789"]
    assert main(["gpu-report", *asked]) == 0
    assert "1 passed, 1 failed, 1 skipped" in capsys.readouterr().out
    loaded = schema.load(out, "gpu-tests")
    assert loaded["counts"] == {"passed": 1, "failed": 1, "skipped": 1, "xfailed": 0}
    assert loaded["modules"] == {"tests.gpu.test_a": [1, 1, 0], "tests.gpu.test_b": [0, 0, 1]}
    assert loaded["failures"] == ["tests.gpu.test_a::test_two"]
    fragment = bookkeeping.gpu_tests_fragment(tmp_path)
    assert "commit `0123456789`" in fragment.text
    assert "* `tests.gpu.test_a::test_two`" in fragment.text
    assert fragment.measured == Measured(loaded["utc"])


def test_the_page_names_the_commit_of_the_sanitizer(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1795200000")
    run = json.loads((ROOT / bookkeeping.SANITIZER).read_text("utf8"))
    fragment = bookkeeping.sanitizer_fragment(ROOT)
    assert f"commit `{run['commit'][:12]}`" in fragment.text
    assert fragment.measured == Measured(run["utc"])
    for tool in ("memcheck", "initcheck", "racecheck"):  # the page says that each ended
        log = (ROOT / bookkeeping.SANITIZER).with_name(f"{tool}.txt").read_text("utf8")
        assert " SUMMARY: 0 " in log.splitlines()[-1], tool


def test_a_count_of_gpu_cases_names_its_commit():
    """The library has changed since then, so the number alone would say too much."""
    pages = [path.read_text("utf8") for path in (ROOT / "docs").rglob("*.md")]
    counting = [text for text in pages if "{{ gpu_tests[counts]" in text]
    assert counting and all("{{ gpu_tests[commit] }}" in text for text in counting)


# --- attention ------------------------------------------------------------------------------------


def test_a_rung_that_takes_longer_than_the_one_before_is_counted():
    times = {(64, False, 1024): (2.0, 1.0), (64, True, 1024): (1.0, 2.0), (128, True, 1024): (3, 2)}
    found = {
        shape: {"diagonal": {"p50": before}, "descriptors": {"p50": after}}
        for shape, (before, after) in times.items()
    }
    counts = attention.overtaken(found)
    assert counts["descriptors"] == {"count": 1, "of": 3}
    assert counts["descriptors_64"] == {"count": 1, "of": 2}
    assert counts["descriptors_128"] == {"count": 0, "of": 1}
    assert counts["diagonal"] == counts["attention"] == {"count": 0, "of": 0}


def test_charts_and_tables_of_attention_follow_its_file(tmp_path):
    without = attention.fragments(tmp_path)
    assert {each.text for each in without.values()} == {"Not measured yet.\n"}
    assert not any(each["of"] for each in attention.quoted(tmp_path)["overtaken"].values())
    made = json.loads((ROOT / attention.FILE).read_text("utf8"))
    speeds = {"fa2": 40.0, "cudnn": 25.0, "attention": 20.0, "copy": 36.0}
    for each in made["runs"][0]["rows"]:
        us = speeds.get(each["provider"], 39.5)
        each |= dict.fromkeys(("p20", "p50", "p80"), us * each["length"]) | {"worst_error": us}
        each |= {"tflops": 1e5 / us} if "tflops" in each else {}
        each |= {"us_loop": 2.5 * us * 1024}
    path = tmp_path / attention.FILE
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(made))
    found = attention.fragments(tmp_path)
    assert found.keys() == without.keys() and all(each.measured for each in found.values())
    for way in ("forward", "backward"):
        assert found[f"attention-{way}"].text.count('class="plot lines') == 4
    assert "in turn" in found["attention-forward"].text
    assert "in turn" not in found["attention-backward"].text
    few = found["attention-rungs-backward"].text
    assert "16,384 keys" in few and "1,024 keys" not in few
    assert few.count("▲") - 1 == 4 * 2 and "FlexAttention" in few  # one is in the caption
    ours = re.findall(r"in a loop</td><td[^>]*>([^<]+)", found["attention-loops"].text)
    assert ours == ["51,200.0"] * 5  # of one query, and of four shapes with 1,024 keys
    assert found["attention-loops"].text.count("20,480.0") == 4
    beside = attention.quoted(tmp_path)
    assert beside["loops"]["forward"].high == pytest.approx(2.5)
    assert beside["looped"]["sdpa"] == beside["decoding"]["sdpa"]  # all take 2.5 times as long
    assert beside["backward"]["fa2"] == pytest.approx([2.0] * 20)
    assert beside["error"]["fa2"].high == pytest.approx(0.5)
    assert beside["decoding"]["copy"].mean == pytest.approx(0.9)
    assert attention.in_turn(64) < attention.in_turn(128) < attention.PEAK / 1e12
