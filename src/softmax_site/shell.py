"""What stands around the text of a page: where it is in the site, what it loads, what its code
blocks hand to the clipboard, and what the site tells others about itself."""

from __future__ import annotations

import re
from html import escape, unescape
from typing import Any

NUMBERED = ("Math", "Kernels")
"""Sections that are read in order."""

_BLOCK = re.compile(
    r'<div class="language-(?P<language>[\w-]+) highlight">'
    r"(?P<body><pre>.*?<code>(?P<code>.*?)</code></pre>)</div>",
    re.S,
)
_BETWEEN = (
    r"(?<=\w[_/(])(?=\w)|(?<=\w::)(?=\w)|(?<=[\w)]\.)(?!py\b)(?=[^\W\d])|(?<=[a-z])(?=[A-Z][a-z])"
)
"""Where a name or a call may break: after an underscore, slash, bracket, colons or point, and
before a capital."""
_SHOWN_ONLY = ("text", "ptx", "console")
"""Languages of blocks that are looked at: drawings, output of compilers and of commands."""


def place(page: Any) -> str | None:
    """Where a page stands in the navigation; None of a page that opens a section.

    >>> from types import SimpleNamespace as Node
    >>> math = Node(title="Math", parent=None)
    >>> names = ("index", "softmax", "jacobian", "vjp")
    >>> math.children = [
    ...     Node(is_page=True, is_index=name == "index", parent=math, title=name) for name in names
    ... ]
    >>> place(math.children[2])
    'Math · 2 of 3'
    >>> place(math.children[0]) is None
    True
    """
    if page.parent is None or page.is_index:
        return None
    sections, above = [], page.parent
    while above is not None:
        sections.insert(0, above.title)
        above = above.parent
    beside = [each for each in page.parent.children if not (each.is_page and each.is_index)]
    if sections[0] in NUMBERED and all(each.is_page for each in beside):
        sections.append(f"{beside.index(page) + 1} of {len(beside)}")
    return " · ".join(sections)


def input_of(session: str) -> str:
    r"""What was typed in an interactive session, without prompts and answers.

    >>> input_of(">>> def f(x):\n...     return x\n...\n>>> f(1)\n1\n")
    'def f(x):\n    return x\n\nf(1)\n'
    """
    typed = re.findall(r"^(?:>>>|\.\.\.)(?: (.*))?$", session, re.M)
    return "".join(f"{line}\n" for line in typed)


def copyable(html: str) -> str:
    """Code blocks whose copy button hands out what can be pasted, or which have none."""

    def mark(found: re.Match) -> str:
        language, body = found["language"], found["body"]
        if language in _SHOWN_ONLY:
            return f'<div class="language-{language} highlight no-copy">{body}</div>'
        if language == "pycon":
            text = unescape(re.sub(r"<[^>]+>", "", found["code"]))
            typed = escape(input_of(text)).replace("\n", "&#10;")
            return f'<div class="language-pycon highlight" data-copy="{typed}">{body}</div>'
        return found[0]

    return _BLOCK.sub(mark, html)


def punctuated(html: str) -> str:
    """Formulas in a line of text that keep their brackets and the sign that follows beside them.

    >>> punctuated("of (<math><mi>y</mi></math>): it")
    'of <span class="whole">(<math><mi>y</mi></math>):</span> it'
    """
    formula = r"<math(?![^>]*display=.block)[^>]*>(?:(?!</math>).)*</math>"
    return re.sub(
        rf"\((?={formula}){formula}[).,:;!?]*|{formula}[).,:;!?]+",
        lambda found: f'<span class="whole">{found[0]}</span>',
        html,
        flags=re.S,
    )


def breakable(html: str) -> str:
    """Names in the cells of tables, which may break between their words and nowhere else.

    >>> breakable("<td><code>tests/test_it.py</code></td><code>tests/test_it.py</code>")
    '<td><code class="name">tests/<wbr>test_<wbr>it.py</code></td><code>tests/test_it.py</code>'
    >>> breakable('<td><a href="x">two_loops.py:5</a> <code>a + b</code></td>')
    '<td><a href="x">two_<wbr>loops.py:5</a> <code>a + b</code></td>'
    >>> breakable("<td><code>plan_of(x).kernels</code></td>")
    '<td><code class="name">plan_<wbr>of(<wbr>x).<wbr>kernels</code></td>'
    """
    def name(found: re.Match) -> str:
        tag = found["tag"].replace("<code>", '<code class="name">')
        return tag + re.sub(_BETWEEN, "<wbr>", found["name"]) + found["end"]

    def cell(found: re.Match) -> str:
        return re.sub(
            r"(?P<tag><code>|<a\b[^>]*>)(?P<name>[^<>&]{8,})(?P<end></(?:code|a)>)", name, found[0]
        )

    return re.sub(r"<td\b.*?</td>", cell, html, flags=re.S)


def installable(text: str, repository: str | None) -> str:
    """The text of a page with the command that installs from the published repository, if there is
    one; otherwise with that for a clone, as written.

    >>> installable("pip install .  # in a clone of the repository", "https://example.org/it")
    'pip install git+https://example.org/it'
    """
    clone = "pip install .  # in a clone of the repository"
    return text.replace(clone, f"pip install git+{repository}") if repository else text


def heading(page: Any) -> str:
    """A page's title as the page writes it: its first heading, or its name in the navigation."""
    first = next(iter(page.toc), None)
    return first.title if first and first.level == 1 else page.title


def needed(loads: list[dict], content: str) -> list[str]:
    """The style sheets and scripts that a page with this content needs.

    >>> loads = [{"for": 'class="moving', "load": ["moving.js"]}]
    >>> needed(loads, '<div class="moving">'), needed(loads, "<p>")
    (['moving.js'], [])
    """
    found = [path for each in loads if each["for"] in content for path in each["load"]]
    return list(dict.fromkeys(found))


def without_root(html: str) -> str:
    """A page that is served for any address below the site: its links become relative to the root,
    which a script in it finds.

    >>> without_root('<a href="/math/"><img src="/x.svg"><a href="#top">')
    '<a href="math/"><img src="x.svg"><a href="#top">'
    >>> without_root('<a href="/">')
    '<a href="./">'
    """
    html = re.sub(r'(href|src)="/"', r'\1="./"', html)
    return re.sub(r'(href|src)="/(?!/)', r'\1="', html)
