"""A hash of each implementation's source, so that a page can say that it changed since it was
measured.

A hash covers the files of the library that an implementation rests on: the kernels' own, those that
they import, whatever these import in turn, and the operations that the dispatcher may hand to a
kernel as compile-time constants. Comments, docstrings and blank lines do not count: rewording a
sentence is no change of the kernel. Everything is read and nothing imported.
"""

from __future__ import annotations

import ast
import hashlib
from functools import lru_cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "triton_softmax"

OUTSIDE = ("reference", "cpu")
"""Parts of the package that no kernel rests on, and that no call on a GPU reaches; an import of one
is not followed."""

OPERATIONS = "operations"
"""The folder of what a geometry takes as a constant, and so does not import."""

ENTRIES = {
    "naive": ("kernels/naive.py",),
    "three_loops": ("kernels/three_loops.py",),
    "two_loops": ("kernels/two_loops.py",),
    "single_block": ("kernels/single_block.py",),
    "packed_rows": ("kernels/packed_rows.py",),
    "aligned_rows": ("kernels/aligned_rows.py",),
    "split_rows": ("kernels/split_rows.py",),
    "strided": ("kernels/strided.py", "kernels/split_strided.py", "kernels/strided_loops.py"),
    "triton_softmax": ("dispatch.py",),
}
"""The files that an implementation starts from."""

BESIDE = {
    "loss_head": ("losses.py", "linear.py", "tokens.py", "maps.py"),
    "ranks": ("distributed/softmax.py", "distributed/losses.py"),
}
"""What stands around a softmax, by what measures it; no softmax rests on it."""

GEOMETRIES = frozenset({"packed_rows", "aligned_rows", "split_rows", "strided"})
"""Implementations whose kernels are given the operation; the others spell theirs out."""


def code(text: str) -> str:
    """The text of a module without comments, docstrings and blank lines.

    >>> print(code('def f():  # why\\n    "doc"\\n\\n    # note\\n    return 1\\n'))
    def f():  # why
        return 1
    """
    return _code(text, ast.parse(text))


def _code(text: str, tree: ast.Module) -> str:
    lines = text.splitlines()
    dropped = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if (
                isinstance(statement, ast.Expr)
                and isinstance(statement.value, ast.Constant)
                and isinstance(statement.value.value, str)
            ):
                dropped.update(range(statement.lineno, (statement.end_lineno or 0) + 1))
    kept = []
    for number, line in enumerate(lines, start=1):
        stripped = line.strip()
        if number in dropped or not stripped or stripped.startswith("#"):
            continue
        kept.append(line.rstrip())
    return "\n".join(kept)


def _module(name: str, package: Path) -> Path | None:
    """The file of a module of the package below its front; None of anything else."""
    top, *parts = name.split(".")
    if top != package.name or not parts or parts[0] in OUTSIDE:
        return None
    path = package.joinpath(*parts)
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return file
    return None


def _imported(tree: ast.Module, path: Path, package: Path) -> list[Path]:
    """The files of the package that a file imports. A name may be a module of its own; if it is
    none, it comes from the module that it is imported from, which may be a folder's `__init__`."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [_module(alias.name, package) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            stem = node.module or ""
            if node.level:
                folder = path.parents[node.level - 1].relative_to(package.parent)
                stem = ".".join([*folder.parts, *([stem] if stem else [])])
            for alias in node.names:
                found.append(_module(f"{stem}.{alias.name}", package) or _module(stem, package))
    return [file for file in dict.fromkeys(found) if file is not None]


@lru_cache(maxsize=512)
def _read(path: Path, package: Path, stamp: int) -> tuple[str, tuple[Path, ...]]:
    """The code of a file and the files of the package that it imports."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    return _code(text, tree), tuple(_imported(tree, path, package))


def read(path: Path, package: Path) -> tuple[str, tuple[Path, ...]]:
    """The code of a file and the files it imports, read again only when it has changed."""
    return _read(path, package, path.stat().st_mtime_ns)


def closure(entries: tuple[str, ...], package: Path = PACKAGE) -> set[Path]:
    """The files given, as paths below the package, and everything that they import in turn."""
    todo = [package / name for name in entries]
    seen: set[Path] = set()
    while todo:
        path = todo.pop()
        if path not in seen and path.is_file():
            seen.add(path)
            todo += read(path, package)[1]
    return seen


def files_of(implementation: str, package: Path = PACKAGE) -> list[Path]:
    """Every file that an implementation rests on, in a fixed order; empty if it does not exist."""
    files = closure((ENTRIES | BESIDE)[implementation], package)
    if files and implementation in GEOMETRIES:
        dispatched = closure(ENTRIES["triton_softmax"], package)
        folder = package / OPERATIONS
        given = {path for path in dispatched if path.is_relative_to(folder)}
        files |= closure(tuple(path.relative_to(package).as_posix() for path in given), package)
    return sorted(files)


def hash_of(implementation: str, package: Path = PACKAGE) -> str | None:
    """SHA-256 over the code of every file that an implementation rests on; None if there is
    none."""
    files = files_of(implementation, package)
    if not files:
        return None
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.relative_to(package).as_posix().encode() + b"\0")
        digest.update(read(path, package)[0].encode() + b"\0")
    return digest.hexdigest()


def hashes(package: Path = PACKAGE) -> dict[str, dict]:
    """Hash and files of every implementation that exists."""
    table = {}
    for name in ENTRIES:
        value = hash_of(name, package)
        if value is not None:
            below = package.parents[1]
            files = [path.relative_to(below).as_posix() for path in files_of(name, package)]
            table[name] = {"sha256": value, "files": files}
    return table
