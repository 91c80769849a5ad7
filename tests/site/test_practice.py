"""The exercises: what the reader starts from fails, solutions pass, in Triton's interpreter and in
the small Triton of the page; wrong answers are refused with a remark that is about them, and no
mutant of a solution that changes a result is accepted."""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator

import pytest

from exercises import __main__ as command
from kernel_cases import INTERPRETED
from mutate import mutants_of
from site_build import ROOT, python
from softmax_playground import small_triton
from softmax_playground.checker import course, judge, with_small_triton
from softmax_playground.small_triton import session

FOLDER = ROOT / course.FOLDER
COURSE = course.load(ROOT)
SHEETS = {name: judge.Sheet(each.check, each.solution) for name, each in COURSE.items()}
ASKED = ("predict", "find the shape")
"""Kinds whose answer is a number."""

each = pytest.mark.parametrize("name", COURSE)
interpreted = pytest.mark.skipif(not INTERPRETED, reason="needs Triton's interpreter")


def in_small_triton(name: str, source: str) -> tuple[bool, str]:
    """The verdict as a page has it."""
    lab = with_small_triton.Lab(small_triton)
    run = lambda text: small_triton.run(text, "<text 0>")  # noqa: E731
    return SHEETS[name].verdict(source, run, lab, lambda error: session._where(error)["line"])[:2]


def in_triton(name: str, source: str) -> tuple[bool, str]:
    return command.checked(COURSE[name], source)[:2]


def zeros(name: str) -> str:
    """What the reader starts from, but it runs: what is to fill in is zero."""
    return COURSE[name].start.replace("...", "0")


def test_the_course_is_whole():
    """At least 36 exercises of every kind, each file in one place of the order."""
    assert len(COURSE) >= 36
    assert {each.kind for each in COURSE.values()} == set(course.KINDS)
    listed = [name for _, names in course.stages(ROOT).values() for name in names]
    assert sorted(listed) == sorted(path.stem for path in FOLDER.glob("[a-z]*.py"))
    assert listed[-1] == "backward_project"


@each
def test_an_exercise_says_what_it_teaches_and_gives_hints(name):
    exercise = COURSE[name]
    assert exercise.level in course.LEVELS and 1 <= exercise.minutes <= 60
    assert exercise.text and exercise.hints and exercise.teaches
    assert len(SHEETS[name].wrong) >= 3
    assert len(exercise.file.splitlines()) and "$" not in exercise.file
    if exercise.kind in ASKED:
        assert re.search(r"^ANSWER = \.\.\.$", exercise.start, re.M)
    elif exercise.kind in ("fill in", "blank page", "project"):
        assert "..." in exercise.start and "..." not in exercise.solution
    elif exercise.kind == "find the bug":
        assert exercise.start.count("\n") == exercise.solution.count("\n")
        lines = zip(exercise.start.splitlines(), exercise.solution.splitlines())
        assert sum(here != there for here, there in lines) == 1


@each
def test_what_one_starts_from_fails_and_the_solution_passes(name):
    solved, message = in_small_triton(name, COURSE[name].start)
    assert not solved and message
    if "..." in COURSE[name].start:
        assert "left to fill in" in message or "no number yet" in message
        solved, message = in_small_triton(name, zeros(name))
        assert not solved or name == "no_sum", f"passes with zeros: {message}"
    solved, message = in_small_triton(name, COURSE[name].solution)
    assert solved, message
    assert message.startswith("Right")


@each
def test_wrong_answers_are_refused_with_a_remark_about_them(name):
    for source, remark in SHEETS[name].wrong:
        solved, message = in_small_triton(name, source)
        assert not solved and message.endswith(remark), (remark, message)


@each
@interpreted
def test_the_same_in_triton(name):
    """The solution, what one starts from, and one wrong answer."""
    assert not in_triton(name, COURSE[name].start)[0]
    solved, message = in_triton(name, COURSE[name].solution)
    assert solved, message
    source, remark = SHEETS[name].wrong[len(name) % len(SHEETS[name].wrong)]
    solved, message = in_triton(name, source)
    assert not solved and message.endswith(remark), (remark, message)


@pytest.mark.slow
def test_solutions_compile_for_a_gpu(tmp_path):
    """The interpreter accepts what the compiler refuses, such as a name that a loop alone knows."""
    for name, exercise in COURSE.items():
        if "triton.jit" in exercise.solution:
            (tmp_path / f"{name}.py").write_text(exercise.solution, "utf8")
    broken = COURSE["three_loops"].solution.replace("tl.exp(x - m) / d", "tl.exp(x - last) / d")
    (tmp_path / "zz.py").write_text(
        broken.replace("m = tl.max", "last = m\n        m = tl.max"), "utf8"
    )
    script = "import sys; from exercises.__main__ import Path, compiled\n"
    script += "for path in sorted(Path(sys.argv[1]).glob('*.py')): print(path, *compiled(path))"
    result = python("-c", script, str(tmp_path), TRITON_INTERPRET=None)
    lines = result.stdout.splitlines()
    assert len(lines) == len(list(tmp_path.glob("*.py"))) - 1 >= 28, result.stderr
    assert all(len(line.split()) > 1 for line in lines)
    assert "last is not defined" in result.stderr


LISTED = tomllib.loads((ROOT / "tests/site/same_mutants.toml").read_text("utf8"))["same"]
SAME = {name for reason in LISTED for name in reason["mutants"]}
"""Mutants of solutions that change no result; the file says why."""
CODED = [name for name, each in COURSE.items() if each.kind not in ASKED]


class Put(ast.NodeTransformer):
    """One node in the place of another."""

    def __init__(self, old: ast.AST, new: ast.AST):
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else self.generic_visit(node)


def smaller(text: str) -> Iterator[tuple[str, str]]:
    """Mutants with less in them, and what each changes: a statement is left out, or an expression
    is one of its own parts."""
    tree, alike = ast.parse(text), Counter()
    for old in list(ast.walk(tree)):
        for new in parts(old):
            change = f"{ast.unparse(old)} → {ast.unparse(new)}"
            alike[change] += 1
            yield f"{change} #{alike[change]}", ast.unparse(Put(old, new).visit(tree))
            Put(new, old).visit(tree)


def parts(node: object) -> list[ast.AST]:
    """What may stand in the place of a node."""
    match node:
        case ast.Expr(value=ast.Constant()):  # a docstring
            return []
        case ast.Assign() | ast.AugAssign() | ast.Expr() | ast.For():
            return [ast.Pass()]
        case ast.Call(args=args):
            return [*args]
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.UnaryOp(operand=operand):
            return [operand]
    return []


@pytest.mark.parametrize("name", CODED)
def test_no_mutant_of_a_solution_that_changes_a_result_is_accepted(name):
    solution = COURSE[name].solution
    mutants = [(mutant.name, mutant.text) for mutant in mutants_of(name, solution)]
    mutants += [(f"{name}: {change}", text) for change, text in smaller(solution)]
    sheet, accepted = SHEETS[name], set()
    for mutant, text in mutants:
        lab = with_small_triton.Lab(small_triton)
        if sheet.failure(text, small_triton.run, lab)[1] is None:
            accepted.add(mutant)
    same = {each for each in SAME if each.startswith(f"{name}: ")}
    assert mutants and accepted == same, accepted ^ same


PREDICTED = {("lanes", typed): "Right" for typed in ("24", " 24.0 ", "+24", "48/2")}
PREDICTED |= {("jacobian", typed): "Right" for typed in ("-0,06", "−0,06", "-.06", "-3/50")}
PREDICTED |= {
    ("lanes", "2,4"): "It is not 2.4.",
    ("lanes", "1,024"): "1,024 is the size of the tile.",
    ("lanes", "1 024"): "1,024 is the size of the tile.",
    ("lanes", "−24"): "the number of idle lanes is positive",
    ("lanes", "two"): '"two" is not a number. Write it like 12, -0.5 or 3/4.',
    ("lanes", "1,2,3"): '"1,2,3" is not a number.',
    ("lanes", "..."): "There is no number yet.",
    ("lanes", "inf"): '"inf" is not a number.',
    ("lanes", "7"): "It is not 7. It is too small.",
    ("lanes", "1e400"): "It is not inf. It is too large.",
    ("jacobian", "-0.6"): "It is too far below 0.",
    ("jacobian", "-0.01"): "It is too near to 0.",
    ("lanes", "12"): "2 times too small: elements or bytes, one tensor or two?",
    ("far_share", "0.27"): "Close, but not to three digits.",
    ("far_share", "27"): "That is in percent.",
    ("last_column", "17"): "Choose among 20, 21",
    ("last_column", "21"): "For 21 the result is right.",
    ("four_chunks", "40"): "Choose among 8, 16, 24, 30, 32 and 33.",
}


@pytest.mark.parametrize(("name", "typed"), PREDICTED)
def test_a_number_is_read_as_people_write_it_and_a_wrong_one_is_told_what_was_asked(name, typed):
    source = re.sub("ANSWER = .*", f"ANSWER = {typed}", COURSE[name].solution)
    solved, message = in_small_triton(name, source)
    says = PREDICTED[name, typed]
    assert solved == (says == "Right") and says in message, message


def changed(name: str, old: str, new: str) -> str:
    assert old in COURSE[name].solution
    return COURSE[name].solution.replace(old, new)


EXPONENTIALS = "tl.exp(x - tl.max(x, axis=0))"
REFUSED = {
    "np.exp(x)": "name 'np' is not defined. In a kernel the functions are Triton's",
    "-math.inf * x": "name 'math' is not defined. In a kernel",
    "x_ptr[0]": "tl.load(x_ptr + i) reads one",
    "x[0]": "not single elements",
    "x_ptr + cols": "tl.load reads what it points to",
    "float(x)": "Python's functions take no tile",
    "tl.sum(x, axis=1)": "has no axis 1",
    "mask and x": "use tl.where",
    "tl.arange(0, 4) - x": "look for a [:, None] or [None, :] that is missing",
    "tl.zeros(BLOCK, tl.float32)": "a shape is a tuple, such as (BLOCK,)",
    "tl.load(x_ptr, other=0.0)": "other only beside a mask",
    "tl.program_id() * x": "program_id() missing 1 required positional argument: 'axis'",
    "where(mask, x, 0.0)": "In a kernel the functions are Triton's",
    "print(x)": "Triton prints a text first",
    "tl.softmax(x)": "calls a softmax that is there already",
}
"""What stands in the place of the exponentials of a row, and what is said."""
TAKEN = [
    "(x - x.max(0)).exp()",
    "tl.math.exp(x - tl.max(x, axis=0))",
    f"tl.fdiv({EXPONENTIALS}, 1.0)",
    f"{EXPONENTIALS}\n    print('x', x)\n    tl.device_print('x', x)\n    tl.static_print(x)",
]


@interpreted
@pytest.mark.parametrize("written", [*REFUSED, *TAKEN])
def test_a_page_and_the_command_understand_a_kernel_alike(written):
    source = changed("single_block", EXPONENTIALS, written)
    solved, message = said = in_small_triton("single_block", source)
    assert in_triton("single_block", source) == said
    assert not solved and REFUSED[written] in message if written in REFUSED else solved, message


LACKING = changed("single_block", EXPONENTIALS, f"tl.fma({EXPONENTIALS}, 1.0, 0.0)")


@interpreted
def test_what_the_page_lacks_is_left_to_triton():
    """The page says that it cannot run it; the command lets Triton decide, and sees what is wrong,
    and what is written beside a tensor."""
    assert "tl.fma is Triton's" in in_small_triton("single_block", LACKING)[1]
    assert in_triton("single_block", LACKING)[0]
    solved, message = in_triton("single_block", LACKING.replace("1.0, 0.0", "1.0, 0.5"))
    assert not solved and message.startswith("y[0][0] is ")
    solved, message = in_triton("single_block", LACKING.replace(", y, mask=mask", ", y"))
    assert not solved and message == "A program writes y out of range."


STORED = "y, mask=mask)"
MESSAGES = [
    ("first_kernel", "cols < n_cols", "cols < BLOCK", "Program 4 reads x out of range: element 25, "
     "and the last one is 24. Is the mask right?"),
    ("first_kernel", "x_ptr + row", "x_ptr - 1 + row", "x out of range: 1 before its first"),
    ("stride", "x_ptr + row * x_row_stride", "x_ptr + row * n_cols", "Program 1 reads x out of "
     "range: element 11 of its memory lies between two rows."),
    ("backward", "dx_ptr + row * n_cols", "dx_ptr + 1 + row * n_cols",
     "writes dx out of range: element 143, and the last one is 142."),
    ("single_block", STORED, STORED.replace("mask)", "cols < n_cols - 1)"), "No program writes it"),
    ("single_block", "x - tl.max(x, axis=0)", "x - maximum", "NameError in line 12: "),
    ("merge", "def merge(", "def combine(", "There is no `merge` any more"),
    ("vjp", "return [a * (b - s) for a, b in zip(y, dy)]", "return 3",
     "dx is 3 but should be a list of 3."),
    ("vjp", "s = sum(", "s = total(", "NameError"),
    ("vjp", "return [a", "return [[a", "SyntaxError in line "),
    ("vjp", "def vjp", "import numpy as np\ndef vjp", "Line 1 imports numpy"),
    ("vjp", "def vjp", "from torch import exp\ndef vjp", "`math`"),
    ("any_stride", "tl.sum(e, axis=0)", "(2 * tl.sum(e, axis=0))", "Row 0 is 0.5 times what it"),
    ("any_stride", ', other=-float("inf")', "", "a masked lane without `other`"),
    ("lse_kernel", 'other=-float("inf")', "other=-3.0", "what do masked lanes hold?"),
    ("three_loops", "tl.exp(x - m) / d", "tl.exp(x - m) / d + 0.01", "Row 0 adds up to 1.12"),
    ("cross_entropy", "cols == target", "cols == target + 1", "Row 0 adds up to 1, not to 0."),
    ("cross_entropy", "tl.load(target_ptr + row)", "tl.load(target_ptr)", "dx[1][9] is"),
    ("rescale", "math.exp(m - m_new)", "math.expo(m - m_new)", "Line 7 does."),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new", "words"), MESSAGES)
def test_a_message_says_what_differs_and_where_both_ways(name, old, new, words):
    source = changed(name, old, new)
    for verdict in (in_small_triton, in_triton) if INTERPRETED else (in_small_triton,):
        solved, message = verdict(name, source)
        assert not solved and words in message, message


def test_what_looks_like_another_mistake_and_is_none_is_not_named():
    source = changed("log_quotient", "x - m - log(d)", "2 * (x - m - log(d))")
    assert "times what it should be" not in in_small_triton("log_quotient", source)[1]
    assert "Its sign is wrong." not in in_small_triton("jacobian", "ANSWER = 0,07")[1]
    rows = [[1.0, 2.0], [3.0, 5.0], [6.0, 7.0]]
    with pytest.raises(judge.Wrong) as found:
        judge.compare([rows[1], rows[1], rows[2]], rows, "y")
    assert found.value.why == "Row 0 is what row 1 should be."


@interpreted
def test_the_command_lists_poses_hints_checks_and_remembers(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "ANSWERS", tmp_path / "answers")
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(command.course, "stages", lambda _, real=course.stages: real(ROOT))
    monkeypatch.setattr(command.course, "load", lambda _: COURSE)

    def says(*arguments: str, code: int = 0) -> str:
        assert command.main([*arguments]) == code
        return capsys.readouterr().out

    listed = says()
    assert all(f" {name} " in listed for name in COURSE)
    assert "0 of 48 solved. Next: python -m exercises shift" in listed
    posed = says("lanes", code=1)
    assert "1,000 numbers" in posed and "answers/lanes.py" in posed
    answer = tmp_path / "answers/lanes.py"
    assert "1,000 numbers" in answer.read_text("utf8")
    assert says("lanes", code=1).startswith("✗ lanes: There is no number yet.")
    assert "512 lanes" in says("lanes", "--hint", "1")
    answer.write_text(answer.read_text("utf8").replace("...", "1,024"), "utf8")
    assert "size of the tile" in says("lanes", code=1)
    assert says("lanes", "--solution") == COURSE["lanes"].solution
    answer.write_text(COURSE["lanes"].solution, "utf8")
    assert says("lanes").startswith("✓ lanes: Right")
    assert "1 of 48 solved" in says()
    assert says("all").count("✓") == 1
    with pytest.raises(SystemExit):
        command.main(["nothing"])
    assert "no exercise is called nothing" in capsys.readouterr().err
    with pytest.raises(SystemExit):  # and the answer that is there is not overwritten
        command.main(["lanes", "--file", str(tmp_path / "nowhere.py")])
    assert "nowhere.py is no file" in capsys.readouterr().err
    assert answer.read_text("utf8") == COURSE["lanes"].solution
