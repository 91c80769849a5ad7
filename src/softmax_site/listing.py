"""Code of the repository, shown in pieces by a Python-Markdown syntax, and whole.

* ``[[code src/…/file.py:name]]`` shows what the file defines under a name, ``…:first..last`` from
  one name to another, ``…:name/2`` the second paragraph of that and ``…:name/2-3`` both;
* ``since=module`` after it marks, once a reader asks for it, the lines that the section of the same
  name in the module beside does not have.

Lines carry the numbers of their file and link to the page that shows it whole, docstrings with it:
here the prose beside the lines says what they do.  A long signature is folded.  A comment
`# eq: label` is shown as a link at the end of the line below it; the formula itself waits in a
template for `docs/assets/code.js`.  Links are written from the root of the site, and `build.rooted`
makes them relative.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from pathlib import Path, PurePosixPath

from softmax_site import equations, modules, source

LONGEST_SIGNATURE = 3
"""Lines of a function before its body that are shown open."""


def coloured(tokens: Iterable[tuple[str, str]], indent: int = 0) -> str:
    """A line in its colours, less the `indent` characters that it begins with.

    >>> coloured([("", "    "), ("k", "return"), ("", " a < b")], 2)
    '  <span class="k">return</span> a &lt; b'
    """
    out = []
    for colour, text in tokens:
        shown = escape(text[indent:], quote=False)
        indent = max(0, indent - len(text))
        out.append(f'<span class="{colour}">{shown}</span>' if colour and shown.strip() else shown)
    return "".join(out)


def code(lines: Iterable[str]) -> str:
    """Lines as a block."""
    return f"<pre><span></span><code>{''.join(lines)}</code></pre>"


def chip(equation: equations.Equation, text: str) -> str:
    """A link to an equation that shows it when it is pointed at."""
    return f'<a class="eq" href="{equation.address}" data-eq="{equation.label}">{text}</a>'


def formulas(named: Iterable[equations.Equation], waiting: set[str]) -> str:
    """The formulas that do not wait on the page yet, to be shown by their chips."""
    out = []
    for each in named:
        if each.label not in waiting:
            waiting.add(each.label)
            opening = f'<template id="formula-{each.label}" data-search-exclude>'
            out.append(f"{opening}{each.mathml}</template>")
    return "".join(out)


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


class Listings:
    """The parts of files that a page shows: `[[code …]]`."""

    def __init__(self, root: str) -> None:
        self.root = Path(root)
        # What the page has shown before: files and modules named, lines, formulas.
        self.named: set[str] = set()
        self.numbered: set[tuple[str, int]] = set()
        self.waiting: set[str] = set()

    def html(self, asked: str) -> str:
        """A part of a file, in its own lines."""
        file, piece, match = source.named(asked, self.root)
        since, changed = match["since"], set()
        if since:
            beside = str(PurePosixPath(file.path).with_name(f"{since}.py"))
            changed = source.changed(file, match["name"], source.read(beside, self.root))
        shown = self.head(file, piece, since) + self.body(file, piece, changed)
        return f'<div class="listing highlight" data-search-exclude>{shown}</div>'

    def head(self, file: source.File, piece: source.Piece, since: str | None) -> str:
        """Where the first listing of a file on a page leads, and what its reader can switch on."""
        out = ""
        if file.path not in self.named:
            out += f'<a href="{source.link(file.path, piece.first)}">{file.name}</a>'
        if since and since not in self.named:
            label = f"changed since {since.replace('_', ' ').capitalize()}"
            out += f'<label class="listing-since"><input type="checkbox"> {label}</label>'
        self.named |= {file.path, since or file.path}
        return f'<div class="listing-head">{out}</div>' if out else ""

    def body(self, file: source.File, piece: source.Piece, changed: set[int]) -> str:
        """The lines, with long signatures folded."""
        out, start = [], piece.first
        named: list[equations.Equation] = []
        for head in file.heads:
            long = head.signature - head.first >= LONGEST_SIGNATURE
            if long and start <= head.first and head.last <= piece.last:
                out.append(self.lines(file, start, head.first - 1, changed, named))
                lines = self.lines(file, head.first, head.last, changed, named)
                summary = f"<summary><code>{escape(head.summary)}</code></summary>"
                out.append(f'<details class="listing-fold">{summary}{lines}</details>')
                start = head.last + 1
        out.append(self.lines(file, start, piece.last, changed, named))
        return "".join(out) + formulas(named, self.waiting)

    def lines(
        self,
        file: source.File,
        first: int,
        last: int,
        changed: set[int],
        named: list[equations.Equation],
    ) -> str:
        """Lines `first` to `last`; the equations that their comments name are added to `named`."""
        numbers = (at for at in range(first, last + 1) if at not in file.in_docstrings)
        shown = [number for number in numbers if not file.marker(number)]
        written = [number for number in shown if not file.blank(number)]
        if not written:
            return ""
        shown = shown[shown.index(written[0]) : shown.index(written[-1]) + 1]
        indent = min(_indent(file.lines[number - 1]) for number in written)
        registry = equations.load(self.root)
        pending: list[equations.Equation] = []
        out = []
        for number in shown:
            text, labels = file.equations(number)
            pending += [registry[label] for label in labels]
            if labels and not text:
                continue
            chips = ""
            if pending and not labels:
                links = "".join(chip(each, f"eq {each.number}") for each in pending)
                chips = f'<span class="chips">{links}</span>'
                named += pending
                pending = []
            inner = _indent(text) - indent if text.strip() else 0
            style = f' style="--i:{inner}ch"' if inner else ""
            anchor = f' id="{PurePosixPath(file.path).stem}-L{number}"'
            anchor = "" if (file.path, number) in self.numbered else anchor
            self.numbered.add((file.path, number))
            href = source.link(file.path, number)
            out.append(
                f'<span class="{"line changed" if number in changed else "line"}"{style}>{chips}'
                f'<a class="num" href="{href}" tabindex="-1"{anchor}>{number}</a>'
                f"{coloured((('c1', text),) if labels else file.tokens[number - 1], indent)}\n"
                "</span>"
            )
        if pending:
            labels = ", ".join(each.label for each in pending)
            raise source.SourceError(f"{file.path}:{last}: no line follows the comment on {labels}")
        return code(out)


_INCLUDED = re.compile(r'--8<-- "(?P<path>src/[\w/]+\.py)')


@source.kept
def shown_on(root: Path) -> dict[str, list[str]]:
    """The pages that show parts of each file."""
    found: dict[str, list[str]] = {}
    for page in equations.load(root).titles:
        text = (root / "docs" / page).read_text("utf8")
        for match in (*source.DIRECTIVE.finditer(text), *_INCLUDED.finditer(text)):
            pages = found.setdefault(match["path"], [])
            pages += [page] if page not in pages else []
    return found


def paths(root: Path) -> list[str]:
    """The files that have a page: all of the library, and whatever an equation or a page names."""
    registry = equations.load(root)
    found = {modules.CORRECTIONS} if (root / modules.CORRECTIONS).is_file() else set()
    found |= {
        path.relative_to(root).as_posix()
        for folder in source.SHOWN
        for path in (root / folder).rglob("*.py")
    }
    found |= {*shown_on(root), *modules.linked(root)}
    found |= {lines.path for each in registry for lines in each.code}
    found |= {each.test.path for each in registry if each.test}
    return sorted(found)


def whole(path: str, root: Path) -> dict[str, str]:
    """What the page of a whole file shows, for `docs/_overrides/source.html`: the lines, in as few
    elements as links and colours allow, and links to the pages that show parts of the file."""
    file, registry = source.read(path, root), equations.load(root)
    tested: dict[int, list[equations.Equation]] = {}
    for each in registry:
        if each.test and each.test.path == path:
            tested.setdefault(each.test.first, []).append(each)
    named: list[equations.Equation] = []
    out = []
    for number, (text, tokens) in enumerate(zip(file.lines, file.tokens), 1):
        labels = [registry[label] for label in file.equations(number)[1]]
        line = coloured(tokens)
        if labels:
            chips = ", ".join(chip(each, each.label) for each in labels)
            line = escape(text[: text.rindex("eq: ") + 4]) + chips
        if number in tested:
            labels = tested[number]
            line += "  " + ", ".join(chip(each, f"eq {each.number}") for each in labels)
        named += labels
        out.append(f'<a class="num" id="L{number}" href="#L{number}" tabindex="-1">{number}</a>')
        out.append(f"{line}\n")
    pages = shown_on(root).get(path, [])
    links = [f'<a href="/{source.url_of(page)}">{registry.titles[page]}</a>' for page in pages]
    return {
        "path": path,
        "heading": file.name,
        "code": code(out) + formulas(named, set()),
        "shown_on": ", ".join(links),
    }
