"""What holds a number that is typed on a page: code of the page, or the list beside this file.

A number in prose, in a table or in a caption has to stand in code that its page shows, runs or
computes, or in `numbers.toml`, in its words. So a slip of the finger is noticed; that a listed
number is true, only the source says that its list names. What can be counted is counted, also where
a page says it in a word.
"""

import ast
import functools
import math
import re
import tomllib

from site_build import ROOT
from softmax_bench.gpus import GPUS, MEASURED
from softmax_bench.traffic import BACKWARD, best_gain
from softmax_site import equations, source
from softmax_tutorial.single_block import num_warps_for_block

LIST = ROOT / "tests/site/numbers.toml"
NUMBER = re.compile(r"(?<![\w.,/-])\d[\d,]*(?:\.\d+)?(?!\w)")
IN_CODE = re.compile(r"\d[\d,_]*(?:\.\d+)?")
INLINE = r"(?<![\\$\w])\$(?![\s$])(?:\\.|[^\\$\n])+?(?<![\s\\])\$(?![\d$])"
NO_PROSE = [
    r"\A---\n(?s:.*?)\n---\n",
    r"^/// equation(?s:.*?)^///$",
    r"^\s*(?:--8<--|///|::: |\d+\. ).*?(?= |$)",
    rf"`[^`\n]*`|{INLINE}",
    r"\{\{.*?\}\}|\[\[.*?\]\]|\\eqref\{[^}]*\}",
    r"\{[#.: ][^}\n]*\}|<[^>\n]*>|https?://\S+|\[[\w.]+/[^\]\s]*\]",
    r"(?<=\])\([^)\n]*\)|(?<=\])\[[^\]\n]*\]",
]
"""What is code, a formula, a name or an address."""


def prose(text: str) -> str:
    """A page with blanks in place of what is no prose."""
    text = equations.FENCE.sub(blank, text)
    for pattern in NO_PROSE:
        text = re.sub(pattern, blank, text, flags=re.M)
    return text


def blank(found: re.Match) -> str:
    return re.sub(r"[^\n]", " ", found[0])


def plain(number: str) -> str:
    return re.sub("[,_]", "", number)


def shown(text: str) -> str:
    """The code that a page shows, runs or includes, and its formulas."""
    parts = [found[0] for found in equations.FENCE.finditer(text)]
    parts += re.findall(rf"`[^`\n]*`|{INLINE}", text)
    paths = [f"docs/_cells/{name}.py" for name in re.findall(r"\[\[run (\S+?)(?: \w+)?\]\]", text)]
    paths += [found["path"] for found in source.DIRECTIVE.finditer(text)]
    paths += re.findall(r'--8<-- "([\w/.-]+)', text)
    files = [ROOT / path for path in dict.fromkeys(paths)]
    return "\n".join([*parts, *(file.read_text("utf8") for file in files if file.is_file())])


@functools.cache
def lists() -> dict:
    return tomllib.loads(LIST.read_text("utf8"))


@functools.cache
def listed(page: str) -> dict[str, list[str]]:
    """The phrases of a page, and those with a computed number, by the numbers in them."""
    found: dict[str, list[str]] = {}
    for phrase in (*lists()["computed"], *lists().get(page, {}).get("phrases", ())):
        for number in NUMBER.findall(phrase):
            found.setdefault(number, []).append(phrase)
    return found


def unheld(page: str, text: str) -> list[str]:
    """The numbers of a page, given below `docs/`, that nothing holds, in their words."""
    words, out = prose(text), []
    known = {plain(number) for number in IN_CODE.findall(shown(text).replace("{,}", ""))}
    for found in NUMBER.finditer(words):
        near = " ".join(words[max(0, found.start() - 60) : found.end() + 60].split())
        phrases = listed(page).get(found[0], ())
        if not any(phrase in near for phrase in phrases) and plain(found[0]) not in known:
            out.append(near[20:-20])
    return out


# --- what is counted ------------------------------------------------------------------------------

WORDS = "nothing one two three four five six seven eight nine ten eleven twelve".split()
SAID = {word: value for value, word in enumerate(WORDS)}
SAID |= {f"thirty-{word}": 30 + value for word, value in SAID.items() if 0 < value < 10}
FIGURES = r"\d*MN(?: \+ \d?M)?|2\^ \{\d+\} - 1|\d[\d,]{2,}(?:\.\d+)?|\d+\.\d+"


def calls(path: str, function: str, name: str) -> int:
    """How often a function of a file calls another."""
    body = functions(path)[function]
    return sum(getattr(node, "id", "") == name for node in ast.walk(body))


def functions(path: str) -> dict[str, ast.AST]:
    tree = ast.parse((ROOT / path).read_text("utf8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def matches(path: str, pattern: str) -> list[str]:
    return re.findall(pattern, (ROOT / path).read_text("utf8"))


def thresholds() -> list[str]:
    """From where on a block gets more warps."""
    sizes = [2**at for at in range(8, 20)]
    return [f"{n:,}" for n in sizes if num_warps_for_block(n) > num_warps_for_block(n // 2)]


@functools.cache
def valued(what: str) -> object:
    """What an expression of the list is."""
    names = {"BACKWARD": BACKWARD, "GPU": GPUS[MEASURED], "best_gain": best_gain, "log": math.log}
    names |= {"calls": calls, "matches": matches, "thresholds": thresholds}
    return eval(what, names)


def miscounted(path: str, text: str) -> list[str]:
    """What a file says of what is counted, where it is wrong."""
    out = []
    for pattern, what in lists()["counted"].get(path, ()):
        wanted, found = valued(what), [said.lower() for said in re.findall(pattern, text)]
        right = [str(wanted).lower(), *(word for word, value in SAID.items() if value == wanted)]
        if not found or any(said not in right for said in found):
            out.append(f"{pattern}: {found}, and it is {wanted}")
    return out


def squeezed(text: str) -> str:
    """A text without what only parts figures, and exponents as digits."""
    digits = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
    return re.sub(r"[\s,_·*{}^$]", "", text.translate(digits)).upper()


def uncorrected(text: str) -> list[str]:
    """What the rows of corrections say in figures, where no test that they cite says it."""
    bodies = functions("tests/site/test_corrections.py")
    worked = (ROOT / "src/softmax_site/computed/worked.py").read_text("utf8")
    out = []
    for row in re.findall(r"^\| [A-D][\d, A-D]* \|.*#test-.*$", text, re.M):
        cited = [each.replace("-", "_") for each in re.findall(r"\(#(test-[\w-]+)\)", row)]
        code = squeezed(worked + "".join(ast.unparse(bodies[each]) for each in cited))
        said = re.sub(r"^\| [^|]*\||\]\([^)]*\)|\{\{.*?\}\}|`[^`]*`", "", row).replace("^{", "^ {")
        found = re.findall(FIGURES, said)
        out += [f"{each}, of {row[:60]}" for each in found if squeezed(each) not in code]
    return out
