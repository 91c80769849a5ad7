"""The exercises of the site at the command line, checked as in a page, and by Triton itself.

    python -m exercises              lists them, with what you have solved
    python -m exercises merge        writes answers/merge.py for you; once it is there, checks it
    python -m exercises merge --hint 1
    python -m exercises merge --solution
    python -m exercises merge --file FILE
                                     checks another file
    python -m exercises backward --compile
                                     compiles your kernels for an H100, which you need not have: the
                                     interpreter accepts what the compiler refuses
    python -m exercises three_loops --time
                                     times a softmax on your GPU, beside the rungs of the tutorial
    python -m exercises all          checks all that you have begun

Run it in the root of the repository, after `pip install .`. Your answers and what you have solved
lie in the folder `answers`.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import tempfile
import textwrap
import traceback
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ANSWERS = ROOT / "answers"
sys.path.insert(0, str(ROOT / "src"))  # the checker, in a clone without an installation

from softmax_playground.checker import course, timed  # noqa: E402
from softmax_tutorial import ladder_table  # noqa: E402

LEVEL = 0.02
"""Up to this share two measured times are level."""


def checked(exercise: course.Exercise, source: str) -> tuple:
    """(solved, message, the lab of Triton, the lab of the small Triton) for a source that solves,
    or tries to, an exercise."""
    from softmax_playground import small_triton
    from softmax_playground.checker import with_small_triton, with_triton
    from softmax_playground.checker.judge import Sheet

    with tempfile.TemporaryDirectory() as folder:
        count = 0

        def run(text: str) -> dict:
            """Triton reads a kernel in its file."""
            nonlocal count
            count += 1
            path = Path(folder, f"{exercise.name}_{count}.py")
            path.write_text(text, "utf8")
            return runpy.run_path(str(path))

        def line_of(error: BaseException) -> int | None:
            if isinstance(error, SyntaxError):
                return error.lineno
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in frames if frame.filename.startswith(folder)]
            return lines[-1] if lines else None

        sheet = Sheet(exercise.check, exercise.solution)
        lab, small = with_triton.Lab(), with_small_triton.Lab(small_triton)
        quick = partial(small_triton.run, path=str(Path(folder, "small.py")))
        return *sheet.verdict(source, quick, small, line_of, (run, lab))[:2], lab, small


def has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def put_on_ladder(launch: timed.MatrixLaunch | None) -> bool:
    """Time a softmax on this computer's GPU, beside the rungs; say so where that cannot be."""
    import torch

    from softmax_tutorial import __main__ as tutorial

    time = tutorial.timer()
    if not launch:
        print("It computes no softmax of a matrix's rows, so it has no place on the ladder.")
        return False
    if not time:
        print(tutorial.NO_GPU, file=sys.stderr)
        return False

    def yours(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        launch(lambda kernel, grid, *rest, **named: kernel[grid](*rest, **named), x, y, *x.shape)
        return y

    try:
        found = tutorial.run(tutorial.SHAPE, time, yours=yours)
    except AssertionError as error:
        print(f"✗ {error}")
        return False
    if us := found.pop("yours", None):
        rungs = [(ladder_table.LADDER[name], each) for name, each in found.items()]
        print(f"\nYours is {timed.place(us, rungs, LEVEL)}.")
    return us is not None


SIZES = {"BLOCK": 64, "ROWS": 2, "COLS": 64, "QUERIES": 16, "KEYS": 16, "DIM": 16, "CHUNKS": 4}
"""Constants of kernels, by their names."""


def compiled(path: Path, of: str = "*fp32") -> list[str]:
    """The names of the kernels of a file, all compiled for an H100, with pointers to that type.

    Raises:
        triton.CompilationError: the compiler refuses one.
    """
    os.environ.pop("TRITON_INTERPRET", None)  # before triton is imported
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    def type_of(name: str) -> str:
        if name.endswith("_ptr"):
            return {"target_ptr": "*i64", "lse_ptr": "*fp32"}.get(name, of)
        return "constexpr" if name in SIZES else "fp32" if name == "scale" else "i32"

    found = []
    for name, kernel in runpy.run_path(str(path)).items():
        if isinstance(kernel, triton.JITFunction):
            names = kernel.arg_names
            sizes = {(names.index(each),): size for each, size in SIZES.items() if each in names}
            source = ASTSource(kernel, {each: type_of(each) for each in names}, sizes)
            triton.compile(source, target=GPUTarget("cuda", 90, 32))
            found.append(name)
    return found


def wrapped(text: str) -> str:
    return "\n\n".join(textwrap.fill(each, 90) for each in text.split("\n\n"))


def solved() -> set[str]:
    """The names of those that have been solved."""
    path = ANSWERS / "solved.txt"
    return set(path.read_text("utf8").split()) if path.is_file() else set()


def remember(name: str) -> None:
    ANSWERS.mkdir(exist_ok=True)
    (ANSWERS / "solved.txt").write_text("\n".join(sorted(solved() | {name})) + "\n", "utf8")


def listing(exercises: dict[str, course.Exercise]) -> str:
    done, number, lines = solved(), 0, []
    width = max(map(len, exercises))
    for title, names in course.stages(ROOT).values():
        lines.append(f"\n{title}")
        for name in names:
            each, number = exercises[name], number + 1
            mark = "✓" if name in done else " "
            lines.append(f"{mark} {number:2}  {name:<{width}}  {each.title} ({each.facts.lower()})")
    left = [name for name in exercises if name not in done]
    lines.append(f"\n{len(exercises) - len(left)} of {len(exercises)} solved.")
    if left:
        lines[-1] += f" Next: python -m exercises {left[0]}"
    return "\n".join(lines).lstrip()


def begin(each: course.Exercise) -> str:
    """Write the reader's file, and say what is asked."""
    path = ANSWERS / f"{each.name}.py"
    ANSWERS.mkdir(exist_ok=True)
    path.write_text(each.file, "utf8")
    return (
        f"{each.title} ({each.facts.lower()})\nIt teaches: {each.teaches}.\n\n"
        f"{wrapped(course.plain(each.text))}\n\n"
        f"Change {path.relative_to(ROOT)}, then run this again. Hints: --hint 1"
        f"{f' to {len(each.hints)}' if len(each.hints) > 1 else ''}."
    )


def main(arguments: list[str]) -> int:
    exercises = course.load(ROOT)
    parser = argparse.ArgumentParser(
        prog="python -m exercises", description="Pose and check exercises on a CPU."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="exercises, or all")
    parser.add_argument("--file", type=Path, help="the file to check, of one exercise")
    parser.add_argument("--hint", type=int, metavar="N", help="show the hint of that number")
    parser.add_argument("--solution", action="store_true", help="show the solution")
    parser.add_argument("--compile", action="store_true", help="compile it for an H100")
    parser.add_argument("--time", action="store_true", help="time a softmax on your GPU")
    asked = parser.parse_args(arguments)
    if asked.time and has_gpu():  # before triton is imported
        os.environ.pop("TRITON_INTERPRET", None)
    else:
        os.environ["TRITON_INTERPRET"] = "1"
    unknown = [name for name in asked.names if name not in (*exercises, "all")]
    if unknown:
        parser.error(f"no exercise is called {unknown[0]}; there are {', '.join(exercises)}")
    if not asked.names:
        print(listing(exercises))
        return 0
    if asked.file and not asked.file.is_file():
        parser.error(f"{asked.file} is no file")
    everything = "all" in asked.names
    chosen = [each for each in exercises.values() if everything or each.name in asked.names]
    failed, basis = 0, ladder_table.basis(ROOT)
    for each in chosen:
        path = asked.file or ANSWERS / f"{each.name}.py"
        if asked.hint is not None:
            if not 1 <= asked.hint <= len(each.hints):
                parser.error(f"{each.name} has the hints 1 to {len(each.hints)}")
            print(wrapped(course.plain(each.hints[asked.hint - 1])))
        elif asked.solution:
            print(each.solution, end="")
        elif not path.is_file():
            if not everything:
                print(begin(each))
                failed += 1
        elif asked.compile:
            try:
                types = ("*bf16", "*fp32") if each.kind == "project" else ("*fp32",)
                *_, found = (compiled(path, of) for of in types)
                print(f"✓ {each.name}: compiled {', '.join(found) or 'nothing'}")
            except Exception as error:  # whatever the compiler has to say
                print(f"✗ {each.name}: {error}")
                failed += 1
        else:
            right, message, lab, small = checked(each, path.read_text("utf8"))
            print(f"{'✓' if right else '✗'} {each.name}: {message}")
            if right and not asked.file:
                remember(each.name)
            if right and small.on_matrix and basis:
                print(wrapped(timed.said(basis, small.on_matrix, small)[1]))
            if right and asked.time:
                right = put_on_ladder(lab.on_matrix)
            failed += not right
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
