"""The table of notation: every symbol of a display equation is in it, and none twice."""

import re
from collections import Counter

from formulas.bindings import letters
from formulas.reader import KNOWN, name_of
from site_build import ROOT
from softmax_site import equations

PAGE = (ROOT / "docs/reference/notation.md").read_text("utf8")

STRUCTURE = set(
    r"""\frac \tfrac \sum \begin \end \left \right \Bigl \Bigr \bigl \bigr \underset \text \qquad
    \quad \cdot \dots \le \ge \gt \ne \iff \in \to \longrightarrow \infty \pm \varnothing \max \min
    \sqrt \times \rvert \lvert \rVert \lVert \langle \rangle \approx
    \{ \} \, \; \: \ \\ \!""".split()
)
"""What arranges a formula, and signs that every reader knows."""

GROUPED = r"\\(?:mathit|mathbf|mathbb|mathsf|operatorname|widehat|text|begin|end)"
TOKEN = re.compile(GROUPED + r"\s*(?:\{(?:[^{}]|\{[^{}]*\})*\}|[A-Za-z])|\\[a-zA-Z]+|\\.|[A-Za-z]")


def symbols(latex: str) -> set[str]:
    """The symbols of a formula: letters, Greek letters, words in one face, operators.

    >>> sorted(symbols(r"\\mathit{dx}_i = \\tfrac{1}{M} (y_i - \\pi_i)"))
    ['M', '\\\\mathit{dx}', '\\\\pi', 'i', 'y']
    """
    found = {token.replace(" ", "") for token in TOKEN.findall(latex)}
    found = {re.sub(r"^(\\\w+?)(?<=mathsf|mathbf)(\w)$", r"\1{\2}", token) for token in found}
    return {
        token
        for token in found
        if token not in STRUCTURE and not token.startswith((r"\text", r"\begin", r"\end"))
    }


def listed() -> list[str]:
    """The symbols that the first columns define, one entry for each row that does."""
    tables = PAGE.split("## Sizes and positions")[1].split("## What other texts write")[0]
    out: list[str] = []
    for row in re.findall(r"^ *\| (.*?) \| ", tables, re.M):
        out += set().union(*(symbols(math) for math in re.findall(r"\$(.+?)\$", row)))
    return out


def test_every_symbol_of_a_display_equation_is_listed_and_every_listed_one_is_used():
    used = {symbol for each in equations.load(ROOT) for symbol in symbols(each.latex)}
    prose = "\n".join(path.read_text("utf8") for path in (ROOT / "docs/math").glob("*.md"))
    assert used <= {*listed()}
    assert not [each for each in {*listed()} - used if each not in prose]


def test_no_symbol_is_listed_twice():
    """But what a row shows another symbol on: the inner product, the tilde, the wide hat."""
    counts = Counter(listed())
    shown_on = {"x", "w", "m", r"\mathit{dx}"}
    assert {symbol for symbol, count in counts.items() if count > 1} <= shown_on


UNBOUND = KNOWN | {r"\operatorname{rank}", r"\operatorname{null}", r"\mathbb{R}", r"\mathsf{T}"}
"""Signs and words that the reader of formulas knows itself."""


def test_each_symbol_is_bound_and_each_binding_is_listed():
    found = {*listed()} - UNBOUND - {r"\Delta"}  # which stands in prose alone
    names = {name_of(symbol).removeprefix("hat_") for symbol in found}
    bound = letters() - {"infty"}
    assert names == bound, f"unbound: {names - bound}; not in the table: {bound - names}"
