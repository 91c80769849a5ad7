r"""Reads the LaTeX of the display equations: text becomes statements, and their sides trees.

The subset is what the pages use, and what a reader could take in two ways is an error. Rows of an
`aligned` are statements of their own, unless one begins with a relation or an operator; within a
row a comma and `\qquad` separate statements. A tree is a tuple: what it is, then its parts.
"""

import re
from typing import NamedTuple

TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|\d+(?:\.\d+)?|&&|\S")
SKIPPED = set(r"\, \; \! \: \Bigl \Bigr \bigl \bigr & \quad".split())
RELATIONS = {"=": "=", r"\le": "≤", r"\ge": "≥", r"\approx": "≈", r"\in": "∈", r"\ne": "≠"}
GOES_ON = {*RELATIONS, "+", "-", r"\cdot", r"\odot", r"\oslash"}
FACES = {r"\mathit": "", r"\mathbf": "bold_", r"\operatorname": "", r"\mathbb": "bb_"}
HATS = {r"\hat": "hat_", r"\bar": "bar_", r"\tilde": "tilde_", r"\widehat": "hat_"}
SYMBOL = re.compile(
    r"\\(?:alpha|beta|gamma|delta|varepsilon|zeta|eta|kappa|lambda|mu|nu|xi|pi|rho|sigma|tau|"
    r"varphi|chi|psi|Omega|Pi|Delta|ell|infty|varnothing)"
)
FUNCTIONS = {r"\log": "log", r"\exp": "exp", r"\tanh": "tanh", r"\sqrt": "sqrt"}
BIG = {r"\sum": "sum", r"\max": "max", r"\min": "min", r"\bigoplus": "oplus", r"\biguplus": "uplus"}
PRODUCTS = {r"\cdot": "dot", r"\odot": "odot", r"\oslash": "oslash", "/": "div"}
SUMS = {"+": "add", "-": "sub", r"\oplus": "oplus2", r"\uplus": "uplus2", r"\pm": "pm"}
PAIRED = {"(": ")", r"\lvert": r"\rvert", r"\lVert": r"\rVert", r"\langle": r"\rangle"}
ENDS = {
    None,
    ")",
    "}",
    "&",
    ",",
    ";",
    r"\\",
    r"\end",
    r"\rvert",
    r"\rVert",
    r"\rangle",
    r"\}",
    ")at",
}
ENDS |= {*RELATIONS, r"\iff", r"\text", "&&", ":"}


SIGNS = {*BIG, *FUNCTIONS, *HATS, *PAIRED, *PRODUCTS, *SUMS, *RELATIONS, r"\partial"}


class FormulaError(ValueError):
    """LaTeX that cannot be read, or that says nothing that can be evaluated."""


class Statement(NamedTuple):
    """Sides and the relations between them; `\\iff` stands between whole chains."""

    chains: list[tuple[list, list[str]]]
    condition: tuple | None = None
    shape: tuple | None = None


def tokens_of(latex: str) -> list[str]:
    """Tokens without what only spaces or sizes; `;` ends a statement.

    >>> tokens_of(r"m_0 = -\\infty, \\qquad d_0 = 0")
    ['m', '_', '0', '=', '-', '\\\\infty', ';', 'd', '_', '0', '=', '0']
    """
    latex = latex.replace(r"\left.", " at( ").replace(r"\right\rvert", " )at ")
    latex = re.sub(r"\\tfrac(\d)(\d)", r"\\frac{\1}{\2}", latex)
    latex = re.sub(r"\\(begin|end)\s*\{aligned\}", "", latex)
    found = re.findall(r"at\(|\)at|" + TOKEN.pattern, latex)
    out: list[str] = []
    depth = 0
    for at, token in enumerate(found):
        depth += (token == r"\begin") - (token == r"\end")
        rest = [each for each in found[at + 1 :] if each not in SKIPPED and each != r"\qquad"]
        if token == r"\qquad":
            if out and out[-1] == ",":
                out[-1] = ";"
            elif out and rest[:1] != [r"\text"] and found[at - 1] not in (r"\\", "&"):
                raise FormulaError(r"\qquad without a comma neither separates nor goes on")
        elif token == r"\\" and not depth:
            if rest and rest[0] not in GOES_ON:
                out.append(";")
        elif token == "&" and depth:
            out.append(token)
        elif token not in SKIPPED:
            out.append(token)
    return out


class Reader:
    """A recursive descent over the tokens of one equation; `functions` are names that a bracket
    after them applies, where other letters multiply."""

    def __init__(self, latex: str, functions: frozenset[str]):
        self.tokens, self.at, self.functions = tokens_of(latex), 0, functions

    def peek(self, ahead: int = 0) -> str | None:
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else None

    def next(self, *wanted: str) -> str:
        token = self.peek()
        if token is None or (wanted and token not in wanted):
            raise FormulaError(f"{token!r} stands where {' or '.join(wanted) or 'more'} should")
        self.at += 1
        return token

    def group(self) -> list[str]:
        """The tokens of a braced group, or one token."""
        if self.peek() != "{":
            return [self.next()]
        begin, depth = self.at + 1, 0
        while True:
            token = self.next()
            depth += (token == "{") - (token == "}")
            if not depth:
                return self.tokens[begin : self.at - 1]

    def inside(self, tokens: list[str]) -> "Reader":
        reader = Reader("", self.functions)
        reader.tokens = tokens
        return reader

    def whole(self, tokens: list[str]) -> tuple:
        """The expression that is all of some tokens."""
        reader = self.inside(tokens)
        tree = reader.expression()
        if reader.peek() is not None:
            raise FormulaError(f"{reader.peek()!r} is left over")
        return tree

    # --- statements

    def statements(self) -> list[Statement]:
        found = [self.statement()]
        while self.peek() is not None:
            self.next(";")
            found.append(self.statement())
        return found

    def statement(self) -> Statement:
        chains, condition, shape = [self.chain()], None, None
        while self.peek() == r"\iff":
            self.next()
            chains.append(self.chain())
        if self.peek() == r"\text":
            self.words("for")
            condition = self.condition()
        if self.peek() == "&&":
            self.next()
            shape = self.shape()
        return Statement(chains, condition, shape)

    def words(self, *allowed: str) -> str:
        self.next(r"\text")
        words = "".join(self.group())
        if words not in allowed:
            raise FormulaError(f"{words!r} is none of {allowed}")
        return words

    def chain(self) -> tuple[list, list[str]]:
        sides, relations = [self.expression()], []
        while self.peek() in RELATIONS:
            relations.append(RELATIONS[self.next()])
            sides.append(self.set() if relations[-1] == "∈" else self.expression())
        if not relations:
            raise FormulaError(f"a statement without a relation, before {self.peek()!r}")
        return sides, relations

    def condition(self) -> tuple:
        """One relation between two sides."""
        sides, relations = self.chain()
        if len(relations) != 1:
            raise FormulaError("a condition has one relation")
        return relations[0], *sides

    def set(self) -> tuple:
        tree = self.factor()
        if tree == ("name", "bb_R"):
            return ("reals",)
        if tree[:2] == ("pow", ("name", "bb_R")):
            return "matrices", *tree[2][1:]
        return tree

    def shape(self) -> tuple:
        sizes = [self.factor()]
        self.next(r"\times")
        return *sizes, self.factor()

    # --- expressions

    def expression(self) -> tuple:
        if self.peek() in ("-", "+", r"\pm"):
            sign = self.next()
            tree = self.product()
            tree = tree if sign == "+" else ("neg" if sign == "-" else "pm", tree)
        else:
            tree = self.product()
        while self.peek() in SUMS:
            tree = SUMS[self.next()], tree, self.product()
        if self.peek() == r"\times":
            self.next()
            return "shape", tree, self.factor()
        return tree

    def product(self) -> tuple:
        tree = self.factor()
        while self.peek() not in ENDS and self.peek() not in SUMS and self.peek() != r"\times":
            if self.peek() in PRODUCTS:
                tree = PRODUCTS[self.next()], tree, self.factor()
            else:
                tree = "mul", tree, self.factor()
        return tree

    def factor(self) -> tuple:
        """An atom with what stands below and above it."""
        tree = self.atom()
        while self.peek() in ("_", "^"):
            if self.next() == "_":
                tree = self.below(tree, self.group())
            else:
                tree = self.above(tree, self.group())
        return tree

    def below(self, tree: tuple, tokens: list[str]) -> tuple:
        key = "".join(t.strip("\\") for t in tokens if t not in ("{", "}", r"\text"))
        letters = [t for t in tokens if t not in ("{", "}")]
        if tokens[0] == r"\text":
            return "sub", tree, key, ()
        if len(letters) > 1 and all(re.fullmatch("[a-z]", t) for t in letters):
            return "sub", tree, key, tuple(("name", t) for t in letters)
        reader = self.inside(tokens)
        indices = [reader.expression()]
        while reader.peek() == ",":
            reader.next()
            indices.append(reader.expression())
        if reader.peek() is not None:
            raise FormulaError(f"{reader.peek()!r} is left over in a subscript")
        return "sub", tree, key, tuple(indices)

    def above(self, tree: tuple, tokens: list[str]) -> tuple:
        if tokens[0] == r"\mathsf":
            if [t for t in tokens[1:] if t not in "{}"] != ["T"]:
                raise FormulaError("only T stands above in that face")
            return "T", tree
        return ("exp" if tree == ("name", "e") else "pow"), tree, self.whole(tokens)

    def name(self, token: str) -> str | None:
        """The name that begins with a token, which has been taken."""
        if token in HATS:
            tokens = self.group()
            inner = self.inside(tokens)
            return HATS[token] + (inner.name(inner.next()) or "")
        if token in FACES:
            return FACES[token] + "".join(self.group())
        if re.fullmatch("[A-Za-z]", token) or SYMBOL.fullmatch(token):
            return token.strip("\\")
        return None

    def atom(self) -> tuple:
        token = self.next()
        if re.fullmatch(r"\d+(\.\d+)?", token):
            return "number", token
        if token == "{":
            self.at -= 1
            return self.whole(self.group())
        if token in PAIRED:
            return self.bracket(token)
        if token == r"\{":
            return self.span()
        if token in (r"\frac", r"\tfrac"):
            return self.fraction(token)
        if token in BIG:
            return self.big(BIG[token])
        if token == r"\begin":
            return self.environment()
        if token == r"\underset":
            sizes = self.inside(self.group()).shape()
            return "shaped", sizes, self.whole(self.group())
        if token == "at(":
            return self.at_a_value()
        if token == r"\partial":  # in a line: ∂y / ∂x
            above = self.factor()
            self.next("/")
            self.next(r"\partial")
            return "partial", (self.factor(),), above
        if token in FUNCTIONS:
            return self.function(FUNCTIONS[token])
        name = self.name(token)
        if name is None:
            raise FormulaError(f"{token!r} begins nothing that is known")
        if name in ("rank", "null"):
            return "fn", name, self.factor()
        if name in self.functions and self.peek() == "(":
            self.next()
            return "call", name, *self.listed(")")
        return "name", name

    def listed(self, end: str) -> list[tuple]:
        found = [self.expression()]
        while self.peek() == ",":
            self.next()
            found.append(self.expression())
        self.next(end)
        return found

    def bracket(self, token: str) -> tuple:
        found = self.listed(PAIRED[token])
        kind = {"(": "tuple", r"\lvert": "abs", r"\lVert": "norm", r"\langle": "inner"}[token]
        if kind == "tuple" and len(found) == 1:
            return "bracket", found[0]
        if (kind == "inner") != (len(found) == 2) and kind != "tuple":
            raise FormulaError(f"{kind} of {len(found)}")
        return kind, *found

    def span(self) -> tuple:
        """`{c v : c in R}`: all multiples of v."""
        body = self.expression()
        self.next(":")
        relation, letter, of = self.condition()
        self.next(r"\}")
        if (relation, of) != ("∈", ("reals",)):
            raise FormulaError("a set is one of multiples by a real number")
        return "span", letter, body

    def fraction(self, token: str) -> tuple:
        above, below = self.group(), self.group()
        if above[0] != r"\partial":
            return "div", self.whole(above), self.whole(below)
        reader, letters = self.inside(below), []
        while reader.peek() is not None:
            reader.next(r"\partial")
            letters.append(reader.factor())
        above = above[1:]
        if above[:2] == ["^", "2"]:
            above = above[2:]
            order = 2
        else:
            order = 1
        if len(letters) != order:
            raise FormulaError(f"a derivative of order {order} by {len(letters)} letters")
        return "partial", tuple(letters), self.whole(above) if above else self.product()

    def big(self, kind: str) -> tuple:
        low = high = None
        while self.peek() in ("_", "^"):
            if self.next() == "_":
                low = self.inside(self.group())
            else:
                high = self.whole(self.group())
        if low is None:
            if kind in ("max", "min") and self.peek() == "(":
                self.next()
                return kind, *self.listed(")")
            if kind in ("max", "min"):
                return "fn", kind, self.factor()
            raise FormulaError(f"{kind} over nothing")
        letter = low.next()
        if low.peek() is None and high is None:
            over = ("all",)
        elif low.next("=", r"\in", r"\le") == "=" and high is not None:
            over = "range", low.expression(), high
        else:
            over = ("below" if low.tokens[1] == r"\le" else "in"), low.expression()
        if low.peek() is not None or (high is not None) != (over[0] == "range"):
            raise FormulaError(f"{kind} over what cannot be read")
        return "big", kind, letter, over, self.product()

    def environment(self) -> tuple:
        kind = "".join(self.group())
        rows, row = [], []
        while True:
            if kind == "cases" and row:
                words = self.words("if", "otherwise")
                row.append(self.condition() if words == "if" else None)
            else:
                row.append(self.expression())
            end = self.next("&", r"\\", r"\end")
            if end != "&":
                rows.append(tuple(row))
                row = []
            if end == r"\end":
                break
        if "".join(self.group()) != kind or kind not in ("cases", "pmatrix"):
            raise FormulaError(f"no environment {kind}")
        if len({len(each) for each in rows}) != 1 or (kind == "cases" and len(rows[0]) != 2):
            raise FormulaError(f"rows of {kind} that differ in length")
        return kind, *rows

    def at_a_value(self) -> tuple:
        tree = self.expression()
        self.next(")at")
        self.next("_")
        reader = self.inside(self.group())
        letter = reader.next().strip("\\")
        reader.next("=")
        return "at", letter, reader.expression(), tree

    def function(self, name: str) -> tuple:
        if name == "sqrt":
            return "fn", name, self.whole(self.group())
        power = None
        if self.peek() in ("_", "^"):
            power = self.next(), self.whole(self.group())
        tree = "fn", name, self.factor()
        if power is None:
            return tree
        if power[0] == "_":
            return "div", tree, ("fn", name, power[1])
        return "pow", tree, power[1]


def read(latex: str, functions: frozenset[str] = frozenset()) -> list[Statement]:
    """The statements of an equation.

    >>> read(r"y_i = 2")[0].chains
    [([('sub', ('name', 'y'), 'i', (('name', 'i'),)), ('number', '2')], ['='])]

    Raises:
        FormulaError: it cannot be read.
    """
    return Reader(latex, functions).statements()


def name_of(symbol: str) -> str:
    """What a symbol is called in `bindings`; a sign, which the reader knows itself, is itself.

    >>> name_of(r"\\mathit{dx}"), name_of(r"\\odot")
    ('dx', '\\\\odot')
    """
    reader = Reader(symbol, frozenset())
    return symbol if symbol in SIGNS else reader.name(reader.next()) or symbol
