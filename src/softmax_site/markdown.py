r"""Python-Markdown extension: LaTeX to MathML at build, labelled equations, their index.

Syntax:

* ``$x_i$`` is inline mathematics;
* ``/// equation | label`` … ``///`` is a display equation with a label, a number and an anchor;
* ``/// equation-ref | label`` / ``///`` shows an equation again and links to its home;
* ``\eqref{label}`` links to an equation from any page;
* ``[text][package.module.name]`` links to code;
* ``[[equation-index]]`` on a line of its own becomes the index;
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
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor
from markdown.util import AtomicString
from math_core import LatexError, LatexToMathML
from pymdownx.blocks import BlocksExtension
from pymdownx.blocks.block import Block

from softmax_site import equations, modules, rendered

_INLINE = r"(?<![\\$\w])\$(?![\s$])((?:\\.|[^\\$\n]|\n(?!\n))+?)(?<![\s\\])\$(?![\d$])"
_EQREF = r"\\eqref\{([^}\s]+)\}"
_HTML = re.compile(r"^(?:<(?P<tag>details|div)\b.*?^</(?P=tag)>|<!-- [^\n]* -->)$", re.M | re.S)
_RENDERED = re.compile(r"\[\[rendered ([\w-]+)\]\]")

_converter = LatexToMathML(fancy_error=False)


class EquationError(ValueError):
    """An equation that cannot be shown."""


def to_mathml(latex: str, *, display: bool) -> str:
    """Convert LaTeX to MathML.

    >>> to_mathml("x", display=False)
    '<math><mi>x</mi></math>'
    """
    try:
        return _converter.convert_with_local_state(latex, displaystyle=display)
    except LatexError as error:
        raise EquationError(f"LaTeX that cannot be converted: {latex!r}: {error}") from error


def _child(
    parent: etree.Element, tag: str, text: str | None = None, **attributes: str
) -> etree.Element:
    element = etree.SubElement(
        parent,
        tag,
        {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()},
    )
    element.text = AtomicString(text) if text is not None else None
    return element


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
        _child(
            block,
            "div",
            mathml,
            class_="equation-body",
            tabindex="0",
            role="group",
            aria_label=name,
        )
        return _child(block, "div", class_="equation-meta")


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
        index = f"/reference/equations.md#index-{label}"
        _child(
            meta, "a", f"({equation.number})", href=f"#{equation.anchor}", class_="equation-number"
        )
        _child(meta, "a", label, href=index, class_="equation-label")
        if equation.code:
            count = len(equation.code)
            _child(
                meta,
                "a",
                f"{count} place{'s' * (count > 1)} in the code",
                href=index,
                class_="equation-code",
            )


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
        _child(meta, "a", f"({equation.number})", href=home, class_="equation-number")
        _child(meta, "a", equation.label, href=home, class_="equation-label")


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


class _Index(Preprocessor):
    def __init__(self, md: Markdown, root: str) -> None:
        super().__init__(md)
        self.root = root

    def run(self, lines: list[str]) -> list[str]:
        if equations.INDEX not in lines:
            return lines
        at = lines.index(equations.INDEX)
        return (
            lines[:at]
            + equations.index_markdown(equations.load(self.root)).split("\n")
            + lines[at + 1 :]
        )


class _Rendered(Preprocessor):
    def __init__(self, md: Markdown, root: str) -> None:
        super().__init__(md)
        self.root = root

    def run(self, lines: list[str]) -> list[str]:
        out: list[str] = []
        for line in lines:
            match = _RENDERED.fullmatch(line)
            out += self.fragment(match[1]) if match else [line]
        return out

    def fragment(self, name: str) -> list[str]:
        """The lines of a fragment, between comments that tell it from what is typed; what is HTML
        already is not parsed again."""
        text = rendered.markdown(name, self.root)
        text = f"<!-- rendered {name} -->\n\n{text}\n<!-- /rendered -->\n"
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
        super().__init__(**kwargs)

    def extendMarkdownBlocks(self, md: Markdown, block_mgr: Any) -> None:  # noqa: N802
        root = str(Path(self.getConfig("root") or ".").resolve())
        md.references = modules.Links(Path(root))
        block_mgr.register(EquationBlock, {"root": root})
        block_mgr.register(EquationRefBlock, {"root": root})
        # Above backslash escapes (180), below code spans (190).
        md.inlinePatterns.register(_Inline(_INLINE, md), "site-math", 187)
        md.inlinePatterns.register(_EqRef(_EQREF, md, root), "site-eqref", 186)
        # Above snippets (32) and fences (25), whose syntax the index uses.
        md.preprocessors.register(_Index(md, root), "site-equation-index", 40)
        md.preprocessors.register(_Doctests(md), "site-doctests", 39)
        # Below snippets (32), for it includes no more, and below what drops placeholders (30).
        md.preprocessors.register(_Rendered(md, root), "site-rendered", 28)


def makeExtension(**kwargs: object) -> Extension:  # noqa: N802
    """Entry point of Python-Markdown."""
    return SiteExtension(**kwargs)
