"""The modules of the repository: a table of each package, and links to whatever they define.

A page links to code by its dotted name, `[text][triton_softmax.plan.launch.Workspace]`. The link
leads to its line on the page that shows the file whole. Functions and classes for users are on
`docs/reference/api.md`, where mkdocstrings finds them by the same syntax.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

from softmax_site import source

LISTED = ("triton_softmax", "softmax_tutorial")
"""Packages whose modules `docs/reference/internals.md` lists."""
FOR_USERS = ("triton_softmax.functional", "triton_softmax.nn")
"""What these define is on the page of the API."""


class Module(NamedTuple):
    """A file of `src/`, read without being imported."""

    path: str
    """Below `src/`."""
    summary: str
    """The first paragraph of its docstring, on one line."""
    addresses: dict[str, str]
    """Where the site shows it and what it defines, by dotted name."""


@source.kept
def load(root: Path) -> dict[str, Module]:
    """Every module of the repository below `root` by name, folder by folder."""
    found = {}
    in_folder = lambda path: (path.parent, path.stem != "__init__", path.stem)  # noqa: E731
    for path in sorted((root / "src").rglob("*.py"), key=in_folder):
        relative = path.relative_to(root / "src")
        name = ".".join(relative.with_suffix("").parts).removesuffix(".__init__")
        tree = ast.parse(path.read_text("utf8"))
        lines = {name: 1}
        for node in tree.body if name not in FOR_USERS else ():
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                lines[f"{name}.{node.name}"] = node.lineno
            elif isinstance(node, ast.Assign):
                lines |= {f"{name}.{ast.unparse(each)}": node.lineno for each in node.targets}
        whole = f"src/{relative.as_posix()}"
        addresses = {each: source.link(whole, line) for each, line in lines.items()}
        summary = " ".join((ast.get_docstring(tree) or "").split("\n\n")[0].split())
        found[name] = Module(relative.as_posix(), summary, addresses)
    return found


def listing(root: Path, package: str) -> str:
    """The modules of a package as a Markdown table, each row with its name as its anchor."""
    rows = ["| module | what it is for |", "|---|---|"]
    for name, module in load(root).items():
        if module.path.startswith(f"{package}/"):
            path = module.path.removeprefix(f"{package}/").replace("_", r"\_")
            link = f'[<code id="{name}">{path}</code>]({module.addresses[name]})'
            rows.append(f"| {link} | {module.summary} |")
    return "\n".join(rows) + "\n"


CORRECTIONS = "tests/site/test_corrections.py"


def corrections(root: Path) -> str:
    """The tests behind the corrections of the sources: a link to the line of each, with an
    anchor."""
    out = []
    for node in ast.parse((root / CORRECTIONS).read_text("utf8")).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            anchor, href = node.name.replace("_", "-"), source.link(CORRECTIONS, node.lineno)
            out.append(f'- <a id="{anchor}" href="{href}"><code>{node.name}</code></a>\n')
    return "".join(out)


_NAMED = re.compile(r"\]\[(\w+(?:\.\w+)+)\]")


def linked(root: Path) -> set[str]:
    """The files to which a page links by a dotted name."""
    pages = (path.read_text("utf8") for path in (root / "docs").rglob("*.md"))
    named = {name for text in pages for name in _NAMED.findall(text)} & addresses(root).keys()
    return {addresses(root)[name].partition(".html")[0][len("/source/") :] for name in named}


@source.kept
def addresses(root: Path) -> dict[str, str]:
    """Where each dotted name leads, as written and in lower case."""
    known = [each for module in load(root).values() for each in module.addresses.items()]
    return {form: to for name, to in known if "." in name for form in (name, name.lower())}


class Links(dict):
    """The link references of a page, `id: (url, title)`, with every dotted name of code but what
    the page of the API has."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in addresses(self.root)

    def __missing__(self, name: str) -> tuple[str, str]:
        return addresses(self.root)[name], ""
