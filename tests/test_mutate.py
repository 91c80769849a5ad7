"""The mutants of a small file, and what tests make of them."""

from pathlib import Path

import pytest

from mutate import LIBRARY, ROOT, Trial, checked_by, mutants_of


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
