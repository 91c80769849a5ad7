r"""Reads the LaTeX of formulas: text becomes statements, and their sides trees.

The subset is what the pages use, and what a reader could take in two ways is an error. Rows of an
`aligned` are statements of their own, unless one begins with a relation or an operator; within a
row a comma and `\qquad` separate statements. A tree is a tuple: what it is, then its parts.
"""

import re
from typing import NamedTuple

TOKEN = re.compile(r"at\(|\)at|\\[a-zA-Z]+|\\.|\d+(?:\.\d+)?|&&|\S")
SKIPPED = set(r"\, \; \! \: \Bigl \Bigr \bigl \bigr & \quad".split())
RELATIONS = {"=": "=", r"\le": "≤", r"\ge": "≥", r"\approx": "≈", r"\in": "∈", r"\ne": "≠"}
FACES = {r"\mathit": "", r"\mathbf": "bold_", r"\operatorname": "", r"\mathbb": "bb_"}
HATS = {r"\hat": "hat_", r"\bar": "bar_", r"\tilde": "tilde_", r"\widehat": "hat_"}
GREEK = "alpha beta gamma delta varepsilon zeta eta kappa lambda mu nu xi pi rho sigma tau varphi "
GREEK += "chi psi Omega Pi Delta ell infty varnothing"
LETTER = re.compile(rf"[A-Za-z]|\\(?:{'|'.join(GREEK.split())})")
FUNCTIONS = {r"\log": "log", r"\exp": "exp", r"\tanh": "tanh", r"\sqrt": "sqrt"}
BIG = {r"\sum": "sum", r"\max": "max", r"\min": "min", r"\bigoplus": "oplus", r"\biguplus": "uplus"}
PRODUCTS = {r"\cdot": "dot", r"\odot": "odot", r"\oslash": "oslash", "/": "div"}
SUMS = {"+": "add", "-": "sub", r"\oplus": "oplus2", r"\uplus": "uplus"}
SIGNS = {"+": "bracket", "-": "neg", r"\pm": "pm"}
BRACKETS = {"(": (")", "tuple"), r"\lvert": (r"\rvert", "abs"), r"\lVert": (r"\rVert", "norm")}
BRACKETS[r"\langle"] = (r"\rangle", "inner")
ENDS = {None, "}", "&", ",", ";", r"\\", r"\end", r"\}", ")at", r"\iff", r"\text", "&&", ":"}
ENDS |= {*RELATIONS, *SUMS, r"\times", *(end for end, _ in BRACKETS.values())}
KNOWN = {*BIG, *FUNCTIONS, *HATS, *BRACKETS, *PRODUCTS, *SUMS, *RELATIONS, r"\partial"}
"""Signs, which need no binding."""


class FormulaError(ValueError):
    """LaTeX that cannot be read, or that says nothing that holds."""


class Statement(NamedTuple):
    """Chains of sides and relations, with ⟺ between chains; when it is said, and of what shape."""

    chains: list[tuple[list, list[str]]]
    condition: tuple | None = None
    shape: tuple | None = None


def tokens_of(latex: str) -> list[str]:
    """Tokens without what only spaces or sizes; `;` ends a statement.

    >>> tokens_of(r"m_0 = -\\infty, \\qquad d_0 = 0")
    ['m', '_', '0', '=', '-', '\\\\infty', ';', 'd', '_', '0', '=', '0']
    """
    latex = latex.replace(r"\left.", " at( ").replace(r"\right\rvert", " )at ")
    latex = re.sub(r"\\tfrac(\d)(\d)", r"\\frac{\1}{\2}", latex.replace(r"\tfrac{", r"\frac{"))
    found = TOKEN.findall(re.sub(r"\\(begin|end)\s*\{aligned\}", "", latex))
    out, depth = [], 0
    for at, token in enumerate(found):
        depth += (token == r"\begin") - (token == r"\end")
        following = next((t for t in found[at + 1 :] if t not in {*SKIPPED, r"\qquad"}), r"\qquad")
        if token == r"\qquad":
            if out[-1:] == [","]:
                out[-1] = ";"
            elif out and following != r"\text" and found[at - 1] not in (r"\\", "&"):
                raise FormulaError(r"\qquad without a comma neither separates nor goes on")
        elif token == r"\\" and not depth:
            out += [] if following in {*RELATIONS, *PRODUCTS, "+", "-"} else [";"]
        elif token not in SKIPPED or (token == "&" and depth):
            out.append(token)
    return out


class Reader:
    """A recursive descent over tokens; `functions` are names that a bracket after them applies,
    where other letters multiply."""

    def __init__(self, tokens: list[str], functions: frozenset[str] = frozenset()):
        self.tokens, self.at, self.functions = tokens, 0, functions

    def peek(self) -> str | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def next(self, *wanted: str) -> str:
        token = self.peek()
        if token is None or (wanted and token not in wanted):
            raise FormulaError(f"{token!r} stands where {' or '.join(wanted) or 'more'} should")
        self.at += 1
        return token

    def took(self, *wanted: str) -> str | None:
        return self.next() if self.peek() in wanted else None

    def group(self) -> list[str]:
        """The tokens of a braced group, or one token."""
        if not self.took("{"):
            return [self.next()]
        begin, depth = self.at, 1
        while depth:
            token = self.next()
            depth += (token == "{") - (token == "}")
        return self.tokens[begin : self.at - 1]

    def inside(self) -> "Reader":
        return Reader(self.group(), self.functions)

    def whole(self, tree: tuple) -> tuple:
        """A tree, after which nothing is left."""
        if self.peek() is not None:
            raise FormulaError(f"{self.peek()!r} is left over")
        return tree

    def braced(self) -> tuple:
        inside = self.inside()
        return inside.whole(inside.expression())

    def listed(self, *end: str) -> list[tuple]:
        found = [self.expression()]
        while self.took(","):
            found.append(self.expression())
        self.next(*end) if end else self.whole(())
        return found

    # --- statements

    def statements(self) -> list[Statement]:
        found = [self.statement()]
        while self.took(";"):
            found.append(self.statement())
        self.whole(())
        return found

    def statement(self) -> Statement:
        chains = [self.chain()]
        while self.took(r"\iff"):
            chains.append(self.chain())
        condition = self.condition() if self.words("for") else None
        return Statement(chains, condition, self.expression() if self.took("&&") else None)

    def words(self, *allowed: str) -> str | None:
        words = "".join(self.group()) if self.took(r"\text") else None
        if words not in (None, *allowed):
            raise FormulaError(f"{words!r} is none of {allowed}")
        return words

    def chain(self) -> tuple[list, list[str]]:
        sides, relations = [self.expression()], []
        while self.peek() in RELATIONS:
            relations.append(RELATIONS[self.next()])
            sides.append(self.expression())
        if not relations:
            raise FormulaError(f"a statement without a relation, before {self.peek()!r}")
        return sides, relations

    def condition(self) -> tuple:
        """One relation between two sides."""
        (left, right), (relation,) = self.chain()
        return relation, left, right

    # --- expressions

    def expression(self) -> tuple:
        sign = self.took(*SIGNS)
        tree = (SIGNS[sign], self.product()) if sign else self.product()
        while self.peek() in SUMS:
            tree = SUMS[self.next()], tree, self.product()
        return ("shape", tree, self.product()) if self.took(r"\times") else tree

    def product(self) -> tuple:
        tree = self.factor()
        while self.peek() not in ENDS:
            kind = PRODUCTS[self.next()] if self.peek() in PRODUCTS else "mul"
            tree = kind, tree, self.factor()
        return tree

    def factor(self) -> tuple:
        """An atom with what stands below and above it."""
        tree = self.atom()
        while mark := self.took("_", "^"):
            inside = self.inside()
            if mark == "_":
                tree = inside.below(tree)
            elif inside.took(r"\mathsf"):
                tree = inside.whole(("T", tree)) if inside.group() == ["T"] else ()
            else:
                kind = "exp" if tree == ("name", "e") else "pow"
                tree = kind, tree, inside.whole(inside.expression())
        return tree

    def below(self, owner: tuple) -> tuple:
        """An entry; its key is the name of a letter of its own, if there is such a one."""
        key = "".join(t.strip("\\") for t in self.tokens if t not in ("{", "}", r"\text"))
        if self.peek() == r"\text":
            return "sub", owner, key, ()
        if len(key) > 1 and len(self.tokens) == len(key) and key.isalpha():
            return "sub", owner, key, tuple(("name", letter) for letter in key)
        return "sub", owner, key, tuple(self.listed())

    def name(self) -> str | None:
        """A letter with its face and what it wears, or a word."""
        if self.peek() in HATS:
            hat = HATS[self.next()]
            return hat + (self.inside().name() or "")
        if self.peek() in FACES:
            return FACES[self.next()] + "".join(self.group())
        return self.next().strip("\\") if LETTER.fullmatch(self.peek() or "") else None

    def atom(self) -> tuple:
        if (name := self.name()) is not None:
            if name in ("rank", "null"):
                return "fn", name, self.factor()
            applied = name in self.functions and self.took("(")
            return ("call", name, *self.listed(")")) if applied else ("name", name)
        if self.peek() == "{":
            return self.braced()
        match token := self.next():
            case r"\frac":
                return self.fraction()
            case r"\begin":
                return self.environment()
            case r"\underset":
                return "shaped", self.braced(), self.braced()
            case r"\partial":  # in a line: ∂y / ∂x
                above, _, _ = self.factor(), self.next("/"), self.next(r"\partial")
                return "partial", (self.factor(),), above
            case r"\{":  # all multiples of a vector
                body, _ = self.expression(), self.next(":")
                _, letter, of = self.condition()
                self.next(r"\}")
                return "span", letter, body, of
            case "at(":
                body, _, _, at = self.expression(), self.next(")at"), self.next("_"), self.inside()
                return "at", body, at.whole(at.condition())
        if token[0].isdigit():
            return "number", token
        if token in BRACKETS:
            end, kind = BRACKETS[token]
            found = self.listed(end)
            return (kind if len(found) > 1 or kind != "tuple" else "bracket", *found)
        if token in BIG:
            return self.big(BIG[token])
        if token in FUNCTIONS:
            return self.function(FUNCTIONS[token])
        raise FormulaError(f"{token!r} begins nothing that is known")

    def fraction(self) -> tuple:
        above, below = self.inside(), self.inside()
        if not above.took(r"\partial"):
            return "div", above.whole(above.expression()), below.whole(below.expression())
        order = int(above.group()[0]) if above.took("^") else 1
        letters = tuple((below.next(r"\partial"), below.factor())[1] for _ in range(order))
        below.whole(())
        body = above.whole(above.expression()) if above.peek() else self.product()
        return "partial", letters, body

    def big(self, kind: str) -> tuple:
        if self.peek() not in ("_", "^"):
            return (kind, *self.listed(")")) if self.took("(") else ("fn", kind, self.factor())
        self.next("_")
        low = self.inside()
        letter = low.next()
        how = low.took("=", r"\in", r"\le")
        ends = [low.whole(low.expression())] if how else []
        ends += [self.braced()] if how == "=" and self.next("^") else []
        return "big", kind, letter, (how, *ends), self.product()

    def environment(self) -> tuple:
        kind, rows, end = "".join(self.group()), [], None
        while end != r"\end":
            row, end = [self.expression()], None
            while (end := self.next("&", r"\\", r"\end")) == "&":
                word = self.words("if", "otherwise")
                row.append(
                    None if word == "otherwise" else self.condition() if word else self.expression()
                )
            rows.append(tuple(row))
        if "".join(self.group()) != kind or len({*map(len, rows)}) > 1:
            raise FormulaError(f"rows of {kind} that do not fit")
        return kind, *rows

    def function(self, name: str) -> tuple:
        if name == "sqrt":
            return "fn", name, self.braced()
        mark = self.took("_", "^")
        more = self.braced() if mark else None
        tree = "fn", name, self.factor()
        return (
            tree
            if not mark
            else ("pow", tree, more)
            if mark == "^"
            else ("div", tree, ("fn", name, more))
        )


def read(latex: str, functions: frozenset[str] = frozenset()) -> list[Statement]:
    """The statements of an equation.

    >>> read(r"y_i = 2")[0].chains
    [([('sub', ('name', 'y'), 'i', (('name', 'i'),)), ('number', '2')], ['='])]

    Raises:
        FormulaError: it cannot be read.
    """
    return Reader(tokens_of(latex), functions).statements()


def name_of(symbol: str) -> str:
    """What a symbol is called in `bindings`; a sign, which the reader knows itself, is itself.

    >>> name_of(r"\\mathit{dx}"), name_of(r"\\odot")
    ('dx', '\\\\odot')
    """
    return symbol if symbol in KNOWN else Reader(tokens_of(symbol)).name() or symbol
