"""Where each display equation is written, tested and computed.

An equation has one home on a page (`/// equation | label`), one place that says what its letters
mean, so that it can be evaluated (its label in `FAMILIES`, in `tests/formulas/bindings.py`), and
any number of comments `# eq: label` above the lines of `src/` that compute it.  `load` reads all
three from the text of the repository, without importing any of it.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, groupby, repeat
from pathlib import Path
from typing import NamedTuple

import yaml
from math_core import LatexError, LatexToMathML

from softmax_site import source
from softmax_site.benchmarks import values

TESTS = "tests/formulas/bindings.py"
WORKED = "docs/_computed/worked.json"
EQUATION = re.compile(r"^/// equation \| (?P<label>\S+)[ ]*\n(?P<latex>.*?)\n///[ ]*$", re.M | re.S)
FENCE = re.compile(
    r"^(?P<indent>[ ]*)(?P<fence>`{3,}|~{3,}).*?^(?P=indent)(?P=fence)[ ]*$", re.M | re.S
)
LABEL = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")

_SCRIPTED = re.compile(r"<(msub|msup|msubsup)>(<mo minsize=[^>]*>[^<]*</mo>)")
"""A sized bracket under a script.  Chromium gives it its size only in a row of its own."""
_converter = LatexToMathML(fancy_error=False)


class EquationError(ValueError):
    """An equation that cannot be shown."""


@cache
def to_mathml(latex: str, *, display: bool) -> str:
    """Convert LaTeX to MathML.

    >>> to_mathml("x", display=False)
    '<math><mi>x</mi></math>'
    """
    try:
        mathml = _converter.convert_with_local_state(latex, displaystyle=display)
    except LatexError as error:
        raise EquationError(f"LaTeX that cannot be converted: {latex!r}: {error}") from error
    return _SCRIPTED.sub(r"<\1><mrow>\2<mspace/></mrow>", mathml)


class Lines(NamedTuple):
    """Where a run of lines of a file of the repository begins."""

    path: str
    first: int

    @property
    def where(self) -> str:
        return f"{self.path}:{self.first}"

    @property
    def address(self) -> str:
        """From the root of the site."""
        return source.link(self.path, self.first)


@dataclass
class Equation:
    """One labelled display equation."""

    label: str
    latex: str
    page: str
    number: str
    test: Lines | None = None
    code: list[Lines] = field(default_factory=list)

    @property
    def anchor(self) -> str:
        return f"eq-{self.label}"

    @property
    def address(self) -> str:
        """Its home, from the root of the site."""
        return f"/{source.url_of(self.page)}#{self.anchor}"

    @property
    def code_links(self) -> list[tuple[str, str]]:
        """Addresses of the lines that compute it, and names, of which a file has one."""
        return [
            (lines.address, f"{name.rpartition('/')[2]}:{lines.first}")
            for path, found in groupby(self.code, key=lambda lines: lines.path)
            for name, lines in zip(chain([path], repeat("")), found)
        ]

    @property
    def mathml(self) -> str:
        return to_mathml(self.latex, display=True)


@dataclass
class Registry:
    """Every equation of the site by label, in reading order."""

    equations: dict[str, Equation]
    titles: dict[str, str]

    def __getitem__(self, label: str) -> Equation:
        if label not in self.equations:
            known = ", ".join(self.equations) or "none"
            raise KeyError(f"no equation is labelled {label!r}; known: {known}")
        return self.equations[label]

    def __iter__(self) -> Iterator[Equation]:
        return iter(self.equations.values())


def without_fences(text: str) -> str:
    """Blank out fenced code and keep every line where it was.

    >>> without_fences("a\\n```text\\n/// equation | x\\n```\\nb").split()
    ['a', 'b']
    """
    return FENCE.sub(lambda match: re.sub(r"[^\n]", "", match[0]), text)


def filled(latex: str, root: Path) -> str:
    """LaTeX with the matrices of the worked example, which are made from its numbers."""
    if "{{ " not in latex:
        return latex
    return values.filled(
        latex, {"worked": json.loads((root / WORKED).read_text("utf8"))}, bare=True
    )


class _Loader(yaml.SafeLoader):
    """A YAML loader that passes over tags it does not know."""


_Loader.add_multi_constructor("", lambda loader, suffix, node: None)


def _nav_pages(nav: object) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    inner = nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ()
    return [page for item in inner for page in _nav_pages(item)]


def navigated(root: Path) -> list[str]:
    """The pages of the navigation in its order, as paths below `docs/`."""
    config = yaml.load((root / "mkdocs.yml").read_text("utf8"), _Loader)
    return [page for page in _nav_pages(config.get("nav", [])) if (root / "docs" / page).is_file()]


def reading_order(root: Path) -> list[str]:
    """The pages of the navigation, then any others."""
    pages = navigated(root)
    found = sorted(
        path.relative_to(root / "docs").as_posix() for path in (root / "docs").rglob("*.md")
    )
    return pages + [page for page in found if page not in pages and not page.startswith("_")]


def _title(text: str, page: str) -> str:
    match = re.search(r"^# (.+?)(?:\s*\{.*\})?$", text, re.M)
    return match[1] if match else page


def _tests(root: Path) -> dict[str, Lines]:
    """By label, where the letters of an equation are bound."""
    path, found = root / TESTS, {}
    for node in ast.parse(path.read_text("utf8") if path.is_file() else "").body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "FAMILIES":
            for family in getattr(node.value, "elts", []):
                labels = family.elts[-1]
                for number, line in enumerate(labels.value.split("\n"), labels.lineno):
                    found |= {label: Lines(TESTS, number) for label in line.split()}
    return found


def _code(root: Path) -> list[tuple[str, Lines]]:
    found = []
    for path in sorted((root / "src").rglob("*.py")):
        for number, line in enumerate(path.read_text("utf8").splitlines(), 1):
            match = source.EQUATIONS.match(line)
            if match:
                where = Lines(path.relative_to(root).as_posix(), number + 1)
                found += [(label.strip(), where) for label in match["labels"].split(",")]
    return found


@source.kept
def load(root: Path) -> Registry:
    """Read the equations below `root`.

    Raises:
        EquationError: a label is not lower-case words joined by hyphens, or is on two equations.
        KeyError: a comment of the code names an equation that does not exist.
    """
    registry, tests, chapter = Registry({}, {}), _tests(root), 0
    for page in reading_order(root):
        text = without_fences((root / "docs" / page).read_text("utf8"))
        matches = list(EQUATION.finditer(text))
        chapter += bool(matches)
        registry.titles[page] = _title(text, page)
        for index, match in enumerate(matches, 1):
            label, latex = match["label"], filled(match["latex"].strip(), root)
            if not LABEL.fullmatch(label) or label in registry.equations:
                raise EquationError(f"{page}: {label!r} is no label, or that of another equation")
            number = f"{chapter}.{index}"
            registry.equations[label] = Equation(label, latex, page, number, tests.get(label))
    for label, lines in _code(root):
        registry[label].code.append(lines)
    return registry
