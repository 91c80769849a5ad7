"""Choices near the library's own: which they are, that they are right, and what a file says."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from softmax_bench import __main__, candidates, report, tune, tuned
from softmax_site.benchmarks.suites import tuning as page
from triton_softmax.choose import Device
from triton_softmax.choose.row_tiles import Rows

ROOT = Path(__file__).resolve().parents[2]
H200 = Device(132, nvidia=True)


@pytest.fixture(scope="module")
def drawn():
    """Cells of every class, with what is tried in each."""
    cases = candidates.select(5, 40, device=H200)
    problems = [candidates.problem_of(case, H200) for case in cases]
    return [(case, each, candidates.tried(each, 3)) for case, each in zip(cases, problems)]


def test_cells_are_of_every_class(drawn):
    kinds = {candidates.class_of(case, problem.library().kernel) for case, problem, _ in drawn}
    assert len(kinds) >= 24 and {kind[0] for kind in kinds} == {
        "packed_rows", "aligned_rows", "split_rows", "strided",
    }  # fmt: skip
    few = candidates.select(5, 12, ["aligned_rows"], ["bfloat16"], small=True, device=H200)
    assert 0 < len(few) <= 12
    for case in few:
        assert case.dtype == "bfloat16" and case.bytes < candidates.SMALL_BYTES


def test_what_is_tried_is_possible_and_no_two_alike(drawn):
    for case, problem, choices in drawn:
        assert len(set(choices)) == len(choices) >= 4
        assert choices[0] == problem.library() and problem.modelled() in choices
        for choice in choices:
            assert tune.decoded(json.loads(json.dumps(tune.encoded(choice)))) == choice
            how = choice.how
            for number in (how.block_cols if hasattr(how, "block_cols") else how.block,):
                assert number & (number - 1) == 0
            room = getattr(how, "tiles", 1) * getattr(how, "block_cols", 0)
            if choice.kernel in ("packed_rows", "strided"):
                assert room >= problem.facts.n_cols, case
            if choice.kernel == "aligned_rows":
                assert room >= problem.facts.n_cols // how.vector * how.vector, case
            if choice.kernel == "split_rows":
                assert how.block * choice.n_chunks >= problem.facts.n_cols
                assert how.polls * 32 * choice.num_warps == how.words >= choice.n_chunks


def test_a_constant_is_tried_with_other_values():
    problem = candidates.Problem(Rows(4096, 96, 2, 8, False, 8), candidates.Traits(1, True), H200)
    found = candidates.by_constants(problem)
    assert found["row_tiles.SHORT=64"].how.tiles != problem.library().how.tiles
    names = {label for label, *_ in candidates.constants()}
    assert "row_tiles.LONGEST[(2, False)][0]=10240" in names
    assert not any("MAX_" in label for label in names)
    assert problem.library() not in found.values(), "nothing is left changed, or tried twice"


def test_a_run_writes_what_a_report_reads(tmp_path, capsys):
    out = tmp_path / "tuning.json"
    arguments = ["tune", "--device", "cpu", "--seed", "202", "--cells", "300", "--processes", "0"]
    arguments += ["--most-bytes", "6000", "--explore", "1", "--out", str(out)]
    assert __main__.main(arguments) == 0
    (run,) = tune.load(out)
    (cell,) = run.cells
    assert len(cell.timed) >= 6 and all(each.first and each.second for each in cell.timed)
    assert __main__.main(arguments) == 0, "goes on with the file, in which nothing is missing"
    assert "\n0 cells" in capsys.readouterr().out and tune.load(out) == [run]
    assert __main__.main(["tune", "--report", str(out)]) == 0
    assert cell.case.id in capsys.readouterr().out
    joined = tmp_path / "joined.json"
    assert __main__.main(["tune", "--join", str(out), str(out), "--out", str(joined)]) == 0
    assert tune.load(joined) == [run, run]


def test_a_wrong_answer_has_no_time(monkeypatch):
    case = next(case for case in candidates.select(202, 300) if case.bytes < 6000)
    problem = candidates.problem_of(case, Device())
    bench, wrong = tune.Bench("cpu"), problem.modelled()
    right = bench.call

    def call(case, tensors, choice):
        made = right(case, tensors, choice)
        return (lambda: made() * 1.2) if choice == wrong else made

    monkeypatch.setattr(bench, "call", call)
    cell = bench.timed(case, problem, [problem.library(), wrong], lambda call: [2.0, 1.0, 3.0])
    assert cell.timed[0][1:] == (2.0, 2.0) and cell.timed[1][1:] == (None, None)
    assert cell.reached(wrong) is None and cell.reached(problem.library()) == 1.0


# --- the file and the page


@pytest.fixture
def file(drawn, tmp_path):
    """Two runs in which the library takes 1.0 or 1.25 times the best, and the model twice that."""
    runs = []
    for unseen in (False, True):
        cells = []
        for number, (case, problem, choices) in enumerate(drawn):
            slow = 1.25 if number % 2 else 1.0
            times = [slow * 8, slow * 16, *(10.0,) * (len(choices) - 3), 8.0]
            timed = [tune.Timed(each, us, us) for each, us in zip(choices, times)]
            cells.append(tune.Cell(case, problem, 5.0, timed, {"library": 0, "model": 1}))
        environment = dict.fromkeys(tune.ENVIRONMENT, "x") | {"multiprocessors": 132}
        runs.append(tune.Run(5, unseen, environment, cells))
    path = tmp_path / tuned.FILE
    path.parent.mkdir(parents=True)
    tune.write(path, runs)
    return path


def test_what_the_page_says_follows_from_the_file(file, tmp_path):
    (run, _), text = tuned.read(file), page.fragment(tmp_path).text
    assert tune.load(file)[0].cells[3].reached(tune.load(file)[0].cells[3].timed[0].choice) == 0.8
    n = len(run["cells"])
    product = 1.0
    for number in range(n):
        product *= 0.8 if number % 2 else 1.0
    assert f'<td class="n" data-label="constants: of the best">{product ** (1 / n):.3f}<' in text
    assert page.shares(run["cells"], "library").count(0.8) == n // 2
    assert "Seed 5, by which constants were chosen" in text
    assert "measured before any constant was chosen by it" in text
    data = json.loads(file.read_text("utf8"))
    for cell in data["runs"][0]["cells"]:
        cell["timed"][0][2] *= 2
    file.write_text(json.dumps(data), "utf8")
    assert page.fragment(tmp_path).text != text


BREAKS = {
    "the format": lambda data: data.update(format=9),
    "no runs": lambda data: data.pop("runs"),
    "a time below zero": lambda data: data["runs"][0]["cells"][0]["timed"][0].__setitem__(2, -1.0),
    "a copy in no time": lambda data: data["runs"][0]["cells"][0].update(copy=0),
    "no time at all": lambda data: data["runs"][0]["cells"][0].update(
        timed=[[each[0], None, None] for each in data["runs"][0]["cells"][0]["timed"]]
    ),
    "another seed": lambda data: data["runs"][0]["cells"][0].update(seed=6),
    "a choice that is not there": lambda data: data["runs"][0]["cells"][0].update(library=99),
    "words for a time": lambda data: data["runs"][0]["cells"][0]["timed"][0].__setitem__(1, "1"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_bad_file_is_refused(name, file, tmp_path):
    data = json.loads(file.read_text("utf8"))
    BREAKS[name](data)
    file.write_text(json.dumps(data), "utf8")
    with pytest.raises(tuned.DataError, match=r"tuning\.json"):
        tuned.read(file)
    with pytest.raises(tuned.DataError):
        page.fragment(tmp_path)
    assert __main__.main(["tune", "--report", str(file)]) == 2


def test_the_committed_file_holds_what_the_page_claims():
    """Whole, small, of a seed that was tuned on, one that was not, and shapes that were named; the
    model within a tenth of the best on all, and no cell in which today's choice is slower than that
    of then."""
    path = ROOT / tuned.FILE
    runs = tune.load(path)
    assert [run.unseen for run in runs] == [False, True, False] and path.stat().st_size < 500_000
    assert runs[2].seed == tuned.LISTED
    for run, data in zip(runs, tuned.read(path)):
        assert len({cell.case.id for cell in run.cells}) == len(run.cells) > 80
        shares = page.shares(data["cells"], "model")
        # Of what was named, choices were made that were not among those that were timed.
        assert len(run.cells) - len(shares) <= (25 if run.seed == tuned.LISTED else 0)
        assert report.geometric_mean(shares) > 0.9
        for cell in run.cells:
            chosen, now = cell.chosen["library"], cell.time(cell.problem.library())
            then = None if chosen is None else cell.timed[chosen].second
            assert None in (now, then) or now <= 1.01 * then, cell.case.id


def test_facts_of_another_cell_are_refused(file):
    data = json.loads(file.read_text("utf8"))
    cells = data["runs"][0]["cells"]
    rows = [cell for cell in cells if "rows" in cell]
    rows[0]["rows"] = copy.deepcopy(rows[1]["rows"])
    file.write_text(json.dumps(data), "utf8")
    tuned.read(file)
    with pytest.raises(tuned.DataError, match="not described"):
        tune.load(file)
