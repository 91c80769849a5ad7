"""Mistakes of one place, drawn from all that the library can have: do the tests find them?

    .venv/bin/python tests/mutate.py --draw 60

A mutant has one place changed: `<` for `<=`, `+` for `-`, a mask left out. It is killed if the
tests of the changed file, `TESTS`, fail or take three times as long. A survivor is a hole in them,
unless `mutants.toml` says why nothing can kill it; then it is not tried. `build/mutants/` remembers
what became of each, so that a second run tries what is new. Several processes or machines may each
try a `--part`; the run without one reads the memory of all, and writes the result:
`docs/reference/mutants.json`. `--of plan` draws from one folder or file, and only prints.
"""

import argparse
import ast
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = "src/triton_softmax"
WORDS = ("annotation", "returns", "msg")  # parts of a statement that compute nothing

TESTS = {
    "config/": "test_config.py",
    "distributed/process_group": "distributed/test_every_sequence.py distributed/test_agreeing.py"
    " distributed/test_ranks.py",
    "distributed/": "distributed/test_ranks.py distributed/test_parts.py",
    "kernels/device/exchange": "kernels/test_split_rows.py kernels/test_strided.py",
    "kernels/device/registers": "kernels/test_split_rows.py kernels/test_geometries.py",
    "kernels/device/softcap": "test_modifiers.py",
    "kernels/device/sums": "test_invariance.py kernels/test_geometries.py",
    "kernels/modified_rows": "test_modifiers.py test_invariance.py test_derivatives.py",
    "kernels/row_scalars": "test_losses.py test_derivatives.py",
    "kernels/split_rows": "kernels/test_split_rows.py kernels/test_geometries.py"
    " kernels/test_losses.py test_invariance.py test_dispatch.py",
    "kernels/split_strided": "kernels/test_strided.py kernels/test_losses.py"
    " kernels/test_geometries.py",
    "kernels/strided": "kernels/test_strided.py kernels/test_losses.py kernels/test_geometries.py",
    "kernels/": "kernels/test_losses.py kernels/test_geometries.py",
    "operations/": "kernels/test_losses.py test_losses.py test_derivatives.py"
    " kernels/test_geometries.py",
    "composite": "kernels/test_losses.py test_losses.py test_derivatives.py test_functional.py"
    " test_modifiers.py",
    "modes": "test_launch.py test_dispatch.py test_matrix.py",
    "losses": "test_way.py test_losses.py test_derivatives.py",
    "l": "test_losses.py test_derivatives.py",
    "nn": "test_nn.py",
    "operators": "test_nn.py test_way.py test_derivatives.py test_ops.py test_modifiers.py"
    " test_inductor.py test_losses.py",
    "plan/launch": "test_launch.py test_dispatch.py",
    "plan/layout": "test_dispatch.py test_ops.py",
    "plan/tokens": "test_selective.py distributed/test_parts.py",
    "plan": "test_way.py test_launch.py test_dispatch.py test_losses.py test_modifiers.py"
    " test_derivatives.py distributed/test_parts.py",
    "": "test_way.py test_losses.py test_derivatives.py test_modifiers.py test_functional.py",
}
"""Tests in `tests/library` of a file, by how its path begins: in this order, the fastest first."""

ON_REQUEST = "distributed/"
"""Files of which mutants are drawn only by `--of`: their tests take minutes for each."""

PAIRS = {"Eq": "NotEq", "Is": "IsNot", "In": "NotIn", "Add": "Sub", "Mult": "FloorDiv", "And": "Or"}
PAIRS |= {"BitAnd": "BitOr", "LShift": "RShift", "min": "max", "minimum": "maximum"}
INSTEAD = PAIRS | {there: here for here, there in PAIRS.items()} | {"Div": "Mult"}
INSTEAD |= {"Mod": "FloorDiv", "Lt": "LtE GtE", "LtE": "Lt Gt", "Gt": "GtE LtE", "GtE": "Gt Lt"}
"""What is put in the place of an operator, by its name in `ast`, and of a function."""


class Mutant(NamedTuple):
    """A file of the library with one place changed."""

    path: str
    line: int
    change: str
    name: str  # in `mutants.toml`: the text of the line, not its number; of several alike which one
    text: str  # of the whole file


def changes(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """What may stand in the place of a node, or of a part of it: (old, new)."""

    def but(**parts) -> tuple[ast.AST, ast.AST]:
        return node, type(node)(**vars(node) | parts)

    def instead(op: ast.AST) -> list[ast.AST]:
        return [getattr(ast, name)() for name in INSTEAD.get(type(op).__name__, "").split()]

    match node:
        case ast.Compare(ops=ops):
            for i, op in enumerate(ops):
                yield from (but(ops=[*ops[:i], new, *ops[i + 1 :]]) for new in instead(op))
        case ast.BinOp() | ast.AugAssign() | ast.BoolOp():
            yield from (but(op=new) for new in instead(node.op))
        case ast.UnaryOp(op=ast.Not()):
            yield node, node.operand
        case ast.Constant(value=bool(value)):
            yield but(value=not value)
        case ast.Constant(value=int(value)):
            yield from (but(value=value + 1), but(value=value - 1))
        case ast.Constant(value=float(value)):
            yield but(value=2.0 * value or 1.0)
        case ast.Return(value=ast.expr()) if ast.unparse(node.value) != "None":
            yield but(value=ast.Constant(None))
        case ast.Call(keywords=keywords):
            for out in (each for each in keywords if each.arg in ("mask", "other")):
                yield but(keywords=[each for each in keywords if each is not out])
        case ast.Name(id=name) | ast.Attribute(attr=name) if name in INSTEAD:
            yield node, ast.Name(ast.unparse(node).removesuffix(name) + INSTEAD[name])
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            if not isinstance(test, ast.Compare | ast.UnaryOp):  # which are changed themselves
                yield test, ast.UnaryOp(ast.Not(), test)


def places(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Every change of a node and of what is below it."""
    yield from changes(node)
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            words = isinstance(child, ast.Raise | ast.JoinedStr) or field in WORDS
            if isinstance(child, ast.AST) and not words:
                yield from places(child)


def mutants_of(path: str, text: str) -> Iterator[Mutant]:
    """All mutants of a file."""
    lines = text.encode().splitlines(keepends=True)  # columns are counted in bytes
    alike: dict[str, int] = {}
    for old, new in places(ast.parse(text)):
        first, last = old.lineno - 1, old.end_lineno - 1
        start = b"".join(lines[:first]) + lines[first][: old.col_offset]
        end = lines[last][old.end_col_offset :] + b"".join(lines[last + 1 :])
        put = f"({ast.unparse(new)})" if isinstance(new, ast.expr) else ast.unparse(new)
        changed = (start + put.encode() + end).decode()
        change = f"{ast.unparse(old)} → {ast.unparse(new)}"
        name = f"{path}: {lines[first].decode().strip()}: {change}"
        alike[name] = alike.get(name, 0) + 1
        name += f" #{alike[name]}" if alike[name] > 1 else ""
        yield Mutant(path, old.lineno, change, name, changed)


def checked_by(path: str) -> list[str]:
    """The files of tests that are about a file of the library."""
    names = next(TESTS[start] for start in TESTS if path.startswith(f"{LIBRARY}/{start}"))
    return [f"tests/library/{name}" for name in names.split()]


def copy_to(target: Path) -> Path:
    """A copy of the repository."""
    left_out = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info")
    return shutil.copytree(ROOT, target, ignore=left_out, dirs_exist_ok=True)


def passes(root: Path, tests: list[str], limit: float) -> bool:
    """Whether tests pass in a copy of the repository within some seconds."""
    command = ["timeout", "--signal=KILL", str(limit), sys.executable, "-m", "pytest"]
    command += ["-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", *tests]
    paths = f"{root}/src:{root}/tests:{os.environ.get('PYTHONPATH', '')}".rstrip(":")
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=root, env=environment, capture_output=True).returncode == 0


def digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


class Trial:
    """Tries mutants in a copy of the repository, and remembers in a file what became of them. It
    knows what all files in that folder remember, whoever wrote them."""

    def __init__(self, copied: Path, file: Path):
        file.parent.mkdir(parents=True, exist_ok=True)
        self.copied, self.file, self.memory = copied, file, {}
        for line in "".join(each.read_text("utf8") for each in file.parent.iterdir()).splitlines():
            self.memory |= json.loads(line)

    def remember(self, key: str, value: float | str) -> float | str:
        self.memory[key] = value
        with self.file.open("a", encoding="utf8") as file:
            file.write(json.dumps({key: value}) + "\n")
        return value

    def seconds(self, test: str) -> float:
        """What a file of tests takes without a mutant. It has to pass."""
        key = digest("seconds", test, (self.copied / test).read_text("utf8"))
        begin = time.monotonic()
        if key not in self.memory and not passes(self.copied, [test], 600):
            raise SystemExit(f"{test} fails without a mutant")
        return self.memory.get(key) or self.remember(key, time.monotonic() - begin)

    def killed(self, mutant: Mutant, tests: list[str]) -> bool:
        """Whether tests kill a mutant. If it survived, changed tests are tried again."""
        file = self.copied / mutant.path
        original = file.read_text("utf8")
        survived = digest(*((self.copied / test).read_text("utf8") for test in tests))
        key = digest(original, mutant.text, *tests)
        if self.memory.get(key) not in ("killed", survived):
            limit = 3 * sum(map(self.seconds, tests))
            file.write_text(mutant.text, "utf8")
            fate = survived if passes(self.copied, [mutant.path, *tests], limit) else "killed"
            file.write_text(original, "utf8")
            self.remember(key, fate)
        return self.memory[key] == "killed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draw", type=int, default=60, help="how many mutants")
    parser.add_argument("--seed", type=int, default=20261123)
    parser.add_argument("--of", default="", help="how the path in the library begins")
    parser.add_argument("--part", default="1/1", help="i/n: every nth; writes no result")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    found = (path.relative_to(ROOT).as_posix() for path in (ROOT / LIBRARY).rglob("*.py"))
    left_out = () if options.of else (f"{LIBRARY}/{ON_REQUEST}",)
    paths = sorted(each for each in found if each.startswith(f"{LIBRARY}/{options.of}"))
    paths = [each for each in paths if not each.startswith(left_out)]
    mutants = [each for path in paths for each in mutants_of(path, (ROOT / path).read_text("utf8"))]
    random.Random(options.seed).shuffle(mutants)
    drawn = [(mutant, checked_by(mutant.path)) for mutant in mutants[: options.draw]]
    explained = tomllib.loads((ROOT / "tests/mutants.toml").read_text("utf8"))
    if not options.of:
        for name in sorted(explained.keys() - {mutant.name for mutant in mutants}):
            print("explains a line that is no more:", name)
    with tempfile.TemporaryDirectory() as folder:
        of_part = f"build/mutants/{part}-of-{parts}.jsonl"
        trial = Trial(copy_to(Path(folder)), ROOT / of_part)
        fates = []
        for mutant, tests in drawn[part - 1 :: parts]:
            fates.append(mutant.name not in explained and trial.killed(mutant, tests))
            print("killed" if fates[-1] else "SURVIVED", mutant.line, mutant.name, flush=True)
    if parts > 1 or options.of:
        return
    survivors = [
        {"place": f"{mutant.path}:{mutant.line}", "change": mutant.change}
        | {"explanation": explained.get(mutant.name)}
        for (mutant, _), killed in zip(drawn, fates)
        if not killed
    ]
    commit = subprocess.check_output(["git", "rev-parse", "--short=7", "HEAD"], cwd=ROOT, text=True)
    result = {"commit": commit.strip(), "seed": options.seed, "of": len(mutants)}
    result |= {"drawn": len(drawn), "killed": sum(fates), "survivors": survivors}
    text = json.dumps(result, indent=1, ensure_ascii=False)
    (ROOT / "docs/reference/mutants.json").write_text(text + "\n", "utf8")


if __name__ == "__main__":
    main()
