"""The exercises: skeletons fail, solutions pass, in Triton's interpreter and in the small Triton of
the page, and messages say what differs and where."""

import difflib
import re

import pytest

from exercises.__main__ import checked, main
from kernel_cases import INTERPRETED
from site_build import ROOT, python
from softmax_playground import small_triton
from softmax_playground.checker import judge, with_small_triton
from softmax_playground.checker.exercise_checks import EXERCISES

FOLDER = ROOT / "exercises"
NAMES = [name for name, *_ in EXERCISES]
KINDS = {name: kind for name, kind, *_ in EXERCISES}
CHECKS = {name: check for name, _, _, check in EXERCISES}

each = pytest.mark.parametrize("name", NAMES)
interpreted = pytest.mark.skipif(not INTERPRETED, reason="needs Triton's interpreter")


def skeleton(name: str) -> str:
    return (FOLDER / f"{name}.py").read_text("utf8")


def solution(name: str) -> str:
    return (FOLDER / "solutions" / f"{name}.py").read_text("utf8")


def in_small_triton(name: str, source: str) -> tuple[bool, str]:
    """The verdict as a page has it."""
    return judge.verdict(
        CHECKS[name],
        source,
        lambda: small_triton.run(source, f"{name}.py"),
        with_small_triton.Lab(small_triton),
        lambda error: None,
    )[:2]


def in_triton(name: str, source: str, folder) -> tuple[bool, str]:
    path = folder / f"{name}.py"
    path.write_text(source, "utf8")
    return checked(name, path)


def broken(name: str) -> str:
    """A skeleton that runs: what is to fill in is zero."""
    return skeleton(name).replace("...", "0")


def test_there_are_enough_of_each_kind():
    assert len(NAMES) >= 12 and len(set(NAMES)) == len(NAMES)
    assert set(KINDS.values()) == {"predict", "fill in", "find the bug"}
    assert {path.stem for path in FOLDER.glob("*.py")} == {*NAMES, "__main__"}
    assert {path.stem for path in (FOLDER / "solutions").glob("*.py")} == set(NAMES)


@each
def test_a_skeleton_fails_and_its_solution_passes_in_the_small_triton(name):
    solved, message = in_small_triton(name, skeleton(name))
    assert not solved and message
    if KINDS[name] != "find the bug":
        assert "left to fill in" in message
        solved, message = in_small_triton(name, broken(name))
        assert not solved, f"passes with zeros: {message}"
    solved, message = in_small_triton(name, solution(name))
    assert solved, message
    assert message.startswith("Right")


@each
@interpreted
def test_a_skeleton_fails_and_its_solution_passes_in_triton(name, tmp_path):
    solved, message = checked(name, FOLDER / f"{name}.py")
    assert not solved and message
    solved, message = checked(name, FOLDER / "solutions" / f"{name}.py")
    assert solved, message
    if KINDS[name] != "find the bug":
        assert not in_triton(name, broken(name), tmp_path)[0]


@each
def test_a_solution_only_fills_in_its_skeleton(name):
    """What goes is what has an ellipsis, or for a bug one line; and nothing else is touched."""
    before, after = skeleton(name).splitlines(), solution(name).splitlines()
    changed = [
        (before[a:b], after[c:d])
        for what, a, b, c, d in difflib.SequenceMatcher(None, before, after, False).get_opcodes()
        if what != "equal"
    ]
    gone = [line for old, _ in changed for line in old]
    if KINDS[name] == "find the bug":
        assert len(gone) == 1 and len(changed[0][1]) == 1
    else:
        assert gone and all("..." in line for line in gone)
        assert "..." not in solution(name)
    if KINDS[name] == "predict":
        assert gone == ["ANSWER = ..."]


def changed(name: str, old: str, new: str) -> str:
    text = solution(name)
    assert text.count(old) == 1
    return text.replace(old, new)


MASKED = "mask=mask)\n"
WRONG = {
    "a mask that is missing": ("first_kernel", "mask = cols < n_cols", "mask = cols < BLOCK"),
    "a row too far": ("first_kernel", "x_ptr + row", "x_ptr - 1 + row"),
    "between two rows": ("stride", "x_ptr + row * x_row_stride", "x_ptr + row * n_cols"),
    "written out of range": ("backward", "dx_ptr + row * n_cols", "dx_ptr + 1 + row * n_cols"),
    "not written": ("single_block", MASKED, MASKED.replace("mask)", "cols < 10)")),
    "wrong": ("single_block", "x - tl.max(x, axis=0)", "x"),
    "read too often": (
        "single_block",
        "    y = e /",
        f"    x = tl.load(x_ptr + row * n_cols + cols, {MASKED}    y = e /",
    ),
    "another name": ("merge", "def merge(", "def combine("),
    "no list": ("vjp", "return [a * (b - s) for a, b in zip(y, dy)]", "return 3"),
    "a bad name": ("vjp", "s = sum(", "s = total("),
    "a bad line": ("vjp", "return [a", "return [[a"),
    "a wrong number": ("lanes", "ANSWER = 24", "ANSWER = 25"),
}
"""The exercise, and what is written in the place of what in its solution."""
SAID = {
    "a mask that is missing": "Program 4 reads x out of range: element 25, and the last one is 24. "
    "Is the mask right?",
    "a row too far": "Program 0 reads x out of range: 1 before its first element.",
    "between two rows": "Program 1 reads x out of range: element 11 of its memory lies between two "
    "rows.",
    "written out of range": "Program 4 writes dx out of range: element 55, and the last one is 54.",
    "not written": "No program writes it. 5 of 55 numbers differ.",
    "wrong": "y[2][0] is nan but should be",
    "read too often": "The result is right, but it reads 110 elements and writes 55 of 55.",
    "another name": "There is no `merge` any more",
    "no list": "dx is 3 but should be a list of 3.",
    "a bad name": "NameError",
    "a bad line": "SyntaxError",
    "a wrong number": "It is not 25. Think again, or open a hint.",
}


@pytest.mark.parametrize("what", WRONG)
def test_messages_say_what_differs_and_where_both_ways(what, tmp_path):
    name, *change = WRONG[what]
    source, words = changed(name, *change), SAID[what]
    ways = [in_small_triton(name, source)]
    if INTERPRETED:
        ways.append(in_triton(name, source, tmp_path))
    for solved, message in ways:
        assert not solved and words in message, message


@interpreted
def test_an_error_names_its_line(tmp_path):
    source = changed("single_block", "x - tl.max(x, axis=0)", "x - maximum")
    line = source.splitlines().index("    e = tl.exp(x - maximum)") + 1
    _, message = in_triton("single_block", source, tmp_path)
    assert message.startswith(f"NameError in line {line}: ")
    _, message = in_triton("vjp", "def vjp(y, dy):\n    return [\n", tmp_path)
    assert re.match(r"SyntaxError in line [23]: ", message)


@interpreted
def test_the_command_lists_checks_and_answers_by_its_exit(capsys):
    assert main([]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == NAMES
    assert main(["vjp", "lanes"]) == 1
    assert capsys.readouterr().out.count("✗") == 2
    assert main(["vjp", "--file", str(FOLDER / "solutions/vjp.py")]) == 0
    assert capsys.readouterr().out.startswith("✓ vjp: Right")
    with pytest.raises(SystemExit):
        main(["nothing"])
    assert "no exercise is called nothing" in capsys.readouterr().err


def test_it_runs_from_a_clone():
    """As the pages say, by another process, which sets up the interpreter itself."""
    result = python("-m", "exercises", "zero_start", TRITON_INTERPRET=None, PYTHONPATH=None)
    assert result.returncode == 1 and not result.stderr
    assert result.stdout.startswith("✗ zero_start: y[0][0] is nan but should be 0.731059.")
