"""How the repository is built, read from its text: who imports whom, and what is committed."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mutate import checked_by
from site_build import SECTION
from softmax_site import source

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src"
LIBRARY, BENCH, SITE = "triton_softmax", "softmax_bench", "softmax_site"
TUTORIAL, PLAYGROUND = "softmax_tutorial", "softmax_playground"
ABOVE = {
    LIBRARY: {TUTORIAL, PLAYGROUND, BENCH, SITE},
    TUTORIAL: {PLAYGROUND, BENCH, SITE},
    PLAYGROUND: {BENCH, SITE},
    BENCH: {PLAYGROUND, SITE},
    SITE: set(),
}
"""The packages that a package does not import: site → bench and playground → tutorial → library."""


def modules(package: str) -> list[Path]:
    return sorted((SRC / package).rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[ast.stmt, str]]:
    """Every import of a file, deferred ones too: the statement and each absolute dotted name."""
    for node in ast.walk(ast.parse(path.read_text("utf8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom):
            stem = node.module or ""
            if node.level:
                folder = path.parents[node.level - 1].relative_to(SRC)
                stem = ".".join([*folder.parts, *([stem] if stem else [])])
            for alias in node.names:
                yield node, f"{stem}.{alias.name}"


def is_module(name: str) -> bool:
    path = SRC.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def where(path: Path, node: ast.stmt) -> str:
    return f"{path.relative_to(ROOT)}:{node.lineno}"


@pytest.mark.parametrize("package", ABOVE)
def test_packages_import_downwards_only_and_nobody_imports_the_front_of_a_package(package):
    """Within a package each name is imported from the module that defines it, not from its
    `__init__`, which would run before it is complete."""
    for path in modules(package):
        for node, name in imports(path):
            front = name == package or (name.rpartition(".")[0] == package and not is_module(name))
            upwards = name.split(".")[0] in ABOVE[package]
            assert not front and not upwards, f"{where(path, node)} imports {name}"


MAY_IMPORT = {
    "kernels/device": {"kernels.device"},
    "kernels": {"kernels.device"},
    "operations": {"kernels.device", "operations"},
    "config": {"config"},
    "kernels/split_strided": {"kernels.strided"},  # they see the same tensors
    "kernels/two_pass": {"kernels.strided"},
}
"""What the files of a folder of the library import of it, and what one of them may besides."""


@pytest.mark.parametrize("folder", [each for each in MAY_IMPORT if (SRC / LIBRARY / each).is_dir()])
def test_what_a_folder_of_the_library_imports(folder):
    """Kernels and operations know device functions and nothing of each other; a choice needs the
    standard library only."""
    others = set() if folder == "config" else {"torch", "triton"}
    for path in (SRC / LIBRARY / folder).glob("*.py"):
        allowed = MAY_IMPORT[folder] | MAY_IMPORT.get(f"{folder}/{path.stem}", set())
        for node, name in imports(path):
            top, _, below = name.partition(".")
            ok = top in sys.stdlib_module_names or top in others
            if top == LIBRARY:
                ok = any(f"{below}.".startswith(f"{each}.") for each in allowed)
            assert ok, f"{where(path, node)} imports {name}"


PRIVATE = re.compile(
    r"""(?<!self)(?<!cls)\._(?!_|replace\b|asdict\b|fields\b)\w+  # of others than named tuples
    | \bimport\ _(?!_) | getattr\([^)]*"_(?!_)""",
    re.X,
)


def test_private_names_of_torch_and_triton_stand_in_few_files():
    found = {path.name for path in modules(LIBRARY) if PRIVATE.search(path.read_text("utf8"))}
    assert found <= {"inductor.py", "modes.py", "operators.py", "launch.py", "linear_loss.py"}


IN_CELL = re.compile(r"^# code: (?P<path>\S+):(?P<name>\S+)$", re.M)
"""A section that a cell shows."""


def test_every_section_of_the_source_is_on_a_page():
    included = {
        (match["path"], match["name"])
        for form, pages in ((SECTION, "*.md"), (source.DIRECTIVE, "*.md"), (IN_CELL, "*.py"))
        for page in (ROOT / "docs").rglob(pages)
        for match in form.finditer(page.read_text("utf8"))
    }
    marked = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in SRC.rglob("*.py")
        for name in source.read(path.relative_to(ROOT).as_posix(), ROOT).edges
    }
    assert not marked - included


def test_every_file_of_the_library_has_tests_for_its_mutants():
    paths = [path.relative_to(ROOT).as_posix() for path in modules(LIBRARY)]
    assert all((ROOT / test).is_file() for path in paths for test in checked_by(path))
