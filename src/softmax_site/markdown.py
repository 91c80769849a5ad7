r"""Python-Markdown extension: LaTeX to MathML at build, labelled equations, their index.

Syntax:

* ``$x_i$`` is inline mathematics;
* ``/// equation | label`` … ``///`` is a display equation with a label, a number and an anchor, and
  stands once on the site;
* ``/// figure | name`` … ``///`` is a drawing, or a figure that a reader moves, with its caption;
* ``\eqref{label}`` links to an equation from any page;
* ``[text][package.module.name]`` links to code;
* ``[[equation-index]]`` on a line of its own becomes the index;
* ``[[code …]]`` shows a part of a file of the repository, as `listing` says;
* ``[[run name]]`` on a line of its own becomes a cell that runs, as `cells` says;
* ``[[rendered name]]`` on a line of its own becomes what `rendered` has under that name;
* ``{{ name }}`` becomes a number of the measurements, and ``[[holds a > b]]`` stops the build where
  it no longer does, as `benchmarks.values` says;
* a doctest outside a fence, as in a docstring, is shown as a session;
* where the repository is published, pages say how to install it from there, and `<!-- Colab -->`
  becomes a link to the notebook of `on_your_gpu`, if Colab can open it;
* names in tables may break between their words, and a number stays beside its unit (`breaks`).

LaTeX that cannot be converted and labels that do not exist raise, so the build stops.
The output is MathML: the page needs no script and asks nothing of the network.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as etree
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from markdown import Extension, Markdown
from markdown.inlinepatterns import InlineProcessor
from markdown.postprocessors import Postprocessor
from markdown.preprocessors import Preprocessor
from pymdownx.blocks import BlocksExtension
from pymdownx.blocks.block import Block

from softmax_playground import cells
from softmax_site import breaks, equations, modules, on_your_gpu, rendered
from softmax_site.benchmarks import quoted, values
from softmax_site.benchmarks.data import measurements, of_suite
from softmax_site.equations import EquationError, to_mathml
from softmax_site.figures import drawings, moving
from softmax_site.listing import Listings, chip, formulas
from softmax_site.templates import filled

_INLINE = (
    r"(\((?=\$))?(?<![\\$\w])\$(?![\s$])((?:\\.|[^\\$\n]|\n(?!\n))+?)(?<![\s\\])\$(?![\d$])"
    r"([).,:;!?]+)?"
)
"""A formula with a bracket before it and the signs after it, which stay in its line."""
_EQREF = r"\\eqref\{([^}\s]+)\}"
_HTML = re.compile(r"^(?:<(?P<tag>details|div)\b.*?^</(?P=tag)>|<!-- [^\n]* -->)$", re.M | re.S)
_FENCE = re.compile(r"\s*(`{3,}|~{3,})")
_DIRECTIVE = re.compile(r"([ ]*)\[\[(code|run|rendered|equation-index)(?: (.+))?\]\]")


class EquationBlock(Block):
    """`/// equation | label`: an equation, at the one place where it is displayed."""

    NAME = "equation"
    ARGUMENT = True

    def on_create(self, parent: etree.Element) -> etree.Element:
        return etree.SubElement(parent, "div", {"class": "equation"})

    def on_markdown(self) -> str:
        return "raw"

    def on_end(self, block: etree.Element) -> None:
        equation = equations.load(self.config["root"])[self.argument]
        if equation.latex != (block.text or "").strip():
            raise EquationError(
                f"{equation.page}: equation {equation.label} is not written as "
                "`/// equation | label`, LaTeX, `///`"
            )
        block.set("id", equation.anchor)
        html = filled("equation", equation=equation)
        block.text = self.md.htmlStash.store(html)


class FigureBlock(Block):
    """`/// figure | name`: a picture with its caption."""

    NAME = "figure"
    ARGUMENT = True

    def on_create(self, parent: etree.Element) -> etree.Element:
        root, data = Path(self.config["root"]), ""
        if self.argument in moving.FIGURES:
            around, picture, data = moving.figure(self.argument, root)
        else:
            rows = of_suite(measurements(root), "forward")
            picture = drawings.drawing(self.argument, rows[0]["environment"] if rows else None)
            around, picture = {"class": "drawing"}, f'<div class="drawing-parts">{picture}</div>'
        box = etree.SubElement(parent, "div", {**around, "data-search-exclude": ""})
        figure = etree.SubElement(box, "figure")
        figure.text, figure.tail = map(self.md.htmlStash.store, (picture, data))
        return etree.SubElement(figure, "figcaption")

    def on_end(self, block: etree.Element) -> None:
        (words,) = block
        block.text, block[:] = words.text, list(words)


class _Inline(InlineProcessor):
    # Its name upstream.
    def handleMatch(self, match: re.Match, data: str) -> tuple[str, int, int]:  # noqa: N802
        html = to_mathml(match[2], display=False)
        if match[1] or match[3]:
            html = f'<span class="whole">{match[1] or ""}{html}{match[3] or ""}</span>'
        return self.md.htmlStash.store(html), match.start(0), match.end(0)


class _EqRef(InlineProcessor):
    def __init__(self, pattern: str, md: Markdown, root: str) -> None:
        super().__init__(pattern, md)
        self.root = root

    def handleMatch(self, match: re.Match, data: str) -> tuple[str, int, int]:  # noqa: N802
        equation = equations.load(self.root)[match[1]]
        html = f'<a class="eqref" href="{equation.address}" title="{equation.label}">'
        html += f"({equation.number})</a>"
        return self.md.htmlStash.store(html), match.start(0), match.end(0)


def _fences(lines: list[str]) -> Iterator[tuple[str, bool]]:
    """Lines, and whether each lies in a fence."""
    fence = None
    for line in lines:
        if mark := _FENCE.match(line):
            fence = None if fence and line.strip().startswith(fence) else fence or mark[1]
        yield line, fence is not None


class _Directives(Preprocessor):
    """Lines in two brackets, and numbers by name in all others."""

    def __init__(self, md: Markdown, root: str) -> None:
        super().__init__(md)
        self.root, self.store = root, md.htmlStash.store
        self.listings = Listings(root)
        self.makes = {
            "code": lambda name: [self.store(self.listings.html(name)), ""],
            "run": self.cell,
            "rendered": self.fragment,
            "equation-index": lambda name: self.index(),
        }

    def run(self, lines: list[str]) -> list[str]:
        out: list[str] = []
        names = None
        for line, fenced in _fences(lines):
            match = None if fenced else _DIRECTIVE.fullmatch(line)
            if match:
                made = self.makes[match[2]](match[3])
                out += [f"{match[1]}{each}".rstrip() for each in made]
            elif not fenced and ("{{ " in line or "[[holds " in line):
                names = names or quoted.load(self.root)
                out.append(values.filled(line, names, unsaid=names.unsaid))
            else:
                out.append(line)
        return out

    def cell(self, name: str) -> list[str]:
        """A cell; its own tag stands as HTML, in which MkDocs finds the anchor."""
        tag, inside = cells.html(Path(self.root), *name.split()).split(">", 1)
        inside, _, end = inside.rpartition("</")
        return [f"{tag}>{self.store(inside)}</{end}", ""]

    def fragment(self, name: str) -> list[str]:
        """The lines of a fragment, between comments that tell it from what is typed; what is HTML
        already is not parsed again."""
        text = rendered.markdown(name, self.root)
        first, last = (self.store(f"<!-- {mark} -->") for mark in (f"rendered {name}", "/rendered"))
        text = f"{first}\n\n{text}\n\n{last}\n"
        return _HTML.sub(lambda match: self.store(match[0]), text).split("\n")

    def index(self) -> list[str]:
        """The index of equations: a table for each page, from name to home, code and test."""
        registry, out = equations.load(self.root), []
        for page, found in groupby(registry, key=lambda each: each.page):
            named = list(found)
            out += [f"## [{registry.titles[page].replace('$', '')}](/{page})", ""]
            # As HTML, in which MkDocs finds the anchors.
            out += [filled("equations", named=named, chip=chip), ""]
            out += [self.store(f"<div>{formulas(named, set())}</div>"), ""]
        return out


class _Doctests(Preprocessor):
    """Show the doctests of a docstring, which stand outside any fence, as the sessions they are."""

    def run(self, lines: list[str]) -> list[str]:
        out: list[str] = []
        session = None
        for line, fenced in _fences(lines):
            if session is not None and not line.strip():
                out.append(f"{session}```")
                session = None
            elif session is None and not fenced and line.lstrip().startswith(">>> "):
                session = line[: len(line) - len(line.lstrip())]
                out += ["", f"{session}```pycon"]
            out.append(line)
        return out if session is None else [*out, f"{session}```"]


class _Published(Preprocessor):
    """What a page says of where the repository is published."""

    def __init__(self, md: Markdown, root: str, address: str) -> None:
        super().__init__(md)
        self.said = {"<!-- Colab -->": ""}
        if address:
            clone = "pip install .  # in a clone of the repository"
            self.said[clone] = f"pip install git+{address}"
        if notebook := on_your_gpu.colab(Path(root), address):
            self.said["<!-- Colab -->"] = f"[Open it in Colab]({notebook}), or"

    def run(self, lines: list[str]) -> list[str]:
        for old, new in self.said.items():
            lines = [line.replace(old, new) for line in lines]
        return lines


class _Breaks(Postprocessor):
    def run(self, text: str) -> str:
        return breaks.together(breaks.breakable(text))


class SiteExtension(BlocksExtension):
    """Register everything above; `root` is the root of the repository, and `repository` where it
    is published, if anywhere."""

    def __init__(self, **kwargs: object) -> None:
        self.config = {
            "root": [".", "root of the repository"],
            "repository": ["", "address of the repository"],
        }
        super().__init__(**kwargs)

    def reset(self) -> None:
        """Forget what the page before has shown."""
        self.directives.listings = Listings(self.directives.root)

    def extendMarkdownBlocks(self, md: Markdown, block_mgr: Any) -> None:  # noqa: N802
        root = str(Path(self.getConfig("root") or ".").resolve())
        md.references = modules.Links(Path(root))  # pyright: ignore[reportAttributeAccessIssue]
        block_mgr.register(EquationBlock, {"root": root})
        block_mgr.register(FigureBlock, {"root": root})
        # Above backslash escapes (180), below code spans (190).
        md.inlinePatterns.register(_Inline(_INLINE, md), "site-math", 187)
        md.inlinePatterns.register(_EqRef(_EQREF, md, root), "site-eqref", 186)
        self.directives = _Directives(md, root)
        md.registerExtension(self)
        md.preprocessors.register(
            _Published(md, root, self.getConfig("repository")), "site-published", 40
        )
        # Below what puts raw HTML back (30).
        md.postprocessors.register(_Breaks(md), "site-breaks", 5)
        # Above snippets (32) and fences (25).
        md.preprocessors.register(_Doctests(md), "site-doctests", 39)
        # Below snippets (32), for it includes no more, and below what drops placeholders (30).
        md.preprocessors.register(self.directives, "site-directives", 28)


def makeExtension(**kwargs: object) -> Extension:  # noqa: N802
    """Entry point of Python-Markdown."""
    return SiteExtension(**kwargs)
