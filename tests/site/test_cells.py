"""Cells: what they run is the library's, what they show is what they compute, and a reader can run,
break, stop and mend them."""

import ast
import itertools
import json
import re
import time

import pytest

from browser import CELL, LONG, PHONE, finished
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
def test_a_cell_runs_and_a_mistake_fails_until_it_is_mended(name):
    cell = cells.read(ROOT, name)
    assert cell.is_mistake == (name in MISTAKES)
    assert bool(cell.run()["error"]) == cell.is_mistake
    assert not cell.run("right")["error"]
    assert cell.hint


@pytest.mark.parametrize("name", [name for name in NAMES if name not in MISTAKES])
def test_a_cell_has_a_verdict_and_it_is_right(name):
    answer = cells.read(ROOT, name).run()
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


@pytest.mark.browser
def test_a_click_breaks_the_kernel_of_the_front_page_and_mends_it(tab):
    cell = tab.open("index").view.locator(CELL)
    cell.scroll_into_view_if_needed()
    area, result = cell.locator("textarea"), cell.locator(".run-result")
    whole, shown = area.input_value(), result.locator("td").all_text_contents()

    def press(name):
        cell.get_by_role("button", name=name, exact=name == "Run").click()
        finished(tab.view, cell)

    for label, old, new, why in cells.read(ROOT, "home").tries:
        press(label)
        assert area.input_value() == whole.replace(old, new)
        assert cell.locator(".run-comes").inner_text() == why
        assert cell.locator(".editor-mark.right").count() == 1
        press("Run")  # what stands there; and what is edited is no longer what was tried
        assert area.input_value() != whole and cell.locator(".run-comes").inner_text() == why
        area.fill(area.input_value() + "# mine\n")
        assert not cell.locator(".run-comes").inner_text()
        press(f"Undo: {label}")
        assert area.input_value() == whole
        press(label)
        press("Reset")
        assert area.input_value() == whole and not cell.locator(".run-comes").inner_text()
        assert result.locator("td").all_text_contents() == shown


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
    lines = [line for file in files for line in file.read_text("utf8").splitlines()]
    kernel = cells.read(ROOT, name).kernel
    at = 0
    for line in kernel.splitlines():
        if line:
            at = lines.index(line, at) + 1
    assert '"""' not in kernel
    defined = {node.name for node in ast.parse(kernel).body if isinstance(node, ast.FunctionDef)}
    assert defined and all(f"{function}" in text or function in kernel for function in defined)


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


# ---- In a browser ----

RUN = "async request => (await import('/assets/run/runner.js')).run(request)"


def axe(view):
    """Serious findings of axe within the cell."""
    api = pytest.importorskip("axe_playwright_python.base", reason="needs axe-playwright-python")
    view.evaluate(api.AXE_SCRIPT)
    found = view.evaluate("only => axe.run(only).then((found) => found.violations)", CELL)
    return [each["id"] for each in found if each["impact"] in ("serious", "critical")]


def names(cell):
    """The names of the program that runs, each with its lanes."""
    return cell.evaluate("""cell => Object.fromEntries([...cell.querySelectorAll("[data-name]")]
        .map((each) => [each.dataset.name,
            [...each.querySelectorAll(".lane")].map((lane) => lane.textContent)]))""")


@pytest.mark.browser
def test_a_cell_by_mouse_and_keyboard(tab, address):
    asked = []
    view = tab.view
    view.on("request", lambda request: asked.append(request.url))
    tab.open("kernels/two-loops")
    cell = view.locator(CELL).first
    result, fold = cell.locator(".run-result"), cell.locator(".run-fold")
    kernel = cell.locator("textarea").first
    static = result.locator("td").all_text_contents()

    def loaded():
        return [url for url in asked if "micropython" in url or "runtime.json" in url]

    cell.scroll_into_view_if_needed()
    assert not loaded(), "a page that is only read loads no Python"
    assert not kernel.is_visible()

    # Run: by mouse, and then from the keyboard.
    cell.get_by_role("button", name="Run", exact=True).click()
    finished(view, cell)
    assert len(loaded()) == 3
    assert result.locator("td").all_text_contents() == static
    cell.locator("textarea").last.focus()
    view.keyboard.press("Control+Enter")
    finished(view, cell)

    # Step through the kernel: every name of it, and what is read.
    slider = cell.get_by_label("Step", exact=True)
    slider.focus()
    view.keyboard.press("Home")
    assert cell.locator("td.touched").count() == 0 and not names(cell)
    for _ in range(12):
        view.keyboard.press("ArrowRight")
    assert cell.locator("td.now").all_inner_texts() == ["1", "2", "1", "3"]
    says = cell.locator(".run-says").inner_text()
    assert says == "Step 12 of 42: program 0, line 26 reads 4 elements of x and sets x."
    assert cell.locator('[data-count="load"]').inner_text() == "16"
    assert cell.locator(".editor-mark.now").count() == 1
    assert "x = tl.load(" in cell.locator(".run-line").inner_text()
    shown = names(cell)
    assert shown["x"] == ["1", "2", "1", "3"] and shown["m"] == ["−∞", "−∞"]
    assert cell.locator(".run-name.set").count() == 1
    for _ in range(3):
        view.keyboard.press("ArrowRight")
    frames = cell.locator(".run-frame-name").all_inner_texts()
    assert frames == ["softmax_forward_two_loops_kernel", "merge"]
    assert names(cell)["m2"] == ["2", "3"]
    view.keyboard.press("ArrowLeft")
    assert "m2" not in names(cell) and "d_tile" in names(cell)

    # The second turn of the loop: a lane of each row lies behind its end.
    turn = cell.get_by_label("Turn of a loop")
    turn.select_option("Line 23: start = 2")
    assert names(cell)["start"] == ["2"] and names(cell)["m"] == ["2", "3"]
    for _ in range(3):
        cell.get_by_role("button", name="One step on").click()
    assert names(cell)["x"] == ["3", "−∞", "5", "−∞"]
    assert cell.locator("[data-name=x] .lane.masked").all_inner_texts() == ["−∞", "−∞"]

    # A step has opened the fold of the kernel; a line that fails opens it again. A longer tile.
    call, run = cell.locator("textarea").nth(1), cell.get_by_role("button", name="Run", exact=True)
    assert kernel.is_visible()
    whole, text = kernel.input_value(), call.input_value()
    kernel.fill(whole.replace("tl.max(", "tl.most("))
    fold.locator("summary").click()
    run.click()
    finished(view, cell)
    assert kernel.is_visible() and cell.locator(".editor-mark.failed").count() == 1
    kernel.fill(whole)
    call.fill(text.replace("BLOCK_COLS=2", "BLOCK_COLS=4"))
    call.press("Control+Enter")
    finished(view, cell)
    assert int(slider.get_attribute("max")) == 25

    # A verdict, the right result beside the wrong one, and where it was written.
    verdict = cell.locator(".run-verdict")
    assert verdict.inner_text() == (
        "✓ Right: y is softmax(x). It reads x twice: 72 bytes, where 48 would do."
    )
    kernel.fill(whole.replace("x_ptr + rows[:, None] * x_row_stride", "x_ptr + rows[:, None] * 0"))
    kernel.press("Control+Enter")
    finished(view, cell)
    assert "Row 1 has the results of row 0" in verdict.inner_text()
    assert cell.locator("td.off").count() == 3
    assert "y, as it should be" in result.inner_text()
    cell.get_by_role("button", name="Show where").click()
    assert "writes 6 elements of y" in cell.locator(".run-says").inner_text()
    kernel.fill(whole)

    # Tab indents, Escape lets go of it.
    call.focus()
    view.keyboard.press("Control+End")
    view.keyboard.press("Tab")
    assert call.input_value().endswith(")   ")
    view.keyboard.press("Escape")
    view.keyboard.press("Tab")
    assert view.evaluate("document.activeElement.closest('.run-names')")

    # An error says its line; Reset brings the code back, and runs it.
    call.fill(text + "\n\nprint(undefined_name)")
    call.press("Control+Enter")
    finished(view, cell)
    line = text.count("\n") + 3
    assert f"The call, line {line}: NameError" in cell.locator(".run-error").inner_text()
    cell.get_by_role("button", name="Reset").click()
    finished(view, cell)
    assert call.input_value() == text
    assert cell.locator(".run-error").count() == 0
    assert all(url.startswith((address, "data:", "blob:")) for url in asked)


@pytest.mark.browser
def test_an_editor_keeps_what_is_written_and_a_link_carries_it(tab, open_tab):
    """Line numbers, all lines, indentation; over a reload; back to the original and undone again;
    in another browser, where nothing runs unasked."""
    view = tab.open("kernels/two-loops").view
    cell = view.locator(CELL).first
    cell.scroll_into_view_if_needed()
    call, kernel = cell.locator("textarea").nth(1), cell.locator("textarea").first
    original = call.input_value()
    cell.locator(".run-fold summary").click()
    numbers = cell.locator(".editor-numbers").first.inner_text().split()
    assert numbers == [str(1 + line) for line in range(kernel.input_value().count("\n") + 1)]
    clipped = "boxes => boxes.filter((box) => box.scrollHeight > box.clientHeight).length"
    assert cell.locator(".editor").evaluate_all(clipped) == 0

    call.focus()
    view.keyboard.press("Control+End")
    for key in ("Enter", "f", "o", "r", " ", "i", ":", "Enter", "Tab", "Backspace", "x"):
        view.keyboard.press(key)
    mine = f"{original}\nfor i:\n    x"
    assert call.input_value() == mine
    view.reload()
    cell.scroll_into_view_if_needed()
    cell.get_by_text("Your code from before, not run yet").wait_for()
    assert call.input_value() == mine and kernel.input_value().count("\n") + 1 == len(numbers)

    cell.get_by_role("button", name="Link").click()
    cell.get_by_text("carries this code").wait_for()
    other = open_tab(kind="a reader who follows a link")
    other.view.goto(view.url)
    theirs = other.view.locator(CELL).first
    theirs.get_by_text("From a link, not run yet").wait_for()
    assert theirs.locator("textarea").nth(1).input_value() == mine
    assert theirs.get_attribute("data-took") is None
    other.close()

    cell.get_by_role("button", name="Reset").click()
    finished(view, cell)
    assert call.input_value() == original
    call.focus()
    view.keyboard.press("Control+z")
    assert call.input_value() == mine
    cell.get_by_role("button", name="Reset").click()
    finished(view, cell)
    view.goto(view.url.split("#")[0])
    view.reload()
    cell.scroll_into_view_if_needed()
    cell.locator(".run-go").wait_for()
    view.wait_for_timeout(200)
    assert call.input_value() == original and not cell.locator(".run-status").inner_text()


CALLS = [
    "tl.gather",
    "tl.sotfmax",
    "tl.logsumexp",
    "print(tl.sort(tl.arange(0, 4), descending=True), tl.arange(0, 4).sum(axis=0))",
    "print(tl.cumsum(tl.arange(0, 8)), tl.topk(tl.arange(0, 8), 2), tl.full((2,), 1, tl.float32))",
    "x = tl.reshape(tl.arange(0, 8).to(tl.float32), (4, 2))\n"
    "print(tl.dot(x.trans(), x), tl.sigmoid(x))",
]


@pytest.mark.browser
def test_every_cell_in_the_page_computes_what_the_page_shows(tab):
    """In MicroPython, what the build has computed in CPython: the same HTML and the same trace."""
    view = tab.open("practice/mistakes").view
    session.provide(cells.library(ROOT))
    requests = [{"texts": [text]} for text in CALLS]
    for name in NAMES:
        each = cells.read(ROOT, name)
        kinds = ("wrong", "right") if each.is_mistake else ("wrong",)
        requests += [each.request(each.texts(kind)) for kind in kinds]
    for name, old, new, _ in VERDICTS:
        each = cells.read(ROOT, name)
        requests.append(each.request([text.replace(old, new) for text in each.texts()]))
    for request in requests:
        wanted = json.loads(json.dumps(session.run_cell(request)))
        assert view.evaluate(RUN, request) == wanted, request["texts"]


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_open_cell_on_a_phone_passes_axe(tab, scheme):
    tab.open("kernels/strided")
    tab.resize(PHONE)
    tab.show(scheme)
    view = tab.view
    cell = view.locator(CELL).first
    cell.scroll_into_view_if_needed()
    cell.get_by_role("button", name="Run", exact=True).click()
    finished(view, cell)
    cell.get_by_label("Program", exact=True).select_option("Program 1")
    assert "program 1" in cell.locator(".run-says").inner_text()
    assert names(cell)
    assert view.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert axe(view) == []
