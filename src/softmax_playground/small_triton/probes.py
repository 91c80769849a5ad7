"""Kernels as text with probes: after each statement the values that it gave to names are recorded.

MicroPython has neither `ast` nor `settrace`, so statements are found character by character. Lines
keep their numbers: a probe stands on the last line of its statement.
"""

CLOSED = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
HEADS = ("for", "while", "if", "elif", "else", "def", "class", "with", "try", "except", "finally")
SILENT = ("break", "continue", "pass", "import", "from", "global", "nonlocal", "raise", "return")


class Statement:
    """A statement, or the head of one that ends in a colon.

    Attributes:
        word: what it begins with, such as "for", or a character that is no letter.
        start, end: where it stands in the text.
        first, last: its lines, from 1.
        equals: where its first `=` is that assigns, or None.
    """

    def __init__(self, code, start, end, first, last, equals):
        self.code, self.start, self.end = code, start, end
        self.first, self.last, self.equals = first, last, equals
        self.word = (words(code[start:end]) or [""])[0] if code[start].isalpha() else code[start]
        before = code[: start + 1].split("\n")[-1]
        self.indent = len(before) - len(before.lstrip())

    def __repr__(self):
        return self.code[self.start : self.end]


def words(text):
    """The names in a text.

    >>> words("m_new, (d, _)")
    ['m_new', 'd', '_']
    """
    kept = "".join([c if c.isalpha() or c.isdigit() or c == "_" else " " for c in text])
    return [word for word in kept.split() if not word[0].isdigit()]


def statements(code):
    """All statements of a text, and heads of compound ones, in order.

    >>> statements("for i in range(3):  # thrice: so\\n    a = (i,\\n         ';'); b = 1")
    [for i in range(3), a = (i,
             ';'), b = 1]
    """
    found, start, first, equals, depth, line, i = [], None, 1, None, 0, 1, 0
    while i <= len(code):
        c = code[i : i + 1]
        ends = c == "" or (depth <= 0 and c in "\n;#")
        if depth == 0 and c == ":" and start is not None:
            ends = (words(code[start:i]) or [""])[0] in HEADS
        if ends and start is not None:
            text = code[start:i].rstrip()
            last = first + text.count("\n")
            found.append(Statement(code, start, start + len(text), first, last, equals))
            start = equals = None
        elif start is None and c not in " \t\n;:#":
            start, first = i, line
        if c == "#":
            end = code.find("\n", i)
            i = end if end >= 0 else len(code)
            continue
        if c in ("'", '"'):
            quote = c * 3 if code[i : i + 3] == c * 3 else c
            end = i + len(quote)
            while end < len(code) and code[end : end + len(quote)] != quote:
                end += 2 if code[end] == "\\" else 1
            line += code[i:end].count("\n")
            i = end + len(quote)
            continue
        if c == "\\" and code[i + 1 : i + 2] == "\n":
            line += 1
            i += 2
            continue
        depth += CLOSED.get(c, 0)
        if c == "=" and depth == 0 and equals is None and start is not None:
            before, after = code[i - 2 : i], code[i + 1 : i + 2]
            compares = before[-1] in "=!:" or (before[-1] in "<>" and before not in ("<<", ">>"))
            if after != "=" and not compares:
                equals = i
        line += c == "\n"
        i += 1
    return found


def probed(code, path):
    """The text, with a call of `tl.seen` after each statement of a jitted function, and of
    `tl.turns`, `tl.again` and `tl.back` in its loops and returns.

    >>> probed("@triton.jit\\ndef f(a):\\n    return a", "f.py").split("\\n")[2]
    "    tl.seen(2, 2, 'f.py', 'a', a,); return tl.back(3, 3, 'f.py', a)"
    """
    added = []
    jitted, inside, parameters = None, None, None
    for each in statements(code):
        if inside is not None and each.indent <= inside:
            inside = None
        if each.word == "@" and "jit" in words(repr(each)):
            jitted = each.indent
        elif each.word == "def" and jitted == each.indent:
            inside, jitted, parameters = each.indent, None, each
        elif inside is not None and each.word not in ("'", '"'):
            if parameters and (each.word == "if" or each.word not in HEADS):
                probe = _seen(parameters, path, _parameters(repr(parameters)))
                at_if = (each.start + 2, f" {probe} or")
                added.append(at_if if each.word == "if" else (each.start, probe + "; "))
            parameters = None
            added += _probes(each, path)
    text, at = "", 0
    for place, probe in sorted(added, key=lambda pair: pair[0]):
        text += code[at:place] + probe
        at = place
    return text + code[at:]


def _parameters(head):
    """Names of the parameters of a `def`."""
    found, depth = "", 0
    for c in head[head.index("(") + 1 :]:
        depth += CLOSED.get(c, 0)
        found += c if depth == 0 else " "
    each = [(words(part.split(":")[0].split("=")[0]) or [""])[0] for part in found.split(",")]
    return [name for name in each if name]


def _at(statement, path):
    return f"{statement.first}, {statement.last}, {path!r}"


def _seen(statement, path, names):
    given = "".join([f" {name}," for name in names])
    return f"tl.seen({_at(statement, path)}, {' '.join(names)!r},{given})"


def _probes(each, path):
    """(place, text to put there) for a statement of a jitted function."""
    text, at = repr(each), _at(each, path)
    if each.word == "for" and " in " in text:
        place = text.index(" in ") + 4
        names = " ".join(words(text[3 : place - 4]))
        return [(each.start + place, f"tl.turns({at}, {names!r}, "), (each.end, ")")]
    if each.word == "while":
        return [(each.start + 5, f" tl.again({at}, "), (each.end, ")")]
    if each.word == "return" and text != "return" and not text.endswith(","):
        return [(each.start + 6, f" tl.back({at},"), (each.end, ")")]
    if each.word in HEADS + SILENT + ("@",):
        return []
    target = ""
    if each.equals is not None:
        end = each.equals
        while each.code[end - 1] in "+-*/%&|^@<>":
            end -= 1
        target = each.code[each.start : end].split(":")[0]
    names = words(target) if "[" not in target and "." not in target else []
    return [(each.end, "; " + _seen(each, path, names))]
