"""What holds a statement of a page: code of the page, a count, or the list beside this file.

A number in prose, in a table or in a caption has to stand in code that its page shows, runs or
computes, or in `held.toml`, in its words; one of two digits, which almost any code has, always in
the list. So a slip of the finger is noticed; that a listed number is true, only the source says
that its list names. What can be counted is counted, also where a page says it in a word. A relation
in a formula of a line has to hold for some family of letters; another formula with a figure has to
stand in the list, and a name in code has to be one of the repository.
"""

import ast
import functools
import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterator

import interpreted  # noqa: F401, before Triton
from formulas.bindings import check, holds_somewhere
from site_build import ROOT, pages
from softmax_bench.gpus import GPUS, MEASURED
from softmax_bench.traffic import BACKWARD, FORWARD, Traffic, best_gain
from softmax_site import equations, source
from softmax_tutorial.single_block import num_warps_for_block

LIST = ROOT / "tests/held.toml"
NUMBER = re.compile(r"(?<![\w.,/-])\d+(?:,\d{3})*(?:\.\d+)?(?!\w)")
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


def in_code(text: str) -> set[str]:
    """The numbers of the code that a page shows, runs or includes."""
    return {plain(number) for number in IN_CODE.findall(shown(text).replace("{,}", ""))}


def loose(page: str, text: str) -> Iterator[tuple[re.Match, str]]:
    """The numbers of a page, given below `docs/`, that nothing holds, and what stands around."""
    words = prose(text)
    known = in_code(text)
    for found in NUMBER.finditer(words):
        near = " ".join(words[max(0, found.start() - 60) : found.end() + 60].split())
        before = " ".join((words[max(0, found.start() - 60) : found.start()] + "|").split())
        said = any(
            at.start() < len(before) <= at.end()
            for phrase in listed(page).get(found[0], ())
            for at in re.finditer(re.escape(phrase), near)
        )
        short = len(found[0]) < 3  # such a number is in almost any code
        if not said and (short or plain(found[0]) not in known):
            yield found, near


def unheld(page: str, text: str) -> list[str]:
    """The same, in words."""
    return [near[20:-20] for _, near in loose(page, text)]


# --- what is counted ------------------------------------------------------------------------------

WORDS = "nothing one two three four five six seven eight nine ten eleven twelve".split()
SAID = {word: value for value, word in enumerate(WORDS)}
SAID |= {word: value for value, word in enumerate(("first", "second", "third", "fourth"), 1)}
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


def growing(path: str) -> list[int]:
    """The tiles, of four, at which the maximum of the row of a page grows."""
    row = [int(each) for each in matches(path, r"row = \[([\d, ]+)\]")[0].split(",")]
    tops = [max(row[: at + 4]) for at in range(0, len(row), 4)]
    return [at + 1 for at in range(1, len(tops)) if tops[at] > tops[at - 1]]


@functools.cache
def valued(what: str) -> object:
    """What an expression of the list is."""
    names = {"BACKWARD": BACKWARD, "GPU": GPUS[MEASURED], "best_gain": best_gain, "log": math.log}
    names |= {"calls": calls, "matches": matches, "thresholds": thresholds}
    names["growing"] = growing
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


# --- formulas and names in a line -----------------------------------------------------------------

RELATION = re.compile(r"=|\\(?:le|ge|ne|approx)(?![a-z])")
NAME = re.compile(r"[A-Za-z_]\w{3,}")
MOVES = r"\d*MN(?: \+ \d?M)?"
SOURCES = ("src", "tests", "exercises", "docs/_cells", ".github", ".ci")


def relations(text: str) -> list[str]:
    """The formulas in lines of a page that say that something holds."""
    found = re.findall(INLINE, equations.FENCE.sub(blank, text))
    return [each[1:-1] for each in found if RELATION.search(each)]


def terms(text: str) -> list[str]:
    """The formulas in lines of a page that say of nothing that it holds, and have a figure: numbers
    and counts, but for those of `moves`."""
    found = [each[1:-1] for each in re.findall(INLINE, equations.FENCE.sub(blank, text))]
    claimed = re.compile(rf"{RELATION.pattern}|^{MOVES}$")
    return [each for each in found if re.search(r"\d", each) and not claimed.search(each)]


@functools.cache
def holds(latex: str) -> bool:
    return latex in lists()["conditions"]["formulas"] or holds_somewhere(latex)


@functools.cache
def names() -> frozenset[str]:
    """Every name in a file of the repository that is no page, and the names of the files."""
    files = [path for folder in SOURCES for path in (ROOT / folder).rglob("*.*")]
    files += [path for path in ROOT.iterdir() if path.is_file() and path.suffix != ".md"]
    read = [path for path in files if path.suffix in (".py", ".toml", ".yml", ".txt", ".js", "")]
    known = {name for path in read for name in NAME.findall(path.read_text("utf8", "ignore"))}
    return frozenset(known | {path.stem for path in files} | {*lists()["names"]["elsewhere"]})


def unknown(text: str) -> list[str]:
    """The names in the code of lines that are none of the repository and none of the page."""
    fences = " ".join(found[0] for found in equations.FENCE.finditer(text))
    there = names() | {*NAME.findall(fences)}
    spans = re.findall(r"`([^`\n]+)`", equations.FENCE.sub(blank, text))
    return [name for span in spans for name in NAME.findall(span) if name not in there]


def missing(text: str) -> list[str]:
    """The code that a page includes and that is nowhere."""
    text = re.sub("`[^`\n]*`", "", equations.FENCE.sub(blank, text))
    out = [name for name in re.findall(r"\[\[run ([^\]\s]+)", text) if not is_cell(name)]
    for found in source.DIRECTIVE.finditer(text):
        try:
            source.read(found["path"], ROOT).section(found["name"])
        except (OSError, source.SourceError):
            out.append(found[0])
    return out


def is_cell(name: str) -> bool:
    return (ROOT / f"docs/_cells/{name}.py").is_file()


def moves(text: str) -> list[str]:
    """The counts of elements in a page that are those of no rung and no correction."""
    known = {*re.findall(MOVES, " ".join(lists()["conditions"]["moves"]))}
    for each in (*FORWARD.values(), *BACKWARD.values()):
        reads = Traffic(each.reads_mn, 0, each.reads_m).formula
        known |= {each.formula, reads, Traffic(0, each.writes_mn, 0, each.writes_m).formula}
    return [each for each in re.findall(rf"\$({MOVES})\$", text) if each not in known]


@functools.cache
def wrong(label: str, latex: str) -> bool:
    """Whether a display equation cannot be evaluated or does not hold."""
    try:
        check(label, equations.filled(latex, ROOT))
    except Exception:
        return True
    return False


def faults(path: str, text: str) -> list[str]:
    """What the checks of this file and of equations find in the text of a page."""
    displayed = equations.EQUATION.finditer(equations.FENCE.sub(blank, text))
    found = [each["label"] for each in displayed if wrong(each["label"], each["latex"])]
    found += [each for each in relations(text) if not holds(each)]
    known = lists()["terms"].get(path.removeprefix("docs/"), ())
    found += (Counter(terms(text)) - Counter(known)).elements()
    found += unheld(path.removeprefix("docs/"), text) + miscounted(path, text)
    found += unknown(text) + moves(text) + missing(text)
    return found + (uncorrected(text) if path == "docs/reference/sources.md" else [])


def phrase_of(found: re.Match, near: str) -> str:
    """A number of a page with what stands next to it in its line."""
    before = re.search(r"(?:\S+ )?\S*$", found.string[: found.start()])
    after = re.match(r"\S*(?: \S+)?", found.string[found.end() :])
    phrase = f"{before and before[0]}{found[0]}{after and after[0]}".strip()
    return phrase if phrase in near else found[0]


def packed(phrases: list[str]) -> str:
    lines = ["   "]
    for each in (f" {json.dumps(phrase, ensure_ascii=False)}," for phrase in phrases):
        lines += [] if len(lines[-1] + each) <= 100 else ["   "]
        lines[-1] += each
    return "\n".join(lines)


def main() -> None:
    """Bring the phrases of the list up to date, page by page; who runs it says where new ones are
    from."""
    text = re.split(r'^\["[^"]*\.md"\]$', LIST.read_text("utf8"), maxsplit=1, flags=re.M)[0]
    for path in sorted(pages()):
        page, of_page = path.relative_to(ROOT / "docs").as_posix(), path.read_text("utf8")
        words = " ".join(prose(of_page).split())
        there = lists().get(page, {"from": "?", "phrases": []})
        kept = [each for each in there["phrases"] if each in words]
        kept += [phrase_of(*each) for each in loose(page, of_page)]
        if kept:
            kept = list(dict.fromkeys(kept))
            entry = f'["{page}"]\nfrom = "{there["from"]}"\nphrases = [\n{packed(kept)}\n]\n'
            text = f"{text.rstrip()}\n\n{entry}"
    LIST.write_text(text, "utf8")


if __name__ == "__main__":
    main()
