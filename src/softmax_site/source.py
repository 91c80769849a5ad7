"""Files of the repository as the pages show them: in named sections, by their own line numbers.

A section is what a file defines under a name, `merge`, or from one name to another,
`load_tile..finish_tile`; or it lies between the comments `--8<-- [start:name]` and `--8<--
[end:name]`.  The blank lines of a section part it into paragraphs, the pieces of a kernel;
signature and docstring of a function belong to the paragraph that they open.  Files are read as
text and never imported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache, cached_property, wraps
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, TypeVar

from pygments.lexers import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String

from softmax_playground.cells import definitions

T = TypeVar("T")

FOLDER = "source"
"""The folder of the site with a page for each file shown."""

LIBRARY = "src/triton_softmax"
SHOWN = (LIBRARY, "src/softmax_tutorial")
"""Packages whose every file is shown whole; of others those that something links to."""

DIRECTIVE = re.compile(
    r"\[\[code (?P<path>[\w/]+\.py):(?P<name>[\w-]+(?:\.\.\w+)?)"
    r"(?:/(?P<first>\d+)(?:-(?P<last>\d+))?)?"
    r"(?: since=(?P<since>\w+))?\]\]"
)
EQUATIONS = re.compile(r"(?P<reason>^\s*#.*?)(?:;\s*|\s*)\beq: (?P<labels>.+?)\s*$")
_MARKER = re.compile(r"\s*# --8<-- \[(?P<edge>start|end):(?P<name>[\w-]+)\]\s*")
_LEXER = PythonLexer(stripnl=False)
_COLOURS = {
    **{Comment: "c1", Number: "m", String: "s", Operator.Word: "ow"},
    **{Keyword.Constant: "kc", Keyword: "k"},
    **{Name.Decorator: "nd", Name.Function: "nf", Name.Class: "nc", Name.Builtin: "nb"},
}
"""The class of each kind of token that has a colour; the first that holds counts."""


class SourceError(ValueError):
    """A file or a part of one that cannot be shown."""


class Piece(NamedTuple):
    """Lines `first` to `last` of a file, from 1."""

    first: int
    last: int
    summary: str = ""
    """Of the head of a function: its decorators, signature and docstring."""
    signature: int = 0
    """The last line of a head that is no docstring."""


@dataclass(frozen=True)
class File:
    """A Python file of the repository."""

    path: str
    lines: tuple[str, ...]
    heads: tuple[Piece, ...]
    """Of the functions that have a docstring."""
    definitions: dict[str, Piece]
    """What is defined at the top, by name."""

    @property
    def name(self) -> str:
        """What a reader calls it.

        >>> File("src/triton_softmax/kernels/strided.py", (), (), {}).name
        'kernels/strided.py'
        >>> File("src/softmax_tutorial/matrices.py", (), (), {}).name
        'softmax_tutorial/matrices.py'
        """
        return self.path.removeprefix(f"{LIBRARY}/").removeprefix("src/")

    def marker(self, number: int) -> re.Match | None:
        """The match of a line that marks where a section starts or ends."""
        return _MARKER.fullmatch(self.lines[number - 1])

    @cached_property
    def tokens(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        """What each line is made of: classes of colour, empty for none, and texts."""
        return tokens("\n".join(self.lines))

    @cached_property
    def edges(self) -> dict[str, dict[str, int]]:
        """The lines that mark sections, by name: where each starts, and where it ends."""
        found: dict[str, dict[str, int]] = {}
        for number in range(1, len(self.lines) + 1):
            if match := self.marker(number):
                found.setdefault(match["name"], {})[match["edge"]] = number
        return found

    @cached_property
    def in_heads(self) -> set[int]:
        """The lines of heads."""
        return {at for head in self.heads for at in range(head.first, head.last + 1)}

    @cached_property
    def in_docstrings(self) -> set[int]:
        """The lines of the docstrings of functions."""
        return {at for head in self.heads for at in range(head.signature + 1, head.last + 1)}

    def blank(self, number: int) -> bool:
        """Whether there is nothing in a line."""
        return not self.lines[number - 1].strip()

    def equations(self, number: int) -> tuple[str, list[str]]:
        """What a comment says before it names equations, and the labels; none if it names none."""
        match = EQUATIONS.match(self.lines[number - 1])
        if match is None:
            return self.lines[number - 1], []
        reason = match["reason"].rstrip()
        labels = [label.strip() for label in match["labels"].split(",")]
        return ("" if reason.strip() == "#" else reason), labels

    def section(self, name: str) -> Piece:
        """A named section, without the blank lines at its ends."""
        edges = self.edges
        begin, _, end = name.partition("..")
        if name not in edges and {begin, end or begin} <= self.definitions.keys():
            return Piece(self.definitions[begin].first, self.definitions[end or begin].last)
        if len(edges.get(name, ())) < 2:
            known = ", ".join([*self.definitions, *edges]) or "none"
            raise SourceError(f"{self.path} has no section {name!r}; it has {known}")
        first, last = edges[name]["start"], edges[name]["end"]
        shown = [at for at in range(first + 1, last) if not self.blank(at)]
        return Piece(shown[0], shown[-1])

    def paragraphs(self, name: str) -> list[Piece]:
        """The parts of a section between its blank lines, heads together with what follows."""
        whole = self.section(name)

        def parts(at: int) -> bool:
            return self.blank(at) and not self.in_heads & {at - 1, at}

        runs = groupby(range(whole.first, whole.last + 1), parts)
        found = [list(run) for between, run in runs if not between]
        return [Piece(run[0], run[-1]) for run in found]

    def piece(self, name: str, first: int | None = None, last: int | None = None) -> Piece:
        """A section, or its paragraphs `first` to `last`, counted from 1."""
        if first is None:
            return self.section(name)
        parts = self.paragraphs(name)
        last = last or first
        if not 1 <= first <= last <= len(parts):
            raise SourceError(
                f"{self.path}: section {name!r} has {len(parts)} paragraphs, not {first} to {last}"
            )
        return Piece(parts[first - 1].first, parts[last - 1].last)

    def code(self, piece: Piece) -> dict[int, str]:
        """The lines of a piece that compute, by number: no head, no comment, nothing blank."""
        texts = {at: self.lines[at - 1].strip() for at in range(piece.first, piece.last + 1)}
        computes = ((at, text) for at, text in texts.items() if at not in self.in_heads)
        return {at: text for at, text in computes if text and not text.startswith("#")}


def page_of(path: str) -> str:
    """The page that shows a file whole, below the root of the site."""
    return f"{FOLDER}/{path}.html"


def url_of(page: str) -> str:
    """Where the site has a page of Markdown.

    >>> url_of("math/softmax.md"), url_of("math/index.md")
    ('math/softmax/', 'math/')
    """
    return page.removesuffix(".md").removesuffix("index").rstrip("/") + "/"


def link(path: str, line: int) -> str:
    """The address of a line on the page of its file, from any page."""
    return f"/{page_of(path)}#L{line}"


def tokens(text: str) -> tuple[tuple[tuple[str, str], ...], ...]:
    """The lines of a text as runs of one colour, so that a page has few elements."""
    kinds = (
        (next((css for of, css in _COLOURS.items() if kind in of), ""), part)
        for kind, part in _LEXER.get_tokens(text)
    )
    lines: list[list[tuple[str, str]]] = [[]]
    for colour, run in groupby(kinds, key=itemgetter(0)):
        first, *others = "".join(part for _, part in run).split("\n")
        lines[-1].append((colour, first))
        lines += [[(colour, part)] for part in others]
    return tuple(tuple(run for run in line if run[1]) for line in lines[:-1])


def _summary(node: ast.FunctionDef, room: int = 72) -> str:
    """The first line of a folded function: its name, and its parameters if they are few."""
    arguments = node.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    names += [f"*{arguments.vararg.arg}"] if arguments.vararg else []
    names += [each.arg for each in arguments.kwonlyargs]
    while len(f"def {node.name}({', '.join(names)})") > room and names:
        names = [*names[: -2 if names[-1] == "…" else -1], "…"]
        if names == ["…"]:
            break
    return f"def {node.name}({', '.join(names)})"


def _functions(body: list[ast.stmt]) -> Iterator[ast.FunctionDef]:
    """Every function of a block, those within others too."""
    for node in body:
        if isinstance(node, ast.FunctionDef):
            yield node
        yield from _functions(getattr(node, "body", []))


_clear: list[Callable[[], None]] = []
"""What forgets each result that is kept."""


def kept(make: Callable[..., T]) -> Callable[..., T]:
    """Keep what a function makes of a root, until `forget`."""
    once = cache(make)
    _clear.append(once.cache_clear)

    @wraps(make)
    def load(root: Path | str = ".", *arguments: str) -> T:
        return once(Path(root).resolve(), *arguments)

    return load


def forget() -> None:
    """Read the files of the repository again when they are next asked for."""
    for clear in _clear:
        clear()


@kept
def _read(root: Path, path: str) -> File:
    if not (root / path).is_file():
        raise SourceError(f"there is no file {path!r} to show")
    text = (root / path).read_text("utf8")
    tree, heads = ast.parse(text), []
    for node in _functions(tree.body):
        if ast.get_docstring(node) is not None:
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            doc = node.body[0]
            last = doc.end_lineno or first
            heads.append(Piece(first, last, _summary(node), doc.lineno - 1))
    defined = {name: Piece(first, last) for name, first, last in definitions(tree)}
    return File(path, tuple(text.splitlines()), tuple(sorted(heads)), defined)


def read(path: str, root: Path | str = ".") -> File:
    """A file of the repository."""
    return _read(root, path)


def named(asked: str, root: Path | str) -> tuple[File, Piece, re.Match]:
    """What `[[code asked]]` shows: a file, its lines, and the parts of the name."""
    match = DIRECTIVE.fullmatch(f"[[code {asked}]]")
    if match is None:
        raise SourceError(f"not understood: [[code {asked}]]")
    file = read(match["path"], root)
    first, last = (int(match[name]) if match[name] else None for name in ("first", "last"))
    return file, file.piece(match["name"], first, last), match


def changed(mine: File, section: str, other: File) -> set[int]:
    """The lines of a section that the section of the same name in another file does not have; what
    is named after its own file is there named after the other."""
    theirs = section.replace(Path(mine.path).stem, Path(other.path).stem)
    new, old = mine.code(mine.section(section)), other.code(other.section(theirs))
    matcher = SequenceMatcher(None, list(old.values()), list(new.values()), autojunk=False)
    kept = {
        at for _, first, size in matcher.get_matching_blocks() for at in range(first, first + size)
    }
    return {number for at, number in enumerate(new) if at not in kept}
