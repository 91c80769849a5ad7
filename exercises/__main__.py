"""Check exercises on a CPU, with Triton's own interpreter.

    python -m exercises              lists them
    python -m exercises merge        checks exercises/merge.py
    python -m exercises all          checks all of them
    python -m exercises merge --file FILE
                                     checks another file

Run it in the root of the repository; it needs what requirements-test.txt has. The exercises are
posed on the pages under docs/practice.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "src"))  # the checker, in a clone without an installation


def checked(name: str, path: Path) -> tuple[bool, str]:
    """(solved, message) for a file that solves, or tries to, the exercise of this name."""
    os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported
    from softmax_playground.checker import judge, with_triton
    from softmax_playground.checker.exercise_checks import EXERCISES

    (check,) = [each for known, _, _, each in EXERCISES if known == name]

    def line_of(error: BaseException) -> int | None:
        if isinstance(error, SyntaxError) and error.filename == str(path):
            return error.lineno
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(path)]
        return lines[-1] if lines else None

    source = path.read_text("utf8")
    solved, message, _ = judge.verdict(
        check, source, lambda: runpy.run_path(str(path)), with_triton.Lab(), line_of
    )
    return solved, message


def main(arguments: list[str]) -> int:
    from softmax_playground.checker.exercise_checks import EXERCISES

    parser = argparse.ArgumentParser(
        prog="python -m exercises", description="Check exercises on a CPU."
    )
    names = [name for name, *_ in EXERCISES]
    parser.add_argument("names", nargs="*", metavar="NAME", help="exercises, or all")
    parser.add_argument("--file", type=Path, help="the file to check, of one exercise")
    asked = parser.parse_args(arguments)
    unknown = [name for name in asked.names if name not in (*names, "all")]
    if unknown:
        parser.error(f"no exercise is called {unknown[0]}; there are {', '.join(names)}")
    if not asked.names:
        width = max(map(len, names))
        for name, kind, title, _ in EXERCISES:
            print(f"{name:<{width}}  {kind:<12}  {title}")
        return 0
    chosen = names if "all" in asked.names else asked.names
    failed = 0
    for name in chosen:
        solved, message = checked(name, (asked.file or HERE / f"{name}.py").resolve())
        print(f"{'✓' if solved else '✗'} {name}: {message}")
        failed += not solved
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
