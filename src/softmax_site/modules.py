"""The modules of the repository: a table of each package, and links to whatever they define.

A page links to code by its dotted name, `[text][triton_softmax.launch.Workspace]`, and the link
leads to its line on the page that shows the file whole, or, where files have no such page, to the
module's row of `docs/reference/internals.md`. Functions and classes for users are on
`docs/reference/api.md`, where mkdocstrings finds them by the same syntax.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from softmax_site import source

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

    def address(self, line: int = 1) -> str:
        """Where the site shows a line of it."""
        path = f"src/{self.path}"
        whole = path.startswith(source.LIBRARY)
        return source.link(path, line) if whole else f"{INTERNALS}#{self.name}"


def read(path: Path, folder: Path) -> Module:
    """Read the module at `path` below `folder`, that of all packages.

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
    relative = path.relative_to(folder)
    name = ".".join(relative.with_suffix("").parts).removesuffix(".__init__")
    return Module(relative.as_posix(), name, " ".join(docstring.split("\n\n")[0].split()), lines)


@lru_cache(maxsize=2)
def _load(folder: Path, stamp: tuple) -> tuple[Module, ...]:
    return tuple(read(path, folder) for path, _ in stamp)


@lru_cache(maxsize=2)
def _stamp(root: Path) -> tuple[tuple[Path, int], ...]:
    files = [path for name in PACKAGES for path in (root / "src" / name).rglob("*.py")]
    files.sort(
        key=lambda path: (
            PACKAGES.index(path.relative_to(root / "src").parts[0]),
            path.parent,
            path.stem != "__init__",
            path.stem,
        )
    )
    return tuple((path, path.stat().st_mtime_ns) for path in files)


def load(root: Path) -> tuple[Module, ...]:
    """Every module of the repository below `root`, folder by folder; after `forget`, read again if
    a file has changed."""
    return _load(root / "src", _stamp(root))


def forget() -> None:
    """Look at the files again at the next `load`."""
    _stamp.cache_clear()


def listing(root: Path, package: str) -> str:
    """The modules of a package as a Markdown table, each row with its name as its anchor."""
    rows = []
    for module in load(root):
        if module.path.startswith(package + "/"):
            path = module.path.removeprefix(package + "/").replace("_", r"\_")
            shown = f'<code id="{module.name}">{path}</code>'
            if INTERNALS not in module.address():
                shown = f"[{shown}]({module.address()})"
            rows.append(f"| {shown} | {module.summary} |")
    return "\n".join(["| module | what it is for |", "|---|---|", *rows]) + "\n"


class Links(dict):
    """The link references of a page, `id: (url, title)`, with every dotted name of code."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root

    def find(self, name: str) -> str | None:
        """The address of a module or of what it defines; None for the page of the API to say."""
        for module in load(self.root):
            inside = {} if module.name in FOR_USERS else module.lines
            lines = {f"{module.name}.{each.lower()}": line for each, line in inside.items()}
            if name in (module.name, *lines):
                return module.address(lines.get(name, 1))
        return None

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or ("." in str(name) and self.find(str(name)) is not None)

    def __missing__(self, name: str) -> tuple[str, str]:
        url = self.find(name) if "." in name else None
        if url is None:
            raise KeyError(name)
        return url, ""
