"""The modules of the repository: a table of each package, and links to whatever they define.

A page links to code by its dotted name, `[text][triton_softmax.launch.Workspace]`, and the link
leads to the module's row of `docs/reference/internals.md`. Functions and classes for users are on
`docs/reference/api.md`, where mkdocstrings finds them by the same syntax.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

PACKAGES = ("triton_softmax", "softmax_bench", "softmax_site")
INTERNALS = "/reference/internals.md"
FOR_USERS = ("triton_softmax.functional", "triton_softmax.nn")
"""What these define is on the page of the API."""


class Module(NamedTuple):
    """A file of `src/`, read without being imported."""

    path: str
    """Below `src/`."""
    name: str
    """As it is imported."""
    summary: str
    """The first paragraph of its docstring, on one line."""
    lines: dict[str, int]
    """Where its functions, classes and constants begin."""


def read(path: Path, source: Path) -> Module:
    """Read the module at `path` below `source`, the folder of all packages.

    Raises:
        ValueError: The module has no docstring.
    """
    tree = ast.parse(path.read_text("utf8"))
    docstring = ast.get_docstring(tree)
    if not docstring:
        raise ValueError(f"{path} has no docstring")
    lines = {}
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            lines[node.name] = node.lineno
        elif isinstance(node, ast.Assign):
            lines |= {each.id: node.lineno for each in node.targets if isinstance(each, ast.Name)}
    relative = path.relative_to(source)
    name = ".".join(relative.with_suffix("").parts).removesuffix(".__init__")
    return Module(relative.as_posix(), name, " ".join(docstring.split("\n\n")[0].split()), lines)


@lru_cache(maxsize=2)
def _load(source: Path, stamp: tuple) -> tuple[Module, ...]:
    return tuple(read(path, source) for path, _ in stamp)


def load(root: Path) -> tuple[Module, ...]:
    """Every module of the repository below `root`, folder by folder."""
    files = [path for name in PACKAGES for path in (root / "src" / name).rglob("*.py")]
    files.sort(
        key=lambda path: (
            PACKAGES.index(path.relative_to(root / "src").parts[0]),
            path.parent,
            path.stem != "__init__",
            path.stem,
        )
    )
    return _load(root / "src", tuple((path, path.stat().st_mtime_ns) for path in files))


def listing(root: Path, package: str) -> str:
    """The modules of a package as a Markdown table, each row with its name as its anchor."""
    rows = []
    for module in load(root):
        if module.path.startswith(package + "/"):
            path = module.path.removeprefix(package + "/").replace("_", r"\_")
            rows.append(f'| <code id="{module.name}">{path}</code> | {module.summary} |')
    return "\n".join(["| module | what it is for |", "|---|---|", *rows]) + "\n"


class Links(dict):
    """The link references of a page, `id: (url, title)`, with every dotted name of code."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root

    def find(self, name: str) -> str | None:
        """The address of a module or of what it defines; None for the page of the API to say."""
        for module in load(self.root):
            inside = () if module.name in FOR_USERS else module.lines
            if name in (module.name, *(f"{module.name}.{each.lower()}" for each in inside)):
                return f"{INTERNALS}#{module.name}"
        return None

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or ("." in str(name) and self.find(str(name)) is not None)

    def __missing__(self, name: str) -> tuple[str, str]:
        url = self.find(name) if "." in name else None
        if url is None:
            raise KeyError(name)
        return url, ""
