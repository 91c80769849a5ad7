"""Where a line of a page may break, and where it may not."""

from __future__ import annotations

import re

_BETWEEN = (
    r"(?<=\w[_/(])(?=\w)|(?<=\w::)(?=\w)|(?<=[\w)]\.)(?!py\b)(?=[^\W\d])|(?<=[a-z])(?=[A-Z][a-z])"
)
"""Where a name or a call may break: after an underscore, slash, bracket, colons or point, and
before a capital."""

_APART = (
    r"<table\b.*?(?:</table>|$)|<[^>]*>|(?<=×) (?=\d|<data)"
    r"|(?:(?<=\d)|(?<=\d</b>)|(?<=\d</data>)) (?=[×%]|(?:[KMGT]i?B|µs|ms)\b)"
)
"""Tables, tags, and the spaces between a number and its unit."""


def breakable(html: str) -> str:
    """Names in the cells of tables, which may break between their words and nowhere else.

    >>> breakable("<td><code>tests/test_it.py</code></td><code>tests/test_it.py</code>")
    '<td><code class="name">tests/<wbr>test_<wbr>it.py</code></td><code>tests/test_it.py</code>'
    >>> breakable("<td><code>plan_of(x).kernels</code></td>")
    '<td><code class="name">plan_<wbr>of(<wbr>x).<wbr>kernels</code></td>'
    """

    def name(found: re.Match) -> str:
        tag = found["tag"].replace("<code>", '<code class="name">')
        return tag + re.sub(_BETWEEN, "<wbr>", found["name"]) + found["end"]

    names = r"(?P<tag><code>|<a\b[^>]*>)(?P<name>[^<>&]{8,})(?P<end></(?:code|a)>)"
    return re.sub(r"<td\b.*?</td>", lambda cell: re.sub(names, name, cell[0]), html, flags=re.S)


def together(html: str) -> str:
    """A number on one line with its unit or ×, but in tables, whose columns may be narrow.

    >>> together("<p title='2 × 3'><b>1.30</b> × torch, 2 % of 8 × 512<table><td>8 × 512")
    "<p title='2 × 3'><b>1.30</b>\\xa0× torch, 2\\xa0% of 8\\xa0×\\xa0512<table><td>8 × 512"
    """
    return re.sub(_APART, lambda found: "\xa0" if found[0] == " " else found[0], html, flags=re.S)
