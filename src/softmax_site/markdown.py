r"""Python-Markdown extension: LaTeX to MathML at build, labelled equations, their index.

Syntax:

* ``$x_i$`` is inline mathematics;
* ``/// equation | label`` … ``///`` is a display equation with a label, a number and an anchor;
* ``/// equation-ref | label`` / ``///`` shows an equation again and links to its home;
* ``\eqref{label}`` links to an equation from any page;
* ``[text][package.module.name]`` links to code;
* ``[[equation-index]]`` on a line of its own becomes the index;
* ``[[code …]]`` and ``[[source …]]`` show files of the repository, as `listing` says;
* ``[[run name]]`` on a line of its own becomes a cell that runs, as `cells` says;
* ``[[rendered name]]`` on a line of its own becomes what `rendered` has under that name;
* a doctest outside a fence, as in a docstring, is shown as a session.

LaTeX that cannot be converted and labels that do not exist raise, so the build stops.
The output is MathML: the page needs no script and asks nothing of the network.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as etree
from pathlib import Path
from typing import Any

from markdown import Extension, Markdown
from markdown.blockprocessors import BlockProcessor
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor
from markdown.util import AtomicString
from math_core import LatexError, LatexToMathML
from pymdownx.blocks import BlocksExtension
from pymdownx.blocks.block import Block

from softmax_site import cells, equations, modules, rendered, source
from softmax_site.listing import CodeBlocks, Formulas, SourceBlocks, child

_INLINE = r"(?<![\\$\w])\$(?![\s$])((?:\\.|[^\\$\n]|\n(?!\n))+?)(?<![\s\\])\$(?![\d$])"
_EQREF = r"\\eqref\{([^}\s]+)\}"
_HTML = re.compile(r"^(?:<(?P<tag>details|div)\b.*?^</(?P=tag)>|<!-- [^\n]* -->)$", re.M | re.S)
_RENDERED = re.compile(r"([ ]*)\[\[rendered ([\w-]+)\]\]")

_SCRIPTED = re.compile(r"<(msub|msup|msubsup)>(<mo minsize=[^>]*>[^<]*</mo>)")
"""A sized bracket under a script.  Chromium gives it its size only in a row of its own."""

_converter = LatexToMathML(fancy_error=False)


class EquationError(ValueError):
    """An equation that cannot be shown."""


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


class _Shown(Block):
    """What the two kinds of display equation share."""

    ARGUMENT = True

    def on_create(self, parent: etree.Element) -> etree.Element:
        return etree.SubElement(parent, "div", {"class": "equation"})

    def on_markdown(self) -> str:
        return "raw"

    @property
    def registry(self) -> equations.Registry:
        return equations.load(self.config["root"])

    def show(self, block: etree.Element, equation: equations.Equation) -> etree.Element:
        mathml = self.md.htmlStash.store(to_mathml(equation.latex, display=True))
        block.text = None
        name = f"Equation {equation.number}, {equation.label.replace('-', ' ')}"
        child(
            block,
            "div",
            mathml,
            class_="equation-body",
            tabindex="0",
            role="group",
            aria_label=name,
        )
        return child(block, "div", class_="equation-meta")


def code_links(parent: etree.Element, equation: equations.Equation) -> None:
    """Links to the lines that compute an equation, by file."""
    last = None
    for lines in equation.code:
        if last is not None:
            parent[-1].tail = AtomicString(", ")
        name = lines.path.rpartition("/")[2] if lines.path != last else ""
        text = f"{name}:{lines.first}"
        child(parent, "a", text, href=source.link(lines.path, lines.first))
        last = lines.path


class EquationBlock(_Shown):
    """`/// equation | label`: the home of an equation."""

    NAME = "equation"

    def on_end(self, block: etree.Element) -> None:
        label, latex = self.argument, (block.text or "").strip()
        equation = self.registry[label]
        if equation.latex != latex:
            raise EquationError(
                f"{equation.page}: equation {label} is not written as `/// equation | label`, "
                "LaTeX, `///`"
            )
        block.set("id", equation.anchor)
        meta = self.show(block, equation)
        child(
            meta, "a", f"({equation.number})", href=f"#{equation.anchor}", class_="equation-number"
        )
        index = f"/reference/equations.md#index-{label}"
        child(meta, "a", label, href=index, class_="equation-label")
        if equation.test:
            child(meta, "a", "test", href=source.link(equation.test.path, equation.test.first))
        if equation.code:
            fold = child(meta, "details", class_="equation-code")
            child(fold, "summary", "code")
            code_links(child(fold, "span"), equation)


class EquationRefBlock(_Shown):
    """`/// equation-ref | label`: an equation shown again, linked to its home."""

    NAME = "equation-ref"

    def on_end(self, block: etree.Element) -> None:
        equation = self.registry[self.argument]
        if (block.text or "").strip():
            raise EquationError(
                f"equation-ref | {equation.label} must be empty: the LaTeX stands at its home"
            )
        meta = self.show(block, equation)
        home = f"/{equation.page}#{equation.anchor}"
        child(meta, "a", f"({equation.number})", href=home, class_="equation-number")
        child(meta, "a", equation.label, href=home, class_="equation-label")


class _Inline(InlineProcessor):
    def handleMatch(self, match: re.Match, data: str) -> tuple[str, int, int]:  # noqa: N802 (its name upstream)
        return (
            self.md.htmlStash.store(to_mathml(match[1], display=False)),
            match.start(0),
            match.end(0),
        )


class _EqRef(InlineProcessor):
    def __init__(self, pattern: str, md: Markdown, root: str) -> None:
        super().__init__(pattern, md)
        self.root = root

    def handleMatch(self, match: re.Match, data: str) -> tuple[etree.Element, int, int]:  # noqa: N802
        equation = equations.load(self.root)[match[1]]
        link = etree.Element(
            "a",
            {
                "href": f"/{equation.page}#{equation.anchor}",
                "class": "eqref",
                "title": equation.label,
            },
        )
        link.text = AtomicString(f"({equation.number})")
        return link, match.start(0), match.end(0)


class _Cells(BlockProcessor):
    """`[[run …]]`: a cell."""

    def __init__(self, md: Markdown, root: str) -> None:
        super().__init__(md.parser)
        self.stash, self.root = md.htmlStash, Path(root)

    def test(self, parent: etree.Element, block: str) -> bool:
        return cells.DIRECTIVE.fullmatch(block.strip()) is not None

    def run(self, parent: etree.Element, blocks: list[str]) -> None:
        match = cells.DIRECTIVE.fullmatch(blocks.pop(0).strip())
        assert match is not None
        child(parent, "p", self.stash.store(cells.html(self.root, match["name"])))


class _Index(BlockProcessor):
    """The index of equations: a table for each page, from name to home, code and test."""

    def __init__(self, md: Markdown, root: str, formulas: Formulas) -> None:
        super().__init__(md.parser)
        self.root, self.formulas = root, formulas

    def test(self, parent: etree.Element, block: str) -> bool:
        return block.strip() == equations.INDEX

    def run(self, parent: etree.Element, blocks: list[str]) -> None:
        blocks.pop(0)
        registry = equations.load(self.root)
        for page, named in registry.pages().items():
            heading = child(parent, "h2")
            child(heading, "a", registry.titles[page].replace("$", ""), href=f"/{page}")
            table = child(parent, "table", data_search_exclude="")
            row = child(child(table, "thead"), "tr")
            for title in ("no.", "equation", "computed at", "test"):
                child(row, "th", title, scope="col")
            body = child(table, "tbody")
            for equation in named:
                row = child(body, "tr", id=f"index-{equation.label}")
                child(row, "td", equation.number)
                self.formulas.chip(child(row, "td"), equation, equation.label)
                code_links(child(row, "td"), equation)
                test = child(row, "td")
                if equation.test:
                    href = source.link(equation.test.path, equation.test.first)
                    line = str(equation.test.first)
                    child(test, "a", line, href=href, aria_label=f"line {line} of the tests")
        self.formulas.wait(parent, registry)


class _Rendered(Preprocessor):
    def __init__(self, md: Markdown, root: str) -> None:
        super().__init__(md)
        self.root = root

    def run(self, lines: list[str]) -> list[str]:
        out: list[str] = []
        for line in lines:
            match = _RENDERED.fullmatch(line)
            shown = self.fragment(match[2]) if match else [line]
            out += [f"{match[1]}{each}" for each in shown] if match else shown
        return out

    def fragment(self, name: str) -> list[str]:
        """The lines of a fragment, between comments that tell it from what is typed; what is HTML
        already is not parsed again."""
        text = rendered.markdown(name, self.root)
        first, last = (
            self.md.htmlStash.store(f"<!-- {mark} -->")
            for mark in (f"rendered {name}", "/rendered")
        )
        text = f"{first}\n\n{text}\n\n{last}\n"
        return _HTML.sub(lambda match: self.md.htmlStash.store(match[0]), text).split("\n")


class _Doctests(Preprocessor):
    """Show the doctests of a docstring, which stand outside any fence, as the sessions they are."""

    def run(self, lines: list[str]) -> list[str]:
        out: list[str] = []
        fence = session = None
        for line in lines:
            mark = re.match(r"\s*(`{3,}|~{3,})", line)
            if session is not None and not line.strip():
                out.append(f"{session}```")
                session = None
            elif session is None and mark:
                fence = None if fence and line.strip().startswith(fence) else fence or mark[1]
            elif session is None and fence is None and line.lstrip().startswith(">>> "):
                session = line[: len(line) - len(line.lstrip())]
                out += ["", f"{session}```pycon"]
            out.append(line)
        return out if session is None else [*out, f"{session}```"]


class SiteExtension(BlocksExtension):
    """Register everything above; `root` is the root of the repository."""

    def __init__(self, **kwargs: object) -> None:
        self.config = {"root": [".", "root of the repository"]}
        self.kept: list[Any] = []
        super().__init__(**kwargs)

    def reset(self) -> None:
        """Forget what the page before has shown."""
        for each in self.kept:
            each.reset()

    def extendMarkdownBlocks(self, md: Markdown, block_mgr: Any) -> None:  # noqa: N802
        root = str(Path(self.getConfig("root") or ".").resolve())
        md.references = modules.Links(Path(root))  # pyright: ignore[reportAttributeAccessIssue]
        block_mgr.register(EquationBlock, {"root": root})
        block_mgr.register(EquationRefBlock, {"root": root})
        # Above backslash escapes (180), below code spans (190).
        md.inlinePatterns.register(_Inline(_INLINE, md), "site-math", 187)
        md.inlinePatterns.register(_EqRef(_EQREF, md, root), "site-eqref", 186)
        formulas = Formulas(md, to_mathml)
        pieces = CodeBlocks(md, root, formulas)
        self.kept = [formulas, pieces]
        md.registerExtension(self)
        md.parser.blockprocessors.register(_Index(md, root, formulas), "site-index", 110)
        md.parser.blockprocessors.register(pieces, "site-code", 111)
        whole = SourceBlocks(md, root, formulas)
        md.parser.blockprocessors.register(whole, "site-source", 112)
        md.parser.blockprocessors.register(_Cells(md, root), "site-cells", 113)
        # Above snippets (32) and fences (25).
        md.preprocessors.register(_Doctests(md), "site-doctests", 39)
        # Below snippets (32), for it includes no more, and below what drops placeholders (30).
        md.preprocessors.register(_Rendered(md, root), "site-rendered", 28)


def makeExtension(**kwargs: object) -> Extension:  # noqa: N802
    """Entry point of Python-Markdown."""
    return SiteExtension(**kwargs)
