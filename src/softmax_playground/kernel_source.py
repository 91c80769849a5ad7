"""The library's kernels as text that the small Triton runs: nothing but what a kernel needs.

A kernel's module also imports torch and has launchers, and a page has neither. So what is taken
are the top-level definitions that a kernel reaches, each as it stands in its file.
"""

from __future__ import annotations

import ast
import functools
from pathlib import Path
from typing import NamedTuple

from softmax_playground import small_triton
from softmax_playground.small_triton import library

GIVEN = {"triton": small_triton, "tl": small_triton.language}
"""What every module means by these names."""

REPLACED = {"Operation": library.Operation, "replace": library.replace}
"""What takes the place of names that need `dataclasses`."""


class Part(NamedTuple):
    """What is needed of one module."""

    module: str
    """Its dotted name."""

    imports: tuple[tuple[str, str], ...]
    """(name, module it comes from) for all that it takes from other parts."""

    source: str
    """The definitions, in the order of the file."""


def _is_ours(module: str | None) -> bool:
    return str(module).split(".")[0] in ("triton_softmax", "softmax_tutorial")


def _module(root: Path, name: str) -> tuple[str, dict[str, ast.stmt], dict[str, tuple[int, str]]]:
    """A module's source, its definitions by name, and (level, module) of the names it imports."""
    path = root / (name.replace(".", "/") + ".py")
    return _parsed(path, path.stat().st_mtime_ns)


@functools.cache
def _parsed(path: Path, _stamp: int):
    source, defined, imported = path.read_text("utf8"), {}, {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined[node.name] = node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            defined[node.targets[0].id] = node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            defined[node.target.id] = node
        elif isinstance(node, ast.ImportFrom) and (node.level or _is_ours(node.module)):
            imported |= {each.name: (node.level, node.module or "") for each in node.names}
    return source, defined, imported


def _names(node: ast.stmt) -> set[str]:
    """The names that a definition uses; annotations are not evaluated."""
    found = set()

    def visit(each: ast.AST) -> None:
        if isinstance(each, ast.Name):
            found.add(each.id)
        for field, value in ast.iter_fields(each):
            if field in ("annotation", "returns"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    visit(child)

    visit(node)
    return found


def _text(source: str, node: ast.stmt) -> str:
    """A definition as it stands in its file; a NamedTuple in words that MicroPython knows."""
    if isinstance(node, ast.ClassDef):
        fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
        names = [ast.unparse(each.target) for each in fields]
        made = f'namedtuple("{node.name}", {names})'
        if not any(each.value for each in fields):
            return f"{node.name} = {made}"
        given = [
            f"{name}={ast.unparse(each.value)}" if each.value else name
            for name, each in zip(names, fields)
        ]
        return (
            f"_{node.name} = {made}\n\n\ndef {node.name}({', '.join(given)}):\n"
            f"    return _{node.name}({', '.join(names)})"
        )
    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
    return "\n".join(source.splitlines()[first - 1 : node.end_lineno])


def needed(root: Path, wanted: list[tuple[str, str]]) -> list[Part]:
    """The parts of modules that these definitions need.

    Args:
        root: folder of the package's parent, `src`.
        wanted: (module, name) of each definition.

    Returns:
        `Part`s, each after those it imports from.
    """
    taken: dict[str, set[str]] = {}
    imports: dict[str, dict[str, str]] = {}
    order: list[str] = []

    def take(module: str, name: str) -> None:
        _, defined, imported = _module(root, module)
        if name in taken.setdefault(module, set()):
            return
        taken[module].add(name)
        imports.setdefault(module, {})
        for used in sorted(_names(defined[name])):
            if used in REPLACED or used in GIVEN:
                continue
            if used in defined and used != name:
                take(module, used)
            elif used in imported:
                home = _home(module, *imported[used])
                imports[module][used] = home
                take(home, used)
        if module not in order:
            order.append(module)

    for module, name in wanted:
        take(module, name)
    parts = []
    for module in order:
        source, defined, _ = _module(root, module)
        texts = [_text(source, node) for name, node in defined.items() if name in taken[module]]
        parts.append(Part(module, tuple(sorted(imports[module].items())), "\n\n".join(texts)))
    return _sorted(parts)


def imports(root: Path, module: str, piece: str) -> dict[str, str]:
    """What a piece of a module uses of other modules, and of its own: module by name."""
    _, defined, imported = _module(root, module)
    tree = ast.parse(piece)
    own = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    found = {}
    for node in tree.body:
        for name in sorted(_names(node) - own):
            if name in imported:
                found[name] = _home(module, *imported[name])
            elif name in defined:
                found[name] = module
    return found


def _home(module: str, level: int, other: str) -> str:
    """The module that an import in another one means; of level 0 if it is absolute."""
    if not level:
        return other
    return ".".join([*module.split(".")[:-level], *([other] if other else [])])


def _sorted(parts: list[Part]) -> list[Part]:
    found: list[Part] = []
    while parts:
        done = {part.module for part in found}
        ready = [part for part in parts if {home for _, home in part.imports} <= done]
        found += ready
        parts = [part for part in parts if part not in ready]
    return found
