"""What a measurement is of: cells are told apart by what they launch, and by nothing else."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from softmax_bench import compilation, launches, recording, replay
from softmax_bench.launches import Launch
from softmax_bench.schema import ROOT

ROWS = [row for rows in launches.measured().values() for row in rows]
SOME = (
    "few_rows/softmax/forward/float32/8x32768",
    "batch/softmax/forward/float32/4096x1024",
    "batch/softmax/backward/float32/4096x1024",
    "forward/softmax/forward/bfloat16/131072x1024",
)


def test_what_is_launched_today_is_what_is_committed():
    """Every call again. Kernels whose text has changed are compiled again, to the first language
    that Triton compiles to, and on to machine code where that is another."""
    committed = launches.read(ROOT)
    assert set(committed.measured) == {launches.cell_of(row) for row in ROWS}
    today, _ = replay.ask(ROOT / "src", ROWS, committed.known)
    changed = launches.differences(committed.today, today)
    assert not changed, f"run `python -m softmax_bench replay --update`: {changed}"


def test_what_is_published_is_what_is_launched():
    committed = launches.read(ROOT)
    stale = Counter(committed.commits[cell] for cell in committed.changed)
    assert not stale, f"{stale}: measure these cells again, or take them out of the data"


@pytest.fixture
def tree(tmp_path):
    """A copy of the library, to be edited."""
    for package in ("triton_softmax", "softmax_tutorial"):
        shutil.copytree(ROOT / "src" / package, tmp_path / package)
    return tmp_path


def edited(tree: Path, pattern: str, new: str, name: str = "*.py") -> None:
    """Replace what one file of the library has, whatever its name is today."""
    found = [path for path in tree.rglob(name) if re.search(pattern, path.read_text("utf8"))]
    assert len(found) == 1, f"{pattern} is in {found}"
    found[0].write_text(re.sub(pattern, new, found[0].read_text("utf8")), "utf8")


def changed(tree: Path) -> dict[str, str]:
    """The cases among `SOME` that launch something else in a copy, and what."""
    rows = [row for row in ROWS if row["case"] in SOME and row["provider"] == "triton_softmax"]
    assert len(rows) == len(SOME)
    before, known = replay.ask(ROOT / "src", rows, launches.read(ROOT).known)
    after, _ = replay.ask(tree, rows, known)
    return {cell.split()[0]: text for cell, text in launches.differences(before, after).items()}


def test_a_constant_and_arithmetic_change_the_cells_that_they_decide(tree):
    """Names and words do not, in the same files or in others."""
    edited(tree, r"\bof_moved\b", "steps_of_moved", "__init__.py")
    edited(tree, r"\btotals\b", "sums_of_rows", "tile.py")
    edited(tree, "@triton.jit", "# A comment.\n\n@triton.jit", "tile.py")
    edited(tree, r"\bMAX_POLLS = ", "MAX_POLLS = 1 + ")
    edited(tree, r"values\[1\] - totals\[0\]", "values[1] - 2 * totals[0]")
    found = changed(tree)
    assert found.keys() == {SOME[0], SOME[2]}
    assert "numbers" in found[SOME[0]] and "machine code" in found[SOME[2]]


def test_launches_are_the_same_where_grid_numbers_and_machine_code_are():
    one = Launch("old_kernel", "machine", "8", "1,2", "HOW=1")
    assert not one.differs(one._replace(kernel="new_kernel", words="HOW=2"))
    assert one.differs(one._replace(machine="another")) == ["machine code"]
    other = one._replace(grid="9", numbers="1,3", machine="another", words="HOW=2")
    words = ["grid 8 → 9", "numbers 1,2 → 1,3", "old_kernel HOW=1 → old_kernel HOW=2"]
    assert one.differs(other) == words


def test_the_file_says_what_it_was_given(tmp_path):
    launch, known = Launch("kernel", "machine", "8", "1,2"), {"key": "first", "first": "machine"}
    then = {"a/b triton_softmax": [launch], "a/b strided": []}
    today = {**then, "a/b triton_softmax": [launch._replace(grid="9")]}
    commits = {"one": ["a/b triton_softmax"], "two": ["a/b strided"]}
    launches.write_down(tmp_path, commits, then, today, known)
    read = launches.read(tmp_path)
    of_cells = {cell: commit for commit, cells in commits.items() for cell in cells}
    assert read == (known, of_cells, then, today)
    assert read.changed == {"a/b triton_softmax"}
    assert launches.differences(then, today) == {"a/b triton_softmax": "grid 8 → 9"}


def test_a_commit_is_asked_for_what_the_file_does_not_have_of_it(monkeypatch, tmp_path):
    """A cell that was measured again is asked for at the commit that did so."""
    rows = [{"case": case, "provider": "triton_softmax"} for case in "abc"]
    cells = [f"{case} triton_softmax" for case in "abc"]
    launch = Launch("kernel", "machine", "8", "1,2")
    then = {cell: [launch] for cell in cells[:2]}
    commits = {"old": cells[:1], "older": cells[1:2]}
    launches.write_down(tmp_path, commits, then, then, {})
    asked = []

    def ask(tree, some, known):
        asked.append((tree.name, [row["case"] for row in some]))
        return {launches.cell_of(row): [launch._replace(grid="9")] for row in some}, {
            "key": "first"
        }

    monkeypatch.setattr(replay, "ROOT", tmp_path)
    monkeypatch.setattr(replay, "measured", lambda: {"old": rows[:1], "new": rows[1:]})
    monkeypatch.setattr(replay, "extracted", lambda commit, folder: tmp_path / commit)
    monkeypatch.setattr(replay, "ask", ask)
    said = replay.run(None, None, update=True)
    assert asked == [("new", ["b", "c"]), ("src", ["a", "b", "c"])]
    assert said == f"{cells[0]}: grid 8 → 9\n1 of 3 cells launch something else"
    read = launches.read(tmp_path)
    assert read.changed == {cells[0]} and read.known == {"key": "first"}
    assert read.commits == {cells[0]: "old", cells[1]: "new", cells[2]: "new"}


def test_a_function_is_known_by_its_code():
    text = 'def f(x):  # why\n    """What."""\n\n    return x\n'
    assert recording.code(text) == "def f(x):\n    return x"


def test_names_do_not_reach_the_machine():
    form = ".visible .entry {0}(\n.param .u64 {0}_param_0)\nret; // {0}\n"
    texts = [form.format(name) for name in ("one", "other")]
    assert len({compilation.normal_ptx(text) for text in texts}) == 1
    assert "ret;" in compilation.normal_ptx(texts[0])
    languages = [f"tt.func public @{name}(%arg0: i32)" for name in ("one", '"an.other"')]
    assert len({compilation.normal_ir(text) for text in languages}) == 1
