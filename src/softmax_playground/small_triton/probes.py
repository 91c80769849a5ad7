"""Kernels as text with probes: after each statement the values that it gave to names are recorded.

MicroPython has neither `ast` nor `settrace`, so statements are found character by character. Lines
keep their numbers: a probe stands on the last line of its statement.
"""

from collections import namedtuple

CLOSED = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
HEADS = ("for", "while", "if", "elif", "else", "def", "class", "with", "try", "except", "finally")
SILENT = ("break", "continue", "pass", "import", "from", "global", "nonlocal", "raise", "return")


Statement = namedtuple("Statement", "text word indent start end at equals")
"""A statement, or the head of one that ends in a colon: what it begins with, such as "for" or a
quote; where it stands in the text; its first line, its last line, and the name of the text; where
in it the first `=` is that assigns, or None."""


def words(text):
    """The names in a text.

    >>> words("m_new, (d, _)")
    ['m_new', 'd', '_']
    """
    kept = "".join([c if _in_word(c) else " " for c in text])
    return [word for word in kept.split() if not word[0].isdigit()]


def statements(code, path=""):
    """All statements of a text, and heads of compound ones, in order.

    >>> [each.text for each in statements("for i in a:  # now: b\\n  b = (';',\\n    i); c = 1")]
    ['for i in a', "b = (';',\\n    i)", 'c = 1']
    """
    found, start, first, equals, depth, line, i = [], None, 1, None, 0, 1, 0
    while i <= len(code):
        c = code[i : i + 1]
        ends = c == "" or (depth <= 0 and c in "\n;#")
        if depth == 0 and c == ":" and start is not None:
            ends = _word(code[start:i]) in HEADS
        if ends and start is not None:
            text = code[start:i].rstrip()
            at = (first, first + text.count("\n"), path)
            before = code[code.rfind("\n", 0, start) + 1 : start]
            indent = len(before) - len(before.lstrip())
            found.append(Statement(text, _word(text), indent, start, start + len(text), at, equals))
            start = equals = None
        elif start is None and c not in " \t\n;:#":
            start, first = i, line
        if c == "#":
            i = (code + "\n").find("\n", i)
            continue
        if c in ("'", '"'):
            quote = c * 3 if code[i : i + 3] == c * 3 else c
            end = i + len(quote)
            while end < len(code) and code[end : end + len(quote)] != quote:
                end += 2 if code[end] == "\\" else 1
            line += code[i:end].count("\n")
            i = end + len(quote)
            continue
        if c == "\\":  # what comes next neither ends a statement nor begins one
            i += 1
            c = code[i : i + 1]
        depth += CLOSED.get(c, 0)
        if c == "=" and depth == 0 and equals is None and start is not None:
            before = code[i - 2 : i]
            compares = before[-1] in "=!:" or (before[-1] in "<>" and before not in ("<<", ">>"))
            if code[i + 1 : i + 2] != "=" and not compares:
                equals = i - start
        line += c == "\n"
        i += 1
    return found


def _in_word(c):
    return c.isalpha() or c.isdigit() or c == "_"


def _word(text):
    """What a statement begins with.

    >>> _word("if_so = 1"), _word("if(a)"), _word("@triton.jit")
    ('if_so', 'if', '@')
    """
    end = 1
    while text[0].isalpha() and _in_word(text[end : end + 1]):
        end += 1
    return text[:end]


_read = {}
"""The statements of the last texts: a cell's kernel runs on several inputs."""


def by_kernel(code, path=""):
    """(the `def` of the jitted function around it, or None; the statement), of all in a text."""
    if (code, path) not in _read:
        if len(_read) == 4:
            _read.clear()
        _read[code, path] = statements(code, path)
    head, jitted = None, False
    for each in _read[code, path]:
        head = None if head is not None and each.indent <= head.indent else head
        yield head, each
        head = each if head is None and jitted and each.word == "def" else head
        jitted = each.word == "@" and (jitted or "jit" in words(each.text))


def probed(code, path):
    """The text, with a call of `tl.seen` after each statement of a jitted function, and of
    `tl.turns`, `tl.again` and `tl.back` in its loops and returns.

    >>> probed("@triton.jit\\ndef f(a):\\n    return a", "f.py").split("\\n")[2]
    "    tl.seen((2, 2, 'f.py'), 'a', a,); return tl.back((3, 3, 'f.py'), a)"
    """
    added, begun = [], None
    for head, each in by_kernel(code, path):
        if head is not None and each.word not in ("'", '"'):
            if begun is not head and (each.word == "if" or each.word not in HEADS):
                probe = _seen(head, parameters(head.text))
                at_if = (each.start + 2, f" {probe} or")
                added.append(at_if if each.word == "if" else (each.start, probe + "; "))
            begun = head
            added += _probes(each)
    text, at = "", 0
    for place, probe in sorted(added, key=lambda pair: pair[0]):
        text += code[at:place] + probe
        at = place
    return text + code[at:]


def parameters(head):
    """Names of the parameters of a `def`."""
    found, depth = "", 0
    for c in head[head.index("(") + 1 :]:
        depth += CLOSED.get(c, 0)
        found += c if depth == 0 else " "
    each = [words(part.split(":")[0].split("=")[0])[:1] for part in found.split(",")]
    return [name for names in each for name in names]


def _seen(statement, names):
    given = "".join([f" {name}," for name in names])
    return f"tl.seen({statement.at}, {' '.join(names)!r},{given})"


def _probes(each):
    """(place, text to put there) for a statement of a jitted function."""
    text, end = each.text, (each.end, ")")
    if each.word == "for" and " in " in text:
        place = text.index(" in ") + 4
        names = " ".join(targets(each))
        return [(each.start + place, f"tl.turns({each.at}, {names!r}, "), end]
    if each.word == "while":
        return [(each.start + 5, f" tl.again({each.at}, "), end]
    if each.word == "return" and text != "return" and not text.endswith(","):
        return [(each.start + 6, f" tl.back({each.at},"), end]
    if each.word in HEADS + SILENT + ("@",):
        return []
    return [(each.end, "; " + _seen(each, targets(each)))]


def targets(each):
    """The names that a statement sets."""
    if each.word == "for":
        return words(each.text[4:].split(" in ")[0])
    target = each.text[: each.equals or 0].rstrip("+-*/%&|^@<>").split(":")[0]
    return words(target) if "[" not in target and "." not in target else []
