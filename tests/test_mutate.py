"""The mutants of a small file, and what tests make of them."""

from pathlib import Path

import pytest

from changed import checks_of
from mutate import LIBRARY, ROOT, Trial, checked_by, mutants_of

FILE = '''"""1 < 2"""
def least(n: 3, *, over=True) -> 4:
    if n < 5 and over:
        raise ValueError(f"{n + 1} is less than ½" + 5 * "!")
    return tl.load(n, mask=n, other=0.5)
'''
CHANGES = {
    "n < 5 and over → n < 5 or over",
    "n < 5 and over → not (n < 5 and over)",
    "n < 5 → n <= 5",
    "n < 5 → n >= 5",
    "5 → 6",
    "5 → 4",
    "True → False",
    "0.5 → 1.0",
    "tl.load(n, mask=n, other=0.5) → tl.load(n, mask=n)",
    "tl.load(n, mask=n, other=0.5) → tl.load(n, other=0.5)",
    "return tl.load(n, mask=n, other=0.5) → return None",
}


def test_every_place_that_computes_is_changed_and_no_words():
    mutants = [*mutants_of("a.py", FILE)]
    assert {mutant.change for mutant in mutants} == CHANGES and len(mutants) == len(CHANGES)
    changed = next(mutant for mutant in mutants if mutant.change == "n < 5 → n <= 5")
    assert changed.text == FILE.replace("n < 5", "(n <= 5)")
    assert (changed.line, changed.name) == (3, "a.py: if n < 5 and over:: n < 5 → n <= 5")


def test_every_file_has_tests():
    tests = {
        test
        for path in (ROOT / LIBRARY).rglob("*.py")
        for test in checked_by(path.relative_to(ROOT).as_posix())
    }
    assert all((ROOT / test).is_file() for test in tests)


@pytest.mark.slow
def test_a_mutant_is_killed_and_one_that_changes_nothing_survives(tmp_path: Path):
    (tmp_path / "src").mkdir()
    text = "def larger(a, b):\n    return a if a > b else b\n"
    (tmp_path / "src/a.py").write_text(text)
    test = "from a import larger\ndef test_larger(): assert larger(1, 2) == larger(2, 1) == 2\n"
    (tmp_path / "test_a.py").write_text(test)
    fates = {}
    for part in range(2):  # the second time from the memory of the first, without the tests
        trial = Trial(tmp_path, tmp_path / f"build/memory/{part}.jsonl")
        for mutant in mutants_of("src/a.py", text):
            fates[mutant.change] = trial.killed(mutant, ["test_a.py"])
        (tmp_path / "src/b.py").touch()
    assert fates == {
        "return a if a > b else b → return None": True,
        "a > b → a >= b": False,
        "a > b → a <= b": True,
    }
    assert (tmp_path / "src/a.py").read_text() == text


@pytest.mark.parametrize("path, tests", [
    ("src/triton_softmax/nn.py", ["src/triton_softmax/nn.py", "tests/library/test_nn.py"]),
    ("src/softmax_bench/tune.py", ["src/softmax_bench/tune.py", "tests/bench/test_tune.py"]),
    ("src/triton_softmax/config/measured.txt", ["tests/library/test_config.py"]),
    ("tests/library/test_nn.py", ["tests/library/test_nn.py"]),
    ("docs/use/hub.md", ["docs/use/hub.md"]),
    ("tests/probe.py", []),
    ("src/triton_softmax/gone.py", []),
    ("docs/_computed/primer.md", []),
    ("pyproject.toml", []),
])  # fmt: skip
def test_quick_tries_what_changed(path, tests):
    assert checks_of(path) == tests
