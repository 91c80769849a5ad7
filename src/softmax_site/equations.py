"""Where each display equation is written, tested and computed.

An equation has one home on a page (`/// equation | label`), one test
(`test_label` in `tests/site/test_equations.py`) and any number of comments
`# eq: label` above the lines of `src/` that compute it.  `load` reads all three
from the text of the repository, without importing any of it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import yaml

TESTS = Path("tests/site/test_equations.py")
INDEX = "[[equation-index]]"
"""The line of a page that becomes the index."""

_EQUATION = re.compile(
    r"^/// equation \| (?P<label>\S+)[ ]*\n(?P<latex>.*?)\n///[ ]*$", re.M | re.S
)
_FENCE = re.compile(
    r"^(?P<indent>[ ]*)(?P<fence>`{3,}|~{3,}).*?^(?P=indent)(?P=fence)[ ]*$", re.M | re.S
)
_COMMENT = re.compile(r"^\s*#.*?\beq: (?P<labels>.+?)\s*$")
LABEL = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


@dataclass(frozen=True)
class Lines:
    """A run of lines of a file of the repository."""

    path: str
    first: int
    text: str
    owner: str = ""
    summary: str = ""

    @property
    def where(self) -> str:
        return f"{self.path}:{self.first}"


@dataclass
class Equation:
    """One labelled display equation."""

    label: str
    latex: str
    page: str
    line: int
    number: str
    test: Lines | None = None
    code: list[Lines] = field(default_factory=list)

    @property
    def anchor(self) -> str:
        return f"eq-{self.label}"

    @property
    def test_name(self) -> str:
        return test_name(self.label)


@dataclass
class Registry:
    """Every equation of the site by label, in reading order."""

    equations: dict[str, Equation]
    problems: list[str]
    titles: dict[str, str]

    def __getitem__(self, label: str) -> Equation:
        if label not in self.equations:
            known = ", ".join(self.equations) or "none"
            raise KeyError(f"no equation is labelled {label!r}; known: {known}")
        return self.equations[label]

    def __iter__(self) -> Iterator[Equation]:
        return iter(self.equations.values())

    def pages(self) -> dict[str, list[Equation]]:
        pages: dict[str, list[Equation]] = {}
        for equation in self.equations.values():
            pages.setdefault(equation.page, []).append(equation)
        return pages


def test_name(label: str) -> str:
    """Name of the test of an equation.

    >>> test_name("softmax-vjp")
    'test_softmax_vjp'
    """
    return "test_" + label.replace("-", "_")


test_name.__test__ = False  # pytest collects by name, and this is no test


def without_fences(text: str) -> str:
    """Blank out fenced code and keep every line where it was.

    >>> without_fences("a\\n```text\\n/// equation | x\\n```\\nb").split()
    ['a', 'b']
    """
    return _FENCE.sub(lambda match: re.sub(r"[^\n]", "", match[0]), text)


class _Loader(yaml.SafeLoader):
    """A YAML loader that passes over tags it does not know."""


_Loader.add_multi_constructor("", lambda loader, suffix, node: None)


def _nav_pages(nav: object) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    if isinstance(nav, dict):
        return [page for value in nav.values() for page in _nav_pages(value)]
    if isinstance(nav, list):
        return [page for item in nav for page in _nav_pages(item)]
    return []


def reading_order(root: Path) -> list[str]:
    """The pages of the navigation, then any others, as paths below `docs/`."""
    config = yaml.load((root / "mkdocs.yml").read_text("utf8"), _Loader)
    pages = [page for page in _nav_pages(config.get("nav", [])) if (root / "docs" / page).is_file()]
    found = sorted(
        path.relative_to(root / "docs").as_posix() for path in (root / "docs").rglob("*.md")
    )
    return pages + [page for page in found if page not in pages and not page.startswith("_")]


def _title(text: str, page: str) -> str:
    match = re.search(r"^# (.+?)(?:\s*\{.*\})?$", text, re.M)
    return match[1] if match else page


def _tests(root: Path) -> dict[str, Lines]:
    path = root / TESTS
    if not path.is_file():
        return {}
    source = path.read_text("utf8")
    lines = source.splitlines()
    tests = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            summary = (ast.get_docstring(node) or "").split("\n\n")[0].replace("\n", " ")
            text = "\n".join(lines[first - 1 : node.end_lineno])
            tests[node.name] = Lines(TESTS.as_posix(), first, text, node.name, summary)
    return tests


def _owner(tree: ast.Module, line: int) -> str:
    name = ""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.lineno <= line <= (
            node.end_lineno or 0
        ):
            name = node.name
    return name


def _excerpt(lines: list[str], at: int, limit: int = 8) -> tuple[int, str]:
    """The lines below the comment at index `at` that belong to it."""
    indent = len(lines[at]) - len(lines[at].lstrip())
    end = at + 1
    while end < len(lines) and end - at <= limit:
        line = lines[end]
        inner = len(line) - len(line.lstrip())
        if (
            not line.strip()
            or inner < indent
            or "--8<--" in line
            or (_COMMENT.match(line) and end > at + 1)
        ):
            break
        end += 1
    return at + 2, "\n".join(line[indent:] for line in lines[at + 1 : end])


def _code(root: Path) -> list[tuple[str, Lines]]:
    found = []
    for path in sorted((root / "src").rglob("*.py")):
        source = path.read_text("utf8")
        lines = source.splitlines()
        tree = None
        for at, line in enumerate(lines):
            match = _COMMENT.match(line)
            if match:
                tree = tree or ast.parse(source)
                first, text = _excerpt(lines, at)
                where = Lines(path.relative_to(root).as_posix(), first, text, _owner(tree, at + 1))
                found += [(label.strip(), where) for label in match["labels"].split(",")]
    return found


@lru_cache(maxsize=2)
def _stamp(root: Path) -> tuple:
    files = [root / "mkdocs.yml", root / TESTS]
    files += [
        path
        for folder, suffix in (("docs", "md"), ("src", "py"))
        for path in (root / folder).rglob(f"*.{suffix}")
    ]
    return tuple((str(path), path.stat().st_mtime_ns) for path in sorted(files) if path.is_file())


@lru_cache(maxsize=2)
def _load(root: Path, stamp: tuple) -> Registry:
    equations: dict[str, Equation] = {}
    problems: list[str] = []
    titles: dict[str, str] = {}
    chapter = 0
    for page in reading_order(root):
        text = without_fences((root / "docs" / page).read_text("utf8"))
        matches = list(_EQUATION.finditer(text))
        chapter += bool(matches)
        titles[page] = _title(text, page)
        for index, match in enumerate(matches, 1):
            label, line = match["label"], text.count("\n", 0, match.start()) + 1
            if not LABEL.fullmatch(label):
                problems.append(
                    f"{page}:{line}: label {label!r} is not lower-case words joined by hyphens"
                )
            if label in equations:
                problems.append(
                    f"{page}:{line}: label {label!r} is also on {equations[label].page}"
                )
                continue
            equations[label] = Equation(
                label, match["latex"].strip(), page, line, f"{chapter}.{index}"
            )
    tests = _tests(root)
    for equation in equations.values():
        equation.test = tests.get(equation.test_name)
        if equation.test is None:
            problems.append(
                f"{equation.page}:{equation.line}: {equation.label} has no "
                f"{equation.test_name} in {TESTS}"
            )
    named = {equation.test_name for equation in equations.values()}
    problems += [
        f"{test.where}: {name} tests no equation of the site"
        for name, test in tests.items()
        if name not in named
    ]
    for label, lines in _code(root):
        if label in equations:
            equations[label].code.append(lines)
        else:
            problems.append(f"{lines.where}: comment names the unknown equation {label!r}")
    return Registry(equations, problems, titles)


def load(root: Path | str = ".") -> Registry:
    """Read the equations below `root`; after `forget`, again if a file has changed."""
    root = Path(root).resolve()
    return _load(root, _stamp(root))


def forget() -> None:
    """Look at the files again at the next `load`."""
    _stamp.cache_clear()


def index_markdown(registry: Registry) -> str:
    """The body of the equation index: a table, then every equation with its test and its lines."""
    out = ["| no. | equation | test | computed in |", "|---|---|---|---|"]
    for equation in registry.equations.values():
        test = f"`{equation.test_name}`" if equation.test else "**missing**"
        code = "<br>".join(
            f"`{lines.path.removeprefix('src/triton_softmax/')}:{lines.first}`"
            for lines in equation.code
        )
        out.append(
            f"| {equation.number} | [{equation.label}](#index-{equation.label}) | {test} | "
            f"{code or '–'} |"
        )
    for page, equations in registry.pages().items():
        out += ["", f"## {registry.titles[page]}"]
        for equation in equations:
            out += ["", f"### {equation.number} {equation.label} {{#index-{equation.label}}}"]
            out += ["", f"/// equation-ref | {equation.label}", "///"]
            if equation.test:
                out += ["", equation.test.summary] if equation.test.summary else []
                out += _listing("test", f"Test: `{equation.test.where}`", equation.test)
            for lines in equation.code:
                owner = f" in `{lines.owner}`" if lines.owner else ""
                out += _listing("example", f"Computed at `{lines.where}`{owner}", lines)
    return "\n".join(out) + "\n"


def _listing(kind: str, title: str, lines: Lines) -> list[str]:
    body = [f"    {line}".rstrip() for line in lines.text.split("\n")]
    return [
        "",
        f'??? {kind} "{title}"',
        "",
        f'    ```{{.python .excerpt linenums="{lines.first}"}}',
        *body,
        "    ```",
    ]
