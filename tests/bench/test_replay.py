"""What a measurement is of: cells are told apart by what they launch, and by nothing else."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from softmax_bench import compilation, launches, recording, replay
from softmax_bench.launches import Kernel, Launch

ROOT = Path(__file__).resolve().parents[2]
ROWS = [row for rows in launches.measured().values() for row in rows]
SOME = (
    "few_rows/softmax/forward/float32/8x32768",
    "batch/softmax/forward/float32/4096x1024",
    "batch/softmax/backward/float32/4096x1024",
    "forward/softmax/forward/bfloat16/131072x1024",
)


def test_what_is_launched_today_is_what_is_committed():
    """Every call again. Kernels whose text has changed are compiled again, to the first language
    that Triton compiles to."""
    committed = launches.read(ROOT)
    assert set(committed.measured) == {launches.cell_of(row) for row in ROWS}
    today = replay.ask(ROOT / "src", ROWS, committed.known)
    changed = launches.differences(committed.today, today)
    assert not changed, f"run `python -m softmax_bench replay --update`: {changed}"


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
    before, after = replay.compared({ROOT / "src": rows}, tree, launches.read(ROOT).known)
    return {cell.split()[0]: text for cell, text in launches.differences(before, after).items()}


def test_a_constant_and_arithmetic_change_the_cells_that_they_decide(tree):
    """Names and words do not, in the same files or in others."""
    edited(tree, r"\bof_moved\b", "steps_of_moved", "plan.py")
    edited(tree, r"\btotals\b", "sums_of_rows", "tile.py")
    edited(tree, "@triton.jit", "# A comment.\n\n@triton.jit", "tile.py")
    edited(tree, r"\bMAX_POLLS = ", "MAX_POLLS = 1 + ")
    edited(tree, r"values\[1\] - totals\[0\]", "values[1] - 2 * totals[0]")
    found = changed(tree)
    assert found.keys() == {SOME[0], SOME[2]}
    assert "numbers" in found[SOME[0]] and "machine code" in found[SOME[2]]


def test_kernels_of_other_names_and_sources_are_the_same_where_their_machine_code_is():
    one = Kernel("old_kernel", "HOW=1", "key", "first", "machine")
    assert one.same(Kernel("new_kernel", "HOW=2", "other", "first", None))
    assert one.same(Kernel("new_kernel", "HOW=2", "other", "second", "machine"))
    assert not one.same(Kernel("new_kernel", "HOW=1", "key", "second", None))
    assert not one._replace(machine=None).same(Kernel("", "", "", "second", None))


def test_the_file_says_what_it_was_given():
    kernel = Kernel("kernel", "", "key", "first", None)
    then = {"a/b triton_softmax": [Launch(kernel, "8", "1,2")], "a/b strided": []}
    today = {**then, "a/b triton_softmax": [Launch(kernel, "9", "1,2")]}
    read = launches.parsed(launches.text_of(then, today))
    assert (read.measured, read.today, read.known) == (then, today, {"key": "first"})
    assert read.changed == {"a/b triton_softmax"}
    assert launches.differences(then, today) == {"a/b triton_softmax": "grid 8 → 9"}


def test_a_function_is_known_by_its_code():
    text = 'def f(x):  # why\n    """What."""\n\n    return x\n'
    assert recording.code(text) == "def f(x):\n    return x"


def test_names_do_not_reach_the_machine():
    form = '.file 1 "{0}.py"\n.visible .entry {0}(\n'
    form += ".param .u64 {0}_param_0)\n.loc {1} 2\nret; // {0}\n"
    texts = [form.format(*each) for each in (("one", 1), ("other", 7))]
    assert len({compilation.normal_ptx(text) for text in texts}) == 1
    assert "ret;" in compilation.normal_ptx(texts[0])
    languages = [
        f'#loc = loc("{name}":1:2)\ntt.func public @{name}(%{name}: i32 loc("x"(#loc1)))'
        for name in ("one", "other")
    ]
    assert len({compilation.normal_ir(text) for text in languages}) == 1
