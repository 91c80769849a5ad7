"""The exercises, each read from its one file in `exercises/`.

    \"\"\"Title

    kind: fill in
    level: 1
    minutes: 5
    teaches: what one has learnt afterwards

    The text, in Markdown.

    hint: The first hint.

    hint: The second.
    \"\"\"
    what is given
    # start
    what the reader finds
    # solved
    what solves it
    # end

    # ---- check ----
    what checks it, and wrong answers with a remark on each; see `judge.Sheet`

The order is that of `exercises/course.toml`.
"""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import NamedTuple

FOLDER = "exercises"
KINDS = {
    "predict": "Predict",
    "fill in": "Fill in",
    "find the bug": "Find the bug",
    "find the shape": "Find the shape",
    "blank page": "Blank page",
    "budget": "Budget",
    "project": "Project",
}
LEVELS = {1: "easy", 2: "medium", 3: "hard"}

_CHECK = "\n# ---- check ----\n"
_BLOCK = re.compile(r"^ *# start\n(.*?)^ *# solved\n(.*?)^ *# end\n", re.M | re.S)
_FACT = re.compile(r"^(kind|level|minutes|teaches): (.+)$", re.M)
_LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")


class CourseError(ValueError):
    """An exercise that cannot be read."""


class Exercise(NamedTuple):
    """One exercise."""

    name: str
    title: str
    kind: str
    level: int
    minutes: int
    teaches: str
    text: str
    hints: list[str]
    start: str
    """The code that the reader starts from."""
    solution: str
    solved: list[str]
    """Those pieces of the solution that take the place of what was to do."""
    check: str

    @property
    def anchor(self) -> str:
        """Where its page has it."""
        return self.name.replace("_", "-")

    @property
    def facts(self) -> str:
        return f"{KINDS[self.kind]} · {LEVELS[self.level]} · {self.minutes} minutes"

    @property
    def file(self) -> str:
        """What the reader's file is at first, with the text."""
        return f'"""{self.title}\n\n{plain(self.text)}\n"""\n\n{self.start}'


def plain(text: str) -> str:
    """Markdown as a terminal shows it: a link is its words, and its page in brackets.

    >>> plain("See [Merge](../math/monoid.md#two).")
    'See Merge (docs/math/monoid.md).'
    """

    def link(match: re.Match) -> str:
        path = match[2].partition("#")[0].removeprefix("../")
        path = f"docs/{path}" if match[2].startswith("../") else match[2]
        return f"{match[1]} ({path})" if path else match[1]

    return _LINK.sub(link, text)


def read(path: Path) -> Exercise:
    """The exercise of a file."""
    whole, _, check = path.read_text("utf8").partition(_CHECK)
    if not check:
        raise CourseError(f"{path}: there is no line {_CHECK.strip()!r}")
    tree = ast.parse(whole)
    title, facts, *paragraphs = (ast.get_docstring(tree) or "").split("\n\n")
    known = dict(_FACT.findall(facts.replace("\n    ", " ")))
    if known.keys() != {"kind", "level", "minutes", "teaches"} or known["kind"] not in KINDS:
        raise CourseError(f"{path}: kind, level, minutes or teaches is missing or unknown")
    code = "".join(whole.splitlines(keepends=True)[tree.body[0].end_lineno :]).strip() + "\n"
    hints = [each.removeprefix("hint: ") for each in paragraphs if each.startswith("hint: ")]
    text = "\n\n".join(each for each in paragraphs if not each.startswith("hint: "))
    return Exercise(
        path.stem,
        title,
        known["kind"],
        int(known["level"]),
        int(known["minutes"]),
        known["teaches"],
        text,
        hints,
        _BLOCK.sub(r"\1", code),
        _BLOCK.sub(r"\2", code),
        [solved for _, solved in _BLOCK.findall(code) if solved],
        check.strip() + "\n",
    )


def stages(root: Path) -> dict[str, tuple[str, list[str]]]:
    """The title of each page and the names of its exercises, in order."""
    found = tomllib.loads((root / FOLDER / "course.toml").read_text("utf8"))
    return {page: (stage["title"], stage["exercises"]) for page, stage in found.items()}


def load(root: Path) -> dict[str, Exercise]:
    """Every exercise by name, in order."""
    names = [name for _, stage in stages(root).values() for name in stage]
    return {name: read(root / FOLDER / f"{name}.py") for name in names}
