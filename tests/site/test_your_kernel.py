"""The reader's kernel on the ladder: predicted from what it moves, and timed on a GPU."""

import json
from urllib.parse import unquote

import pytest
import torch

from browser import PHONE
from exercises import __main__ as command
from kernel_cases import INTERPRETED
from site_build import ROOT, python
from softmax_bench import traffic
from softmax_playground import small_triton
from softmax_playground.checker import course, in_page, timed, with_triton
from softmax_playground.small_triton import session
from softmax_site import on_your_gpu
from softmax_tutorial import __main__ as tutorial
from softmax_tutorial import ladder_table, single_block, three_loops, two_loops

interpreted = pytest.mark.skipif(not INTERPRETED, reason="needs Triton's interpreter")
COURSE = course.load(ROOT)
BASIS = ladder_table.basis(ROOT)
MEASURED = dict(BASIS["rungs"])
TIMED = {
    "padding": 2, "single_block": 2, "million": 2, "read_once": 2, "three_loops": 4,
    "long_softmax": 4, "online_softmax": 3, "zero_start": 3, "empty_tile": 3, "two_loops": 3,
}  # fmt: skip
"""Exercises whose kernel is on the ladder, and the numbers that it moves for each of the matrix."""


def said(name: str, source: str = "") -> dict:
    """What a page answers to a source, or to the solution."""
    each = COURSE[name]
    line_of = lambda error: session._where(error)["line"]  # noqa: E731
    request = json.dumps({"name": name, "source": source or each.solution})
    sheets = {name: [each.check, each.solution]}
    return json.loads(in_page.answer(small_triton, line_of, sheets, request, BASIS))


@pytest.fixture
def small_ladder(monkeypatch):
    """A matrix that the interpreter can take, and a timer that knows the answers."""
    monkeypatch.setattr(tutorial, "SHAPE", (3, 64))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A GPU")
    seen = []

    def microseconds(call):
        seen.append(call)
        call()
        return 100.0 * len(seen)

    monkeypatch.setattr(tutorial, "timer", lambda: microseconds)
    return seen


def timed_by_command(name: str, source: str, folder) -> int:
    """The exit code of the command on a file with that source."""
    (folder / "mine.py").write_text(source, "utf8")
    return command.main([name, "--time", "--file", str(folder / "mine.py")])


def test_rungs_are_predicted_from_their_traffic():
    """Every kernel within 15 % of what was measured; the lines of PyTorch are not, and the page
    says so."""
    found = {label: us / took - 1 for label, _, us, took in on_your_gpu.predicted(BASIS)}
    assert [*found] == [*ladder_table.LADDER.values()][1:]
    for label, off in found.items():
        assert (abs(off) <= timed.WITHIN) == (label != "naive"), (label, off)
    page = (ROOT / "docs" / on_your_gpu.PAGE).read_text("utf8")
    assert f"Each rung that is one kernel is within {timed.WITHIN:.0%}".replace("%", " %") in page
    assert "The *naive* lines are five kernels of PyTorch, which take longer" in page
    assert len(traffic.NAIVE_LINES) == 5 and len(TIMED) == 10 and "Ten of the [exercises]" in page


def test_a_number_read_again_is_cheaper_where_the_cache_has_it():
    """Programs of 16 warps are half as many at once as those of 8, and their rows fit."""
    many, few = (timed.predicted(BASIS, 3, 1, warps) for warps in (8, 16))
    assert many == pytest.approx(1.5 * MEASURED["copy"])
    assert MEASURED["copy"] < few < many
    assert timed.predicted(BASIS | {"l2_bytes": 2**20}, 3, 1, 16) == many


@pytest.mark.parametrize("name", TIMED)
def test_an_exercise_says_how_long_its_kernel_takes(name):
    """In the page, once it is right; in the order of the ladder."""
    found = said(name)
    assert found["solved"]
    copies = TIMED[name] / 2
    assert found["us"] == pytest.approx(copies * MEASURED["copy"], rel=1e-3)
    assert f"moves {TIMED[name]} numbers" in found["predicted"]
    assert f"on an {BASIS['gpu']}, give or take" in found["predicted"]
    level, *_ = found["predicted"].split("level with ")[1].split(".")
    rung = {2: "single block", 3: "two loops", 4: "three loops"}[TIMED[name]]
    assert rung in level.split(";")[0]
    assert "predicted" not in said(name, COURSE[name].start)


@interpreted
def test_others_are_on_no_ladder(small_ladder, tmp_path, capsys):
    assert not [name for name in COURSE if name not in TIMED and "predicted" in said(name)]
    assert timed_by_command("lse_kernel", COURSE["lse_kernel"].solution, tmp_path) == 1
    assert "computes no softmax of a matrix's rows" in capsys.readouterr().out


AGAIN = "x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=-float('inf'))"
HEAD = COURSE["three_loops"].solution.partition("def ")[0]
NARROW = (
    HEAD
    + """def softmax_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row, m, d = tl.program_id(0), -float("inf"), 0.0
    for j in range(n_cols):
        m = tl.maximum(m, tl.load(x_ptr + row * n_cols + j))
    for j in range(n_cols):
        d += tl.exp(tl.load(x_ptr + row * n_cols + j) - m)
    for j in range(n_cols):
        tl.store(y_ptr + row * n_cols + j, tl.exp(tl.load(x_ptr + row * n_cols + j) - m) / d)
"""
)


def test_what_traffic_does_not_decide_is_not_predicted():
    """Elements one by one; and a row that is loaded twice into registers, of which Triton's
    compiler makes one load (`test_the_compiler_merges_equal_loads`)."""
    found = said("three_loops", NARROW)
    assert found["solved"] and found["us"] is None
    assert "many small loads" in found["predicted"]
    text = COURSE["padding"].solution
    found = said("padding", text.replace("    e = tl", f"    {AGAIN}\n    e = tl"))
    assert found["solved"] and found["us"] is None
    assert "loads x again" in found["predicted"] and "compiler" in found["predicted"]


@pytest.mark.slow
def test_the_compiler_merges_equal_loads(tmp_path):
    """As the page says where it predicts nothing: three loads of a row are one in the program."""
    path = tmp_path / "twice.py"
    path.write_text(COURSE["read_once"].start, "utf8")
    script = (
        "import sys, triton; from exercises.__main__ import Path, compiled\n"
        "real = triton.compile\n"
        "def shown(*a, **k):\n    made = real(*a, **k); print(made.asm['ttgir'].count('tt.load'))\n"
        "    return made\n"
        "triton.compile = shown; compiled(Path(sys.argv[1]))"
    )
    ran = python("-c", script, str(path), TRITON_INTERPRET=None)
    assert path.read_text("utf8").count("tl.load(") == 3
    assert ran.stdout.strip() == "1", ran.stderr


def test_a_place_is_told_in_words():
    rungs = [["copy", 100.0], ["one", 101.0], ["two", 140.0], ["three", 400.0]]
    assert timed.place(102.0, rungs, 0.02) == "level with one; faster than two and three"
    assert timed.place(150.0, rungs, 0.02) == "faster than three; slower than two and one"
    assert timed.place(500.0, rungs, 0.02) == "slower than three, two and one"


@pytest.mark.browser
def test_the_page_ranks_a_right_softmax_and_offers_its_file(tab):
    """On a phone; what is changed later has no place yet."""
    view = tab.open("kernels/single-block").view
    tab.resize(PHONE)
    box = view.locator("[data-exercise=single_block]")
    code, place = box.locator("textarea"), box.locator(".exercise-place")
    source = COURSE["single_block"].solution.rstrip()
    code.fill(source)
    box.get_by_role("button", name="Check").click()
    row = place.locator(".yours")
    row.wait_for()
    assert row.inner_text().split() == ["yours", "≈", f"{MEASURED['copy']:.0f}", "µs"]
    assert place.locator("li").count() == len(ladder_table.LADDER) + 1
    link = place.get_by_role("link", name="download it")
    assert link.get_attribute("download") == "single_block.py"
    held = unquote(link.get_attribute("href").partition(",")[2])
    assert held == source + "\n"
    assert "python -m exercises single_block --time --file single_block.py" in place.inner_text()
    assert view.evaluate("document.documentElement.scrollWidth") <= PHONE
    box.get_by_role("button", name="Start over").click()
    assert not place.inner_text()


@pytest.mark.slow
def test_without_a_gpu_the_command_predicts_and_says_what_to_do(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(COURSE["single_block"].solution, "utf8")
    run = ["-m", "exercises", "single_block", "--time", "--file", str(file)]
    ran = python(*run, TRITON_INTERPRET=None, PYTHONPATH=None, CUDA_VISIBLE_DEVICES="")
    assert ran.returncode == 1
    assert ran.stdout.startswith("✓ single_block: Right") and "level with" in ran.stdout
    assert "There is no GPU here" in ran.stderr


def test_warps_are_those_of_the_rungs(monkeypatch):
    """Of a kernel that holds a row, of one in four tiles, and those that the tuner may choose."""
    _, cols = ladder_table.SHAPE
    assert timed.MatrixLaunch(None, True).warps == single_block.num_warps_for_block(cols)
    loops, asked = timed.MatrixLaunch(None, False), {}
    kernel = {(1,): lambda *_, **constants: asked.update(constants)}
    monkeypatch.setattr(three_loops, "softmax_forward_three_loops_kernel", kernel)
    three_loops.softmax_forward(torch.zeros(1, cols))
    assert (loops.warps, cols // loops.tiles) == (asked["num_warps"], asked["BLOCK_COLS"])
    assert {each.num_warps for each in two_loops.tuning_space()} == {
        *on_your_gpu.WARPS["two_loops"]
    }


@interpreted
@pytest.mark.parametrize("name", ["single_block", "three_loops", "online_softmax"])
def test_the_command_times_a_kernel_beside_the_rungs(name, small_ladder, tmp_path, capsys):
    """It is a row of the table; the first is the copy, and ours is the last to be timed."""
    assert timed_by_command(name, COURSE[name].solution, tmp_path) == 0
    out = capsys.readouterr().out
    rows = {line[:13].strip(): line[13:].split() for line in out.splitlines()}
    count = len(ladder_table.LADDER) + 1
    assert len(small_ladder) == count
    assert rows["yours"][0] == f"{100 * count:,.1f}" and rows["yours"][2] == f"{1 / count:.2f}"
    assert "Yours is slower than the library, " in out


@interpreted
def test_the_small_triton_looks_first(monkeypatch):
    """What it refuses is not launched, since a GPU would write out of range."""
    launched = []
    launch = with_triton.Lab.launch
    count = lambda *given, **named: launched.append(given) or launch(*given, **named)  # noqa: E731
    monkeypatch.setattr(with_triton.Lab, "launch", count)
    each = COURSE["single_block"]
    past = each.solution.replace("cols < n_cols", "cols <= n_cols")
    solved, message, *_ = command.checked(each, past)
    assert not solved and "out of range" in message and not launched
    for name in ("single_block", "backward_project", "cross_entropy"):
        solved, message, *_ = command.checked(COURSE[name], COURSE[name].solution)
        assert solved and launched, message


@interpreted
def test_a_wrong_kernel_is_not_timed(small_ladder, tmp_path, capsys):
    """Neither one that the checker refuses, nor one that is wrong on the large matrix alone."""
    text = COURSE["single_block"].solution
    soon = text.replace("x - tl.max(x, axis=0)", "x")
    assert timed_by_command("single_block", soon, tmp_path) == 1
    assert "Without the maximum exp(x) overflows" in capsys.readouterr().out and not small_ladder
    late = text.replace("e / tl.sum(e, axis=0)", "e / tl.sum(e, axis=0) * (1 + (n_cols > 60))")
    assert timed_by_command("single_block", late, tmp_path) == 1
    assert "yours gives a wrong answer" in capsys.readouterr().out


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["single_block", "three_loops", "two_loops", "long_softmax"])
def test_on_a_gpu_the_prediction_holds(name, tmp_path, capsys):
    """From the copy of the same run: the GPU may be another one than that of the data."""
    assert timed_by_command(name, COURSE[name].solution, tmp_path) == 0
    out = capsys.readouterr().out
    rows = {line[:13].strip(): line[13:].split() for line in out.splitlines() if "█" in line}
    us = {label: float(row[0].replace(",", "")) for label, row in rows.items()}
    properties = torch.cuda.get_device_properties(0)
    here = {"rungs": [["copy", us["copy"]]], "l2_bytes": properties.L2_cache_size}
    here["multiprocessors"] = properties.multi_processor_count
    again = TIMED[name] - 2
    found = timed.predicted(BASIS | here, TIMED[name], again, 8 if again else 16)
    with capsys.disabled():
        print(f"\n{name}: predicted {found:.0f} µs, timed {us['yours']:.0f}\n{out}")
    assert abs(found / us["yours"] - 1) <= timed.WITHIN
