"""The house and the road: the modules of the library, floor by floor, and the functions that a call
enters on its way to the kernels. For *Internals*, and in short for CONTRIBUTING.md.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import torch
import triton

import triton_softmax as library

LIBRARY = Path(library.__file__).parent
TRITON = str(Path(triton.__file__).parent)
ROOT = Path(__file__).resolve().parents[3]
CONTRIBUTING = "CONTRIBUTING.md"
MARKS = "<!-- what follows is written by `make regenerate` -->\n", "<!-- until here -->\n"
WIDTH = 96


# --- the road of a call


class Frame(NamedTuple):
    """A function of the library that a call enters."""

    name: str
    """`module:function`."""
    depth: int
    """How many functions of the library it was called within."""


def frames_of(call: Callable[[], object]) -> list[Frame]:
    """Return the functions of the library that a later call enters, in order. What Triton runs,
    kernels and their interpreter, is not counted."""
    frames: list[Frame] = []
    depth = 0
    inside: list[FrameType] = []  # the frame with which Triton was entered

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal depth
        if inside:
            if event == "return" and frame is inside[0]:
                inside.clear()
        elif event in ("call", "return"):
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(TRITON) and event == "call":
                inside.append(frame)
            elif path.is_relative_to(LIBRARY):
                if event == "call":
                    module = path.relative_to(LIBRARY).with_suffix("").as_posix()
                    frames.append(Frame(f"{module}:{frame.f_code.co_qualname}", depth))
                depth += 1 if event == "call" else -1

    call()  # the first call plans and compiles
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return frames


def calls(gradient: bool, device: str) -> dict[str, Callable[[], object]]:
    """Return a call of each kind, with inputs that need a gradient or not."""
    x = torch.randn(4, 64, device=device, requires_grad=gradient)
    target = torch.tensor([0, 3, 63, 5], device=device)
    where = torch.arange(64, device=device) % 3 > 0
    layer = torch.randn(64, 64, device=device, requires_grad=gradient)
    return {
        "softmax": lambda: library.softmax(x),
        "logsumexp": lambda: library.logsumexp(x),
        "cross_entropy": lambda: library.cross_entropy(x, target),
        "softmax, where=": lambda: library.softmax(x, where=where),
        "token_logprobs": lambda: library.token_logprobs(x, target),
        "linear_cross_entropy": lambda: library.linear_cross_entropy(x, layer, target),
    }


def defined(path: Path) -> dict[str, str]:
    """Return the first sentence about each function and class of a file, by qualified name."""

    def walk(node: ast.AST, above: str) -> Iterator[tuple[str, str]]:
        for each in ast.iter_child_nodes(node):
            if isinstance(each, ast.FunctionDef | ast.ClassDef):
                says = " ".join((ast.get_docstring(each) or "").split())
                yield above + each.name, re.split(r"(?<=[.:;])\s", says)[0].rstrip(".:;")
                inner = ".<locals>." if isinstance(each, ast.FunctionDef) else "."
                yield from walk(each, above + each.name + inner)

    return dict(walk(ast.parse(path.read_text("utf8")), ""))


def road(call: Callable[[], object]) -> str:
    """Return the frames of a call as lines of text: each within its caller, with what it does."""
    lines = []
    for name, depth in frames_of(call):
        module, _, function = name.partition(":")
        if function.endswith("comp>"):  # a call of its own only in older Pythons
            continue
        says = defined(LIBRARY / f"{module}.py").get(function, "")
        text = f"{module.removesuffix('/__init__').replace('/', '.')}.{function}"
        text += f": {says}" if says else ""
        indent, further = "  " * depth, "  " * (depth + 2)
        lines += textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=further)
    return "\n".join(lines) + "\n"


# --- the house


def rooms() -> dict[str, set[str]]:
    """Return the modules and packages of the library, each with those that it imports when it is
    imported itself."""
    found: dict[str, set[str]] = {}
    for path in sorted(LIBRARY.rglob("*.py")):
        room = path.relative_to(LIBRARY).with_suffix("").parts[0]
        if room == "__init__":
            continue
        imported = found.setdefault(room, set())
        for node in ast.parse(path.read_text("utf8")).body:
            if isinstance(node, ast.ImportFrom) and node.level:
                stem = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
                for alias in node.names:
                    below = (stem / alias.name).relative_to(LIBRARY).parts[0]
                    if below != room:
                        imported.add(below)
    return {room: below & found.keys() for room, below in found.items()}


def floors() -> list[list[str]]:
    """Return the rooms by floors, the highest first: each imports only from floors below its own.

    Raises:
        RecursionError: two rooms import each other.
    """
    below, level = rooms(), {}

    def level_of(room: str) -> int:
        if room not in level:
            level[room] = 1 + max(map(level_of, below[room]), default=0)
        return level[room]

    for room in below:
        level_of(room)
    by_floor = {n: [room for room in below if level[room] == n] for n in level.values()}
    return [by_floor[n] for n in sorted(by_floor, reverse=True)]


def house() -> str:
    """Return the floors as lines of text."""
    return "".join(" · ".join(floor) + "\n" for floor in floors())


# --- the files


def fenced(text: str) -> str:
    return f"```text\n{text}```\n"


def generate() -> dict[str, str]:
    """Return the house and the roads for *Internals*, and CONTRIBUTING.md with both in short."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    plain, with_gradient = calls(False, device), calls(True, device)
    kinds = {
        "`softmax(x)`": plain["softmax"],
        "`softmax(x)`, if x needs a gradient": with_gradient["softmax"],
        "`softmax(x, where=…)`": plain["softmax, where="],
        "`cross_entropy(x, target)`, if x needs a gradient": with_gradient["cross_entropy"],
    }
    roads = [f"{kind}:\n\n{fenced(road(call))}" for kind, call in kinds.items()]
    text = (ROOT / CONTRIBUTING).read_text("utf8")
    start, end = (text.index(mark) for mark in MARKS)
    short = f"\n{fenced(house())}\nA later call of `softmax(x)`, function by function:\n\n"
    short += fenced(road(plain["softmax"])) + "\n"
    return {
        "docs/_computed/house.md": fenced(house()),
        "docs/_computed/road.md": "\n".join(roads),
        CONTRIBUTING: text[: start + len(MARKS[0])] + short + text[end:],
    }
