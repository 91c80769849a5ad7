"""Cells: what they run is the library's, and what they show is what they compute. What readers do
with them is in `test_cells_in_browser.py`."""

import gc
import itertools
import json
import re
import time

import pytest

from browser import LONG
from site_build import ROOT
from softmax_playground import cells
from softmax_playground.small_triton import session
from softmax_site import source

NAMES = cells.names(ROOT)
MISTAKES = [name for name in NAMES if name.startswith("mistakes/")]
PAGES = [path.read_text("utf8") for path in (ROOT / "docs").rglob("*.md")]


@pytest.fixture(autouse=True, scope="module")
def library():
    session.provide(cells.library(ROOT))


@pytest.mark.parametrize("name", NAMES)
def test_a_cell_is_right_and_a_mistake_fails_until_it_is_mended(name):
    cell = cells.read(ROOT, name)
    answer = cell.run()
    assert cell.is_mistake == (name in MISTAKES) == bool(answer["error"])
    assert cell.hint and not cell.run("right")["error"]
    if not cell.is_mistake:
        assert answer["verdict"] == {"right": True, "step": None}
        assert "✓</span> Right: " in cells.html(ROOT, name)


def tried(cell, label):
    """What a run answers after the click on that button."""
    old, new = next((old, new) for each, old, new, _ in cell.tries if each == label)
    return session.run_cell(cell.request([text.replace(old, new) for text in cell.texts()]))


MASKED = ", mask=cols < n, other=-inf)"
VERDICTS = [
    ("home", "exp(x - m)", "exp(x)", "y[1, 0] is NaN and should be 0.015876; 3 of 6 differ. NaN"),
    ("home", "softmax[(2,)]", "softmax[(1,)]", "No program has written it"),
    ("home", "y_ptr + row * n", "y_ptr + row", "Programs 0 and 1 write it"),
    ("home", "x_ptr + row * n", "x_ptr", "Row 1 has the results of row 0"),
    ("home", "x_ptr + row * n", "x_ptr + row * 2", "has read x[0, 2]: look at the mask"),
    ("home", MASKED, ", mask=row * n + cols < 6, other=-inf)", "which wrote it, has read x[1, 0]"),
    ("home", MASKED, ", mask=cols < 2, other=-inf)", "No program reads x[0, 2]"),
    ("home", MASKED, ", mask=cols < n)", "Masked lanes of x hold NaN"),
    ("home", "other=-inf", "other=0.0", "Masked lanes of x hold 0, which"),
    ("home", "e / tl.sum", "e * tl.sum", "Step back from where it is written"),
    ("home", "y = empty((2, 3)", "y = empty((3, 3)", "Not checked: y has not the shape"),
    ("backward", "dy - ", "", "6 of 6 differ. Step back"),
    ("naive", "e / tl.load", "e * tl.load", "6 of 6 differ. Step back"),
    ("two-loops", 'ROWS,), float("-inf")', "ROWS,), 0.0",
     "Right here, but with negative numbers far apart it is wrong. y[0, 0] is NaN"),
    ("attention", "scores = tl.where((keys < n_keys)", "scores = tl.where((keys <= n_keys)",
     "Right here, but with three queries and five keys it is wrong. o[0] is"),
    ("primer", ', other=float("-inf")', "", "negative numbers it is wrong. out[0] is ∞ and should"),
    ("primer", 'float("-inf")', "9.0", "out[0] is 9 and should be 5; 1 of 2 differ. Masked"),
    ("operations-and-geometries", "OP=SOFTMAX", "OP=ODDS", "Right: y is odds"),
    ("score-modifiers", "cols <= row", "cols < 4", "Right: y is softmax of all scores"),
    ("vectors", "causal = False", "causal = True", "Right: o is the values"),
    ("single-block", "LOG=False", "LOG=True", "Right: y is log_softmax(x). No element is read"),
    ("split-rows", "order()", "order()", "It reads parts of x up to 3 times and keeps words"),
    ("split-rows", "order()", "order(0, 1, 2)", "Right: y is softmax of the row. It keeps words"),
    ("loss-head", "[2, 0]", "[2, -1]", "Right: dx is the gradient, loss is the cross-entropy"),
    ("loss-head", "[2, 0]", "[2, 0]", "It writes parts of dx twice: 112 bytes, where 104"),
    ("naive", "n)", "n)", "reads x twice and keeps m, z, e and d in memory: 224 bytes, where 48"),
    ("score-modifiers", "cols <= row", "cols <= row", "read or written twice: 104 bytes."),
    ("two-loops", "tl.max(", "tl.maxx(", "AttributeError: there is no tl.maxx; did you mean"),
    ("home", "x_ptr + row * n + cols, mask=cols < n, other=-inf", "x_ptr + row * n + cols",
     "leaves x: program 1"),
]  # fmt: skip


TRIED = [(name, label) for name in NAMES for label, *_ in cells.read(ROOT, name).tries]
STAYS_RIGHT = {
    ("home", "read x twice"),
    ("aligned-rows", "begin the body with the row"),
    ("cross-entropy", "load the target's logit"),
    *(("split-rows", label) for label, *_ in cells.read(ROOT, "split-rows").tries),
}


@pytest.mark.parametrize("name, label", TRIED)
def test_a_click_that_breaks_a_cell_is_told_from_one_that_does_not(name, label):
    answer = tried(cells.read(ROOT, name), label)
    right = not answer["error"] and answer["verdict"]["right"]
    assert right == ((name, label) in STAYS_RIGHT)


@pytest.mark.parametrize("name, old, new, says", VERDICTS)
def test_a_verdict_says_what_is_wrong_and_what_to_look_at(name, old, new, says):
    cell = cells.read(ROOT, name)
    texts = [text.replace(old, new) for text in cell.texts()]
    assert old in "".join(cell.texts())
    answer = session.run_cell(cell.request(texts))
    html = answer["html"]
    assert says in html
    if not answer["error"] and answer["verdict"]["right"] is False and "Right here" not in html:
        assert "as it should be</b>" in html and "off" in html


def test_a_row_of_another_dtype_is_judged_within_its_rounding():
    texts = cells.read(ROOT, "home").texts()
    texts = [texts[0].replace('name="y"', 'dtype=float16, name="y"')]
    answer = session.run_cell({"texts": texts, "right": ["y = softmax(x)"]})
    assert answer["verdict"]["right"]


def test_what_a_cell_finds_is_said_in_the_page():
    """Every name is in the list, and a cell lists those that it uses."""
    page = (ROOT / "docs/reference/how-checks-work.md").read_text("utf8")
    said = {*re.findall(r"`(\w+)`", page.split("{ #names }")[1])}
    assert {*session.NAMES, "tl", "triton", "show"} <= said
    shown = cells.html(ROOT, "tile")
    for name in ("tl", "inf", "Tensor", "empty", "SOFTMAX", "LOGSUMEXP", "RowTile"):
        assert f"<code>{name}</code>" in shown.split('class="run-names"')[1]


@pytest.mark.parametrize("name", NAMES)
def test_a_cell_stands_on_one_page(name):
    form = rf"\[\[run {name}(?: open| folded)?\]\]"
    shown = sum(len(re.findall(form, page)) for page in PAGES)
    assert shown == (2 if name == "home" else 1)  # the first kernel of the tutorial, too


@pytest.mark.parametrize("name", [name for name in NAMES if cells.read(ROOT, name).kernel])
def test_a_kernel_stands_once_on_its_page(name):
    """Where steps explain it, its cell keeps it in a fold that only the script fills."""
    text = (ROOT / cells.FOLDER / f"{name}.py").read_text("utf8")
    ran = {tuple(each) for each in re.findall(r"# code: (src/[\w/]+\.py):([\w-]+)", text)}
    (page,) = (page for page in PAGES if re.search(rf"\[\[run {name}\b", page))
    shown = {(match["path"], match["name"]) for match in source.DIRECTIVE.finditer(page)}
    folded = f"[[run {name} folded]]" in page
    assert bool(ran & shown) == folded
    html = cells.html(ROOT, name, "folded").partition('<script type="application/json">')[0]
    cell = cells.read(ROOT, name)
    assert "<summary>Edit the kernel</summary>" in html and cell.title in html
    assert "@triton.jit" not in html and "@triton.jit" in cell.kernel


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_names_its_source_and_keeps_its_answer_in_a_fold(name):
    """Or it says that it is ours."""
    html = cells.html(ROOT, name)
    linked = 'href="https://github.com/' in html or 'href="/reference/sources/#' in html
    assert linked != ("The program is ours." in html)
    shown, answer = html.split('<details class="run-why">')
    assert not re.search("run-wrong|run-right|run-error", shown)
    assert all(f"run-{each}" in answer for each in ("wrong", "right", "error", "hint"))


@pytest.mark.parametrize("name", [name for name in NAMES if cells.read(ROOT, name).kernel])
def test_a_cell_has_the_code_of_the_library(name):
    """Line by line, but for docstrings."""
    text = (ROOT / cells.FOLDER / f"{name}.py").read_text("utf8")
    files = [ROOT / f"src/{path}.py" for path in re.findall(r"# code: src/([\w/]+)\.py", text)]
    lines = iter([line for file in files for line in file.read_text("utf8").splitlines()])
    kernel = cells.read(ROOT, name).kernel
    assert "def " in kernel and '"""' not in kernel
    assert all(line in lines for line in kernel.splitlines() if line), "in this order"


def reads_by_program(answer):
    """How many elements of x each program has read, and in which order programs have ended."""
    reads, last = {}, {}
    for at, step in enumerate(answer["steps"]):
        last[step["who"]] = at
        for kind, _, places, _ in step["accesses"]:
            reads[step["who"]] = reads.get(step["who"], 0) + len(places) * (kind == "load")
    return reads, sorted(last, key=last.get)


def test_programs_interleave_as_the_reader_says_and_all_of_them_end():
    """Each is right; what a program finds published it does not read again; and the words that
    they exchange are counted apart."""
    cell = cells.read(ROOT, "split-rows")
    asked = {
        "let all publish first": ({"0": 2, "1": 2, "2": 2}, ["0", "1", "2"]),
        "program 0 comes last": ({"0": 2, "1": 4, "2": 4}, ["0", "1", "2"]),
        "program 2 first, alone": ({"0": 4, "1": 2, "2": 6}, ["2", "0", "1"]),
    }
    assert reads_by_program(alone := cell.run()) == ({"0": 6, "1": 4, "2": 2}, ["0", "1", "2"])
    for kind, count in (("load", 48), ("atomic", 120)):
        assert f'<b data-count="{kind}">{count}</b>' in alone["html"]
    for label, *_ in cell.tries:
        assert reads_by_program(tried(cell, label)) == asked[label]
    for order in itertools.product(range(3), repeat=4):
        texts = [text.replace("order()", f"order{order}") for text in cell.texts()]
        answer = session.run_cell(cell.request(texts))
        assert answer["verdict"]["right"], order
        programs = [step["who"] for step in answer["steps"]]
        assert programs[0] == str(order[0]) and {*programs} == {"0", "1", "2"}


def test_a_program_that_pauses_does_nothing_twice():
    """Stopped anywhere, its steps are those of a program that runs through."""
    cell = cells.read(ROOT, "split-rows")
    texts = [text.replace("(3,)", "(1,)") for text in cell.texts()]
    whole = session.run_cell({"given": cell.given, "texts": texts})["steps"]
    for turns in range(1, 9):
        paused = [text.replace("order()", f"order(*[0] * {turns})") for text in texts]
        steps = session.run_cell({"given": cell.given, "texts": paused})["steps"]
        assert [each["at"] for each in steps] == [each["at"] for each in whole]
        assert [each["accesses"] for each in steps] == [each["accesses"] for each in whole]


def test_attention_is_that_of_the_figure():
    figure = (ROOT / "docs/assets/figures/attention.js").read_text("utf8")
    cell = cells.read(ROOT, "attention")
    for name, given in (("SCORES", "k"), ("VALUES", "v")):
        shown = json.loads(re.search(rf"const {name} = (.*);", figure)[1])
        tiles = json.loads(re.search(rf"{given} = Tensor\((.*?), name", cell.code)[1])
        assert shown == sum(tiles, [])
    assert "0.2676<" in cell.run()["html"]


def test_programs_are_counted_launch_by_launch():
    """As `tl.program_id` does, with the kernel's name where there are several."""
    answer = cells.read(ROOT, "naive").run()
    who = list(dict.fromkeys(step["who"] for step in answer["steps"]))
    names = ("row_max", "subtract", "exponentiate", "row_sum", "divide")
    assert who == [f"{program} of {name}" for name in names for program in (0, 1)]
    assert "5 launches, 10 programs: " in answer["html"]
    alone = cells.read(ROOT, "single-block").run()
    assert {step["who"] for step in alone["steps"]} == {"0", "1"}
    assert ">2 programs: " in alone["html"]


def test_a_rehearsal_tells_how_long_a_run_takes_without_running_all_of_it(monkeypatch):
    """Of what is short there is none: it has run, and its answer is the answer."""
    monkeypatch.setattr(time, "time", time.process_time)  # others use this machine, too
    gc.collect()
    gc.freeze()  # what other tests left would be looked through in one of the turns
    short = cells.read(ROOT, "two-loops").request(cells.read(ROOT, "two-loops").texts())
    assert session.run_cell({**short, "rehearse": True}) == session.run_cell(short)
    assert cells.read(ROOT, "two-loops").run()["verdict"]["right"]  # no rehearsal any more
    request = {"texts": [LONG.replace("ROWS", "40")], "right": ["m = [max(row) for row in x]"]}
    begun = time.time()
    told = session.run_cell({**request, "rehearse": True})
    between = time.time()
    answer = session.run_cell(request)
    whole, part = time.time() - between, between - begun
    assert set(told) == {"seconds"} and answer["verdict"]["right"]
    assert part < whole / 4 and whole / 3 < told["seconds"] < 3 * whole


def test_a_long_table_is_cut():
    wide = session.run_cell({"texts": ["show([[1.0] * 2000] * 200)"]})["html"]
    assert wide.count("<td") == 96 * 97 + 1 and wide.count("…") == 97


def test_an_error_names_its_line():
    answer = session.run_cell({"texts": ["a = 1\n", "b = a\n\nc = 1 / 0\n"]})
    assert answer["error"]["text"] == 1 and answer["error"]["line"] == 3
    assert "The call, line 3: ZeroDivisionError" in answer["html"]
    answer = session.run_cell({"texts": ["if True:\nx = 1\n"]})
    assert answer["error"]["text"] == 0 and answer["error"]["line"] == 2
    (code,) = cells.read(ROOT, "home").texts()
    answer = session.run_cell({"texts": [code.replace("softmax[(2,)](", "softmax(")]})
    assert "A kernel runs by kernel[grid](…)" in answer["html"]


def test_text_is_escaped():
    answer = session.run_cell({"texts": ["print('<b>&')\nshow([1.0], '<i>')"]})
    assert "&lt;b&gt;&amp;" in answer["html"] and "<i>" not in answer["html"]


def test_a_wrong_line_that_does_not_fail_stops_the_build(tmp_path, monkeypatch):
    (tmp_path / cells.FOLDER).mkdir(parents=True)
    (tmp_path / "src").mkdir()
    text = '"""A\n\nB\n"""\nx = 1  # wrong\nx = 2  # right\n'
    (tmp_path / cells.FOLDER / "fine.py").write_text(text)
    with pytest.raises(cells.CellError, match="must fail"):
        cells.html(tmp_path, "fine")
    cells._provided.cache_clear()
    cells.forget()
