"""Cells: code on a page that a reader can edit and run there.

`[[run NAME]]` on a line of its own shows `docs/_cells/NAME.py`. Without scripts it is the code and
what it computes, found when the site is built. With scripts the code can be edited, and runs in the
page, in MicroPython and `small_triton`, the same modules that the build uses.

A cell is plain Python with lines that begin with `#`:

    \"\"\"Title

    What to try, in a sentence or two.
    \"\"\"
    # code: src/softmax_tutorial/single_block.py:forward
    # given: src/triton_softmax/operations/softmax.py: SOFTMAX
    x = Tensor([[1.0, 2.0, 3.0]], name="x")

`code` puts a section of a file into an editor of its own, before the rest; what it uses of the
library is there. `given` names more of it. Docstrings are left out. Where the page explains the
section in steps, `[[run NAME folded]]` keeps it in a fold that the script fills.

    # try: skip the maximum
    #   tl.exp(x - m)
    #   tl.exp(x)
    #   exp(1001) is infinite, and ∞ / ∞ is NaN.

    # again: with negative numbers
    #   [1.0, 2.0, 3.0]
    #   [-9.0, -8.0, -7.0]

`again` is another input, on which a right result is computed once more, so that no verdict depends
on numbers that are easy. Below the words stand pairs of lines, any number of them.

    # right: y = softmax(x)

`right` says what the result should be, of the functions in `small_triton.right`; of several lines
for one name one has to hold. Below the cell stands whether it does, and what moved.

`try` makes a button that puts the second piece of code in the place of the first, which stands in
the cell once, runs it, and says what comes of it.

A mistake is a cell with lines that end in `# wrong` or `# right`. It fails with the wrong ones and
passes with the right ones. A fold hides all but its title.
"""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from softmax_playground import kernel_source
from softmax_playground.small_triton import session

FOLDER = "docs/_cells"
RUNTIME = "assets/run/runtime.json"

_CODE = re.compile(r"# code: src/(?P<path>[\w/]+)\.py:(?P<section>[\w-]+(?:\.\.\w+)?)")
_GIVEN = re.compile(r"# given: src/(?P<path>[\w/]+)\.py: (?P<names>[\w ]+)")
_RIGHT = re.compile(r"# right: (\w+ = .+)")
_TRY = re.compile(r"# try: (.+)\n#   (.+)\n#   (.+)\n#   (.+)\n")
_AGAIN = re.compile(r"# again: (.+)\n((?:#   .+\n)+)")
_PAIR = re.compile(r"#   (.+)\n#   (.+)\n")
_PLAIN = re.compile(r'<span class="(?:n|p|w|o|nn)">([^<]*)</span>')
_SOURCE = re.compile(r"\b(?:([A-D])\d|([\w.-]+/[\w.-]+)#(\d+))\b")
_HEAD = re.compile(r'"""(?P<text>.+?)"""\n', re.S)
_MARK = re.compile(r" *# (wrong|right)$")


class CellError(ValueError):
    """A cell that cannot be read, or that fails where it should not."""


class Cell(NamedTuple):
    """A cell as its file says it."""

    name: str
    title: str
    hint: str
    given: dict[str, str]
    """Modules of the library, by the names that are wanted of them."""
    offered: list[str]
    """Which of them a reader may use; the kernel calls the others."""
    kernel: str
    """The section of the library, or nothing."""
    code: str
    """The cell's own code; of a mistake with both kinds of lines."""
    tries: list[tuple[str, str, str, str]]
    """What can be tried with one click: a label, a piece of the code, what takes its place, and
    what comes of it."""
    right: list[str]
    """What holds of a right result."""
    again: list[tuple[str, list[tuple[str, str]]]]
    """Other inputs: words, and pairs of a piece of the code and what takes its place."""

    @property
    def is_mistake(self) -> bool:
        return any(map(_MARK.search, self.code.splitlines()))

    def texts(self, kind: str = "wrong") -> list[str]:
        """What runs, one after another; of a mistake the version with the lines of that kind."""
        other = "right" if kind == "wrong" else "wrong"
        lines = [
            _MARK.sub("", line)
            for line in self.code.splitlines()
            if not line.endswith(f"# {other}")
        ]
        return [text for text in (self.kernel, "\n".join(lines) + "\n") if text]

    def run(self, kind: str = "wrong") -> dict:
        """What a run answers; see `session.run_cell`."""
        return session.run_cell(self.request(self.texts(kind)))

    def request(self, texts: list[str]) -> dict:
        """What `session.run_cell` is asked, with these texts in the editors."""
        return {"given": self.given, "texts": texts, "right": self.right, "again": self.again}


def without_docstrings(source: str) -> str:
    """Python without the docstrings of its functions and constants."""
    lines: list[str | None] = [*source.splitlines()]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            last = node.end_lineno or node.lineno
            lines[node.lineno - 1 : last] = [None] * (last - node.lineno + 1)
    return "\n".join(line for line in lines if line is not None).strip("\n") + "\n"


def definitions(tree: ast.Module) -> Iterator[tuple[str, int, int]]:
    """(name, first line, last line) of what a file defines, decorators and docstring included."""
    for node, after in zip(tree.body, [*tree.body[1:], None]):
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
        last = after if isinstance(after, ast.Expr) else node
        targets = [getattr(node, "target", None), *getattr(node, "targets", ())]
        found = [each for target in targets if target for each in ast.walk(target)]
        names = [each.id for each in found if isinstance(each, ast.Name)]
        for name in [getattr(node, "name", None)] + names:
            if name is not None:
                yield name, first, last.end_lineno or first


def section(text: str, name: str) -> str:
    """A named section of a file: a definition, from one definition to another, or what lies between
    two comments; without the lines that mark sections."""
    start, end = (f"# --8<-- [{which}:{name}]\n" for which in ("start", "end"))
    if start in text and end in text:
        inside = text.split(start)[1].split(end)[0]
        return re.sub(r"^ *# --8<-- .*\n", "", inside, flags=re.M)
    lines = {each: (first, last) for each, first, last in definitions(ast.parse(text))}
    begin, _, end = name.partition("..")
    if not {begin, end or begin} <= lines.keys():
        raise CellError(f"no section {name}")
    return "\n".join(text.split("\n")[lines[begin][0] - 1 : lines[end or begin][1]]) + "\n"


def read(root: Path, name: str) -> Cell:
    """A cell by its name."""
    path = root / FOLDER / f"{name}.py"
    if not path.is_file():
        raise CellError(f"no cell is named {name}: {path} does not exist")
    text = path.read_text("utf8")
    head = _HEAD.match(text)
    if head is None:
        raise CellError(f"{path}: a cell begins with its title, in three quotes")
    title, _, hint = head["text"].partition("\n")
    rest = _AGAIN.sub("", _TRY.sub("", text[head.end() :])).splitlines()
    tries = _TRY.findall(text)
    again = [(words, _PAIR.findall(lines)) for words, lines in _AGAIN.findall(text)]
    kernel, given, offered, right = "", {}, [], []
    code = []
    for line in rest:
        if match := _CODE.fullmatch(line):
            file = root / "src" / f"{match['path']}.py"
            piece = section(file.read_text("utf8"), match["section"])
            kernel += ("\n\n" if kernel else "") + without_docstrings(piece)
            given |= kernel_source.imports(root / "src", match["path"].replace("/", "."), piece)
        elif match := _GIVEN.fullmatch(line):
            offered += match["names"].split()
            given |= dict.fromkeys(match["names"].split(), match["path"].replace("/", "."))
        elif match := _RIGHT.fullmatch(line):
            right.append(match[1])
        else:
            code.append(line)
    code_text = "\n".join(code).strip("\n") + "\n"
    replaced = [(words, old) for words, pairs in again for old, _ in pairs]
    for label, old, *_ in [*tries, *replaced]:
        if (count := (kernel + code_text).count(old)) != 1:
            raise CellError(f"{path}: what {label!r} replaces is there {count} times")
    own = [each.id for node in ast.parse(kernel).body for each in getattr(node, "targets", ())]
    given = {name: module for name, module in given.items() if name not in own}
    hint = " ".join(hint.split())
    return Cell(name, title, hint, given, offered, kernel, code_text, tries, right, again)


def names(root: Path) -> list[str]:
    """All cells."""
    folder = root / FOLDER
    return sorted(
        path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.py")
    )


# ---- What the page loads ----


def library(root: Path) -> list[kernel_source.Part]:
    """The parts of the library that some cell needs."""
    wanted = {
        (module, name) for cell in names(root) for name, module in read(root, cell).given.items()
    }
    return kernel_source.needed(root / "src", sorted(wanted))


def runtime(root: Path) -> str:
    """The modules of the small Triton and the library's parts, as the page loads them."""
    folder = Path(__file__).parent / "small_triton"
    files = {path.name: path.read_text("utf8") for path in sorted(folder.glob("*.py"))}
    return json.dumps({"files": files, "library": library(root)})


# ---- HTML ----


def found(cell: Cell) -> list[str]:
    """The names that a cell's texts use and find there, and those it is offered of the library."""
    used: set[str] = set()
    for text in {*cell.texts("wrong"), *cell.texts("right")}:
        used |= {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    common = ["triton", "tl", "show", *session.NAMES]
    return [name for name in common if name in used] + cell.offered


def _names_line(cell: Cell) -> str:
    listed = ", ".join(f"<code>{name}</code>" for name in found(cell))
    if cell.given.keys() - {*cell.offered}:
        listed += " and what the kernel calls"
    if not listed:
        return ""
    link = '<a href="/reference/how-checks-work/#names">What they are</a>'
    return f'<p class="run-names">Already defined: {listed}. {link}</p>'


@functools.lru_cache(maxsize=2)
def _stamp(root: Path) -> tuple:
    files = [*(root / FOLDER).rglob("*.py"), *(root / "src").rglob("*.py")]
    return tuple((path, path.stat().st_mtime_ns) for path in sorted(files))


def forget() -> None:
    """Look at the files again at the next `html`."""
    _stamp.cache_clear()


@functools.lru_cache(maxsize=1)
def _provided(root: Path, _stamp: tuple) -> None:
    session.provide(library(root))


def _coloured(code: str) -> str:
    """Code with its colours; what has the colour of text is text."""
    return _PLAIN.sub(r"\1", highlight(code, PythonLexer(), HtmlFormatter(nowrap=True)))


def _editor(code: str, label: str) -> str:
    lines = code.splitlines()
    places = f"--columns: {max(map(len, lines))}; --digits: {len(str(len(lines)))}"
    return (
        f'<div class="run-text"><p class="run-label">{label}</p>'
        f'<div class="editor highlight no-copy" tabindex="0" style="{places}">'
        f"<pre><code>{_coloured(code)}</code></pre></div></div>"
    )


_FOLDED = (
    '<div class="run-text"><details class="run-fold"><summary>Edit the kernel</summary>'
    '<div class="editor highlight no-copy"><pre><code></code></pre></div></details></div>'
)


def _bar(cell: Cell) -> str:
    """The buttons as the script will put them there, so that nothing moves when it does."""
    labels = ["Run", "Stop", *["Fix it"] * cell.is_mistake, "Reset", "Link"]
    buttons = [f'<button type="button" disabled>{label}</button>' for label in labels]
    for label, *_ in cell.tries:
        label = escape(label[0].upper() + label[1:])
        buttons.append(f'<button type="button" class="run-try" disabled>{label}</button>')
    return "".join(buttons)


def _lines(code: str, kind: str) -> str:
    """The lines of a mistake that are wrong, or those that are right."""
    lines = [line for line in code.splitlines() if line.endswith(f"# {kind}")]
    shown = (_coloured(_MARK.sub("", line).strip()).strip() for line in lines)
    return "".join(f'<span class="run-{kind}">{line}</span>\n' for line in shown)


def _linked(found: re.Match) -> str:
    item, repository, number = found.groups()
    if item:
        return f'<a href="/reference/sources/#corrections-{item.lower()}">{found[0]}</a>'
    return f'<a href="https://github.com/{repository}/issues/{number}">{found[0]}</a>'


def html(root: Path, name: str, attribute: str = "") -> str:
    """A cell as the page shows it without scripts, and what the script needs: `open`, `folded`."""
    return _html(root, name, attribute, _stamp(root))


@functools.lru_cache(maxsize=256)
def _html(root: Path, name: str, attribute: str, stamp: tuple) -> str:
    cell = read(root, name)
    _provided(root, stamp)
    answer = cell.run()
    data = {key: getattr(cell, key) for key in "name given kernel code tries right again".split()}
    labels = ["The kernel", "The call"] if cell.kernel else [""]
    editors = list(map(_editor, cell.texts(), labels))
    if attribute == "folded" and cell.kernel:
        editors[0] = _FOLDED
    texts = "".join(editors) + _names_line(cell) * (not cell.is_mistake)
    title, hint = escape(cell.title), f'<p class="run-hint">{escape(cell.hint)}</p>'
    if cell.is_mistake:
        if not answer["error"] or cell.run("right")["error"]:
            raise CellError(f"{name}: the wrong lines must fail and the right ones must not")
        result = ""
        why = (
            '<details class="run-why"><summary>What goes wrong, and the fix</summary>'
            f'<p class="run-error">{escape(answer["error"]["message"])}</p>'
            f"{_SOURCE.sub(_linked, hint)}<pre><code>{_lines(cell.code, 'wrong')}"
            f"{_lines(cell.code, 'right')}</code></pre></details>"
        )
        head = f'<summary class="run-title">{title}</summary>'
        around = f'details class="run-cell run-mistake" id="{Path(name).name}" {attribute}'
    else:
        if answer["error"]:
            raise CellError(f"{name}: {answer['error']}")
        result, why = answer["html"], ""
        head = f'<div class="run-head"><p class="run-title">{title}</p>{hint}</div>'
        around = f'section class="run-cell" aria-label="{title}" data-search-exclude'
    payload = json.dumps(data).replace("</", "<\\/")
    return (
        f'<{around}>{head}<div class="run-body" data-search-exclude>'
        f'<div class="run-texts">{texts}</div><div class="run-side">'
        f'<div class="run-bar">{_bar(cell)}</div>'
        f'<div class="run-result">{result}</div>{why}</div></div>'
        f'<script type="application/json">{payload}</script></{around.split()[0]}>'
    )
