"""Python-Markdown syntax for code of the repository, shown in pieces and whole.

* ``[[code src/…/file.py:section]]`` shows a named section, ``…:section/2`` its second paragraph and
  ``…:section/2-3`` both;
* ``since=module`` after it marks, once a reader asks for it, the lines that the section of the same
  name in the module beside does not have;
* ``[[source src/…/file.py]]`` shows a whole file, which `softmax_site.build` puts on a page.

Lines carry the numbers of their file and link to the page that shows it whole.  A comment
`# eq: label` is shown as a link at the end of the line below it; the formula itself waits in a
template for `docs/assets/code.js`.  Everything is made of elements and not of text, so that MkDocs
checks the links.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as etree
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath

from markdown import Markdown
from markdown.blockprocessors import BlockProcessor
from markdown.util import AtomicString

from softmax_site import equations, source

_SOURCE = re.compile(r"\[\[source (?P<path>[\w/]+\.py)\]\]")


def child(
    parent: etree.Element, tag: str, text: str | None = None, **attributes: str
) -> etree.Element:
    """A new element below `parent`, whose text is taken as it is."""
    element = etree.SubElement(
        parent,
        tag,
        {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()},
    )
    element.text = AtomicString(text) if text is not None else None
    return element


def _append(element: etree.Element, text: str) -> None:
    """Put text at the end of an element."""
    if len(element):
        element[-1].tail = AtomicString((element[-1].tail or "") + text)
    else:
        element.text = AtomicString((element.text or "") + text)


def _tokens(element: etree.Element, tokens: Iterable[tuple[str, str]], indent: int = 0) -> None:
    """The coloured text of a line, less the `indent` characters that it begins with."""
    for colour, text in tokens:
        cut = min(indent, len(text))
        text, indent = text[cut:], indent - cut
        if colour and text.strip():
            child(element, "span", text, class_=colour)
        elif text:
            _append(element, text)


def _code(parent: etree.Element) -> etree.Element:
    """A `<code>` in a `<pre>`, not alone there: what is alone is taken for indented Markdown."""
    pre = child(parent, "pre")
    child(pre, "span")
    return child(pre, "code")


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


class Formulas:
    """The formulas that wait on a page to be shown, each once."""

    def __init__(self, md: Markdown, to_mathml: Callable[..., str]) -> None:
        self.md, self.to_mathml = md, to_mathml
        self.waiting: set[str] = set()

    def reset(self) -> None:
        self.waiting.clear()

    def chip(self, parent: etree.Element, equation: equations.Equation, text: str) -> etree.Element:
        """A link to an equation that shows it when it is pointed at."""
        return child(
            parent,
            "a",
            text,
            class_="eq",
            href=f"/{equation.page}#{equation.anchor}",
            data_eq=equation.label,
        )

    def wait(self, parent: etree.Element, named: Iterable[equations.Equation]) -> None:
        """Put the formulas that are not on the page yet below `parent`."""
        for equation in named:
            if equation.label not in self.waiting:
                self.waiting.add(equation.label)
                mathml = self.md.htmlStash.store(self.to_mathml(equation.latex, display=True))
                template = child(parent, "template", mathml, id=f"formula-{equation.label}")
                template.set("data-search-exclude", "")


class CodeBlocks(BlockProcessor):
    """`[[code …]]`: a part of a file, in its own lines."""

    def __init__(self, md: Markdown, root: str, formulas: Formulas) -> None:
        super().__init__(md.parser)
        self.root, self.formulas = Path(root), formulas
        self.named: set[str] = set()
        self.numbered: set[tuple[str, int]] = set()

    def reset(self) -> None:
        self.named.clear()
        self.numbered.clear()

    def test(self, parent: etree.Element, block: str) -> bool:
        return block.startswith("[[code ")

    def run(self, parent: etree.Element, blocks: list[str]) -> None:
        line, _, rest = blocks.pop(0).partition("\n")
        if rest.strip():
            blocks.insert(0, rest)
        match = source.DIRECTIVE.fullmatch(line.strip())
        if match is None:
            raise source.SourceError(f"not understood: {line.strip()}")
        file = source.read(match["path"], self.root)
        first, last = (int(match[name]) if match[name] else None for name in ("first", "last"))
        piece = file.piece(match["name"], first, last)
        changed: set[int] = set()
        box = child(parent, "div", class_="listing highlight")
        if match["since"]:
            beside = str(PurePosixPath(file.path).with_name(f"{match['since']}.py"))
            changed = source.changed(file, match["name"], source.read(beside, self.root))
        self.head(box, file, piece, match["since"])
        self.body(box, file, piece, changed)

    def head(
        self, box: etree.Element, file: source.File, piece: source.Piece, since: str | None
    ) -> None:
        """Where the first listing of a file on a page leads, and what its reader can switch on."""
        if file.path in self.named and (since is None or since in self.named):
            return
        bar = child(box, "div", class_="listing-head")
        if file.path not in self.named:
            self.named.add(file.path)
            child(bar, "a", file.name, href=source.link(file.path, piece.first))
        if since is not None and since not in self.named:
            self.named.add(since)
            label = child(bar, "label", class_="listing-since")
            child(label, "input", type="checkbox")
            _append(label, f" changed since {since.replace('_', ' ').capitalize()}")

    def body(
        self, box: etree.Element, file: source.File, piece: source.Piece, changed: set[int]
    ) -> None:
        """The lines, with heads of functions folded."""
        registry = equations.load(self.root)
        named: list[equations.Equation] = []
        heads = {head.first: head for head in file.heads if piece.first <= head.first}
        number, start = piece.first, piece.first
        while number <= piece.last + 1:
            head = heads.get(number)
            if head or number > piece.last:
                if number > start:
                    named += self.lines(box, file, start, number - 1, changed, registry)
                if head and head.last <= piece.last:
                    fold = child(box, "details", class_="listing-fold")
                    summary = child(fold, "summary")
                    child(summary, "code", head.summary)
                    self.lines(fold, file, head.first, head.last, changed, registry)
                    number = start = head.last + 1
                    continue
            number += 1
        self.formulas.wait(box, named)

    def lines(
        self,
        box: etree.Element,
        file: source.File,
        first: int,
        last: int,
        changed: set[int],
        registry: equations.Registry,
    ) -> list[equations.Equation]:
        """Lines `first` to `last`; returns the equations that their comments name."""
        shown = [
            number
            for number in range(first, last + 1)
            if not file.marker(number) and (file.lines[number - 1].strip() or first < number < last)
        ]
        while shown and not file.lines[shown[0] - 1].strip():
            del shown[0]
        while shown and not file.lines[shown[-1] - 1].strip():
            del shown[-1]
        if not shown:
            return []
        indent = min(_indent(text) for number in shown if (text := file.lines[number - 1]).strip())
        code = _code(box)
        pending: list[equations.Equation] = []
        named: list[equations.Equation] = []
        for number in shown:
            text, labels = file.equations(number)
            tokens = file.tokens[number - 1]
            if labels:
                pending += [registry[label] for label in labels]
                if not text:
                    continue
                tokens = (("c1", text),)
            line = child(code, "span", class_="line changed" if number in changed else "line")
            if inner := _indent(text) - indent if text.strip() else 0:
                line.set("style", f"--i:{inner}ch")
            if not labels and pending:
                chips = child(line, "span", class_="chips")
                for equation in pending:
                    self.formulas.chip(chips, equation, f"eq {equation.number}")
                named, pending = named + pending, []
            href = source.link(file.path, number)
            mark = child(line, "a", str(number), class_="num", href=href, tabindex="-1")
            if (file.path, number) not in self.numbered:
                self.numbered.add((file.path, number))
                mark.set("id", f"{PurePosixPath(file.path).stem}-L{number}")
            _tokens(line, tokens, indent)
            _append(line, "\n")
        if pending:
            labels = ", ".join(each.label for each in pending)
            raise source.SourceError(f"{file.path}:{last}: no line follows the comment on {labels}")
        return named


class SourceBlocks(BlockProcessor):
    """`[[source …]]`: a whole file, in as few elements as links and colours allow."""

    def __init__(self, md: Markdown, root: str, formulas: Formulas) -> None:
        super().__init__(md.parser)
        self.root, self.formulas = Path(root), formulas

    def test(self, parent: etree.Element, block: str) -> bool:
        return _SOURCE.fullmatch(block.strip()) is not None

    def run(self, parent: etree.Element, blocks: list[str]) -> None:
        match = _SOURCE.fullmatch(blocks.pop(0).strip())
        assert match is not None
        file = source.read(match["path"], self.root)
        registry = equations.load(self.root)
        tested = {
            file.functions[each.test_name]: each
            for each in registry
            if each.test and each.test.path == file.path and each.test_name in file.functions
        }
        box = child(parent, "div", class_="listing listing-whole highlight")
        code = _code(box)
        named: list[equations.Equation] = []
        for number, (text, tokens) in enumerate(zip(file.lines, file.tokens), 1):
            anchor = f"L{number}"
            child(code, "a", str(number), class_="num", id=anchor, href=f"#{anchor}", tabindex="-1")
            labels = file.equations(number)[1]
            if labels:
                at = text.rindex("eq: ") + 4
                _append(code, text[:at])
                for index, label in enumerate(labels):
                    _append(code, ", " if index else "")
                    self.formulas.chip(code, registry[label], label)
                    named.append(registry[label])
            else:
                _tokens(code, tokens)
            if number in tested:
                _append(code, "  ")
                self.formulas.chip(code, tested[number], f"eq {tested[number].number}")
                named.append(tested[number])
            _append(code, "\n")
        self.formulas.wait(box, named)


def whole_page(path: str, on: list[tuple[str, str]]) -> str:
    """The Markdown of the page that shows a file; `on` are titles and pages that show parts."""
    name = source.name_of(path)
    parts = ", ".join(f"[{title}](/{page})" for title, page in on)
    return "\n".join(
        [
            "---",
            f"title: {name}",
            f"description: The file {path} of the repository, whole, with an anchor on every line.",
            "layout: wide",
            "hide: [navigation, toc]",
            "search: {exclude: true}",
            "---",
            "",
            f"# `{name}`",
            "",
            f"`{path}`" + (f" · parts of it are shown on {parts}" if parts else ""),
            "",
            f"[[source {path}]]",
            "",
        ]
    )


def paths(root: Path) -> list[str]:
    """The files that have a page: all of the library, and whatever an equation or a page names."""
    registry = equations.load(root)
    found = {path.relative_to(root).as_posix() for path in (root / source.LIBRARY).rglob("*.py")}
    found |= {*source.shown_on(root, list(registry.titles))}
    found |= {lines.path for each in registry for lines in each.code}
    found |= {each.test.path for each in registry if each.test}
    return sorted(found)


def whole_pages(root: Path) -> dict[str, str]:
    """The pages that show files whole, below `docs/`."""
    titles = equations.load(root).titles
    on = source.shown_on(root, list(titles))
    return {
        source.page_of(path): whole_page(path, [(titles[page], page) for page in on.get(path, [])])
        for path in paths(root)
    }
