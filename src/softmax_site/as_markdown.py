"""Each page as the Markdown that a person or a program reads without a browser, and `llms.txt`,
which lists them as https://llmstxt.org proposes.

A page is its source, in which code, cells, tables, numbers and docstrings stand where the site puts
them. Formulas stay LaTeX, which a reading of the built HTML would lose: hence no plugin.
"""

from __future__ import annotations

import ast
import html
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from markdown import Markdown

from softmax_playground import cells
from softmax_site import equations, rendered, source
from softmax_site.benchmarks import quoted, values

_DRAWN = re.compile(r"<(svg|script|style|template|math)\b.*?</\1>|<!--.*?-->", re.S)
_ENDS = re.compile(r"</(?:div|li|p|span|summary)>")
_TAG = re.compile(r"</?(?!https?:)[a-z][^<>]*>")
_ATTRIBUTES = re.compile(r"\s?\{(?::? [.#]|#|:? [\w-]+=\")[^{}\n]*\}")
_LINE = re.compile(
    r"^( *)(?:\[\[(code|run|rendered|equation-index)(?: (.+))?\]\]|::: (\S+))$", re.M
)
_EQUATION = re.compile(r"^/// equation \| \S+\n(.*?)^///$", re.M | re.S)
_FIGURE = re.compile(r"^///(?: figure \| \S+)?\n", re.M)


def without_tags(text: str) -> str:
    """HTML as text, its tables as those of Markdown.

    >>> without_tags("<table><tr><th>a<th>b<tr><td>1<td><b>2</b></table><p>x &lt; y</p>")
    '\\n\\n| a | b |\\n|---|---|\\n| 1 | 2 |\\n\\nx < y '
    """

    def table(found: re.Match) -> str:
        lines = []
        for row in re.split(r"<tr\b[^>]*>", found[0])[1:]:
            texts = (_TAG.sub(" ", each) for each in re.split(r"<t[hd]\b[^>]*>", row)[1:])
            line = [" ".join(each.split()).replace("|", "\\|") for each in texts]
            lines.append(f"| {' | '.join(line)} |")
            if len(lines) == 1:
                lines.append("|" + "---|" * len(line))
        return "\n\n" + "\n".join(lines) + "\n\n"

    text = re.sub(r"<table\b.*?</table>", table, _DRAWN.sub("", text), flags=re.S)
    return html.unescape(_ATTRIBUTES.sub("", _TAG.sub("", _ENDS.sub(" ", text))))


def docstring(root: Path, name: str) -> str:
    """The signature and the docstring of a function or class, as `::: name` shows them."""
    module, _, defined = name.rpartition(".")
    tree = ast.parse((root / "src" / f"{module.replace('.', '/')}.py").read_text("utf8"))
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == defined:
            given = f"({ast.unparse(node.args)})" if isinstance(node, ast.FunctionDef) else ""
            return f"### `{defined}{given}`\n\n{ast.get_docstring(node)}"
    raise KeyError(f"{name} is not defined in its module")


def page(text: str, root: Path) -> str:
    """The Markdown of a page without what only the site understands."""
    included = Markdown(
        extensions=["pymdownx.snippets"],
        extension_configs={
            "pymdownx.snippets": {"base_path": [str(root)], "dedent_subsections": True}
        },
    )
    text = "\n".join(included.preprocessors["snippet"].run(text.split("\n")))
    out, at = [], 0
    for fence in equations.FENCE.finditer(text):
        out += [_prose(text[at : fence.start()], root), fence[0]]
        at = fence.end()
    return "".join([*out, _prose(text[at:], root)]).strip() + "\n"


def _prose(text: str, root: Path) -> str:
    """What stands between fences."""

    def shown(found: re.Match) -> str:
        indent, kind, name, api = found.groups()
        if api:
            return docstring(root, api)
        if kind == "rendered":
            made = without_tags(rendered.markdown(name, root))
        elif kind == "equation-index":
            made = "\n".join(f"- ({each.number}) {each.label}" for each in equations.load(root))
        elif kind == "run":
            made = fenced("\n\n".join(cells.read(root, name.split()[0]).texts()))
        else:
            made = fenced(piece(name, root))
        return "\n".join(f"{indent}{line}".rstrip() for line in made.split("\n"))

    def number(found: re.Match) -> str:
        return f"({equations.load(root)[found[1]].number})"

    text = _FIGURE.sub("", _EQUATION.sub(r"$$\n\1$$", text))
    text = re.sub(r"\\eqref\{([^}\s]+)\}", number, text)
    names = quoted.load(root)
    text = without_tags(values.filled(text, names, bare=True, unsaid=names.unsaid))
    return re.sub(r"\s*\n\s*\n(?=\S)", "\n\n", _LINE.sub(shown, text))


def fenced(code: str) -> str:
    """Python in a fence."""
    return f"```python\n{code}\n```"


def piece(asked: str, root: Path) -> str:
    """The lines that `[[code …]]` shows."""
    file, part, _ = source.named(asked, root)
    return "\n".join(file.lines[part.first - 1 : part.last])


def files(pages: Iterable[Any], config: Any, root: Path) -> Iterator[tuple[str, str]]:
    """What the site gets: the path and the text of each page, and of the list of all."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}"]
    section = None
    for each in pages:
        path = each.file.src_uri
        yield path, page(each.markdown or "", root)
        top = each.ancestors[-1].title if each.ancestors else "Pages"
        if top != section:
            section = top
            lines += ["", f"## {section}", ""]
        about = each.meta.get("description", "")
        lines.append(f"- [{each.title}]({config.site_url or ''}{path}): {about}".rstrip(": "))
    yield "llms.txt", "\n".join(lines) + "\n"
