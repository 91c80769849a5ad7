"""A hash of each implementation's source, so that a page can say that a kernel changed since it was
measured.

A hash covers the kernel's own file and the files of this package that it imports, without comments,
docstrings and
blank lines: rewording a sentence is no change of the kernel.
"""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]

OUTSIDE = ("bench", "site", "reference", "worked", "traffic")
"""Parts of the package that no kernel rests on; an import of one is not followed."""

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


def code(text: str) -> str:
    """The text of a module without comments, docstrings and blank lines.

    >>> print(code('def f():  # why\\n    "doc"\\n\\n    # note\\n    return 1\\n'))
    def f():  # why
        return 1
    """
    lines = text.splitlines()
    dropped = set()
    for node in ast.walk(ast.parse(text)):
        for statement in (
            getattr(node, "body", None) if isinstance(getattr(node, "body", None), list) else ()
        ):
            if (
                isinstance(statement, ast.Expr)
                and isinstance(statement.value, ast.Constant)
                and isinstance(statement.value.value, str)
            ):
                dropped.update(range(statement.lineno, statement.end_lineno + 1))
    kept = []
    for number, line in enumerate(lines, start=1):
        stripped = line.strip()
        if number in dropped or not stripped or stripped.startswith("#"):
            continue
        kept.append(line.rstrip())
    return "\n".join(kept)


def _module_file(package: Path, name: str) -> Path | None:
    path = package.joinpath(*name.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


def imported_files(path: Path, package: Path = PACKAGE) -> list[Path]:
    """The files of the package that a file imports, by reading it."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = path.parent
                for _ in range(node.level - 1):
                    base = base.parent
                inside = base.relative_to(package).parts
                stem = ".".join([package.name, *inside, *([node.module] if node.module else [])])
            else:
                stem = node.module or ""
            names = [f"{stem}.{alias.name}" for alias in node.names] + [stem]
        for name in names:
            if not name.startswith(package.name + "."):
                continue
            inner = name[len(package.name) + 1 :]
            if inner.split(".")[0] in OUTSIDE:
                continue
            file = _module_file(package, inner)
            if file is not None and file.name != "__init__.py" and file not in found:
                found.append(file)
    return found


def files_of(implementation: str, package: Path = PACKAGE) -> list[Path]:
    """Every file that an implementation rests on, in a fixed order; empty if it does not exist."""
    todo = [package / name for name in ENTRIES[implementation]]
    seen: list[Path] = []
    while todo:
        path = todo.pop()
        if path in seen or not path.is_file():
            continue
        seen.append(path)
        todo += imported_files(path, package)
    return sorted(seen)


def hash_of(implementation: str, package: Path = PACKAGE) -> str | None:
    """SHA-256 over the code of every file that an implementation rests on; None if it does not
    exist."""
    files = files_of(implementation, package)
    if not files:
        return None
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.relative_to(package).as_posix().encode() + b"\0")
        digest.update(code(path.read_text(encoding="utf-8")).encode() + b"\0")
    return digest.hexdigest()


def hashes(package: Path = PACKAGE) -> dict[str, dict]:
    """Hash and files of every implementation that exists."""
    table = {}
    for name in ENTRIES:
        value = hash_of(name, package)
        if value is not None:
            files = [
                path.relative_to(package.parents[1]).as_posix() for path in files_of(name, package)
            ]
            table[name] = {"sha256": value, "files": files}
    return table
