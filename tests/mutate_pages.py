"""Mistakes of one place, drawn from all that the pages can have: does a check notice them?

    PYTHONPATH=src .venv/bin/python tests/mutate_pages.py --draw 60

A mutant is a page with one place changed, of one kind: a sign, a letter or an index in a display
equation or in a formula of a line; a digit in prose, in a table or in a caption; a line of code
that runs, or a name in the code of a line; a word, as `more` for `less`. Only the checks that read
the page are run, in this process. Nothing is promised of words. The result is
`docs/reference/page-mutants.json`.
"""

import argparse
import functools
import importlib.util
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import held
from site_build import ROOT
from softmax_site import equations

RESULT = ROOT / "docs/reference/page-mutants.json"
TOKEN = re.compile(
    r"\\(?:text|begin|end|operatorname)\s*\{\w*\}|\\[a-zA-Z]+|\\.|\d+(?:\.\d+)?|[A-Za-z]|\S"
)
LATEX = {r"\max": r"\min", r"\le": r"\ge", r"\odot": r"\oslash", r"\sum": r"\max", "+": "-"}
LATEX |= {"i": "j", "m": "d", "x": "y", "N": "M", "=": r"\ne", r"\log": r"\exp"}
LATEX |= {there: here for here, there in LATEX.items()}
CODE = {"+": "-", "*": "/", "<": ">", "max": "min", "==": "!="}
CODE |= {there: here for here, there in CODE.items()}
WORDS = "more less, before after, read written, reads writes, first last, faster slower, largest "
WORDS += "smallest, row column, rows columns, above below, always never, forward backward, longer "
WORDS += "shorter, maximum minimum, once twice, two three, four five, every no, registers memory"
PAIRS = dict(pair.split() for pair in WORDS.split(", "))
PAIRS |= {there: here for here, there in PAIRS.items()}
IN_FENCE = re.compile(
    r"#.*|'[^'\n]*'|\"[^\"\n]*\"|\d+(?:\.\d+)?(?:e[-+]?\d+)?|[A-Za-z_]\w*|[=(,\[] ?-|==|!=|\S"
)
"""Tokens of Python; a sign that stands before a single number goes with what is before it."""
KINDS = ("formulas", "formulas in lines", "numbers", "code", "words")


class Mutant(NamedTuple):
    """A page with one place changed."""

    page: str  # from the root of the repository
    kind: str
    line: int
    change: str
    text: str
    runs: bool  # whether it is in a fence, which runs


def next_digit(number: str) -> str:
    """A number with its last digit raised by one, past 9 to 0.

    >>> next_digit("0.2447"), next_digit("19")
    ('0.2448', '10')
    """
    return number[:-1] + str((int(number[-1]) + 1) % 10)


def changes_of(text: str, token: re.Pattern, instead: dict[str, str]) -> Iterator[tuple]:
    """Where a token may be another: (begin, end, new)."""
    for found in token.finditer(text):
        if found[0] in instead:
            new = instead[found[0]]
            yield *found.span(), new + " " * new.startswith("\\")
        elif found[0][0].isdigit():
            yield *found.span(), next_digit(found[0])


def swapped(text: str, begin: int, length: int) -> tuple[int, int, str]:
    """Two letters in the middle of a name, in the other order."""
    at = begin + length // 2
    return at, at + 2, text[at : at + 2][::-1]


def places(text: str) -> Iterator[tuple[str, int, int, str]]:
    """Each mistake of a page: its kind, where it is, and what is put there."""
    for found in equations.EQUATION.finditer(equations.FENCE.sub(held.blank, text)):
        begin = found.start("latex")
        for at, end, new in changes_of(found["latex"], TOKEN, LATEX):
            yield "formulas", begin + at, begin + end, new
    lines = equations.FENCE.sub(held.blank, text)
    for found in re.finditer(held.INLINE, lines):
        if held.RELATION.search(found[0]) or held.terms(found[0]):
            for at, end, new in changes_of(found[0], TOKEN, LATEX):
                yield "formulas in lines", found.start() + at, found.start() + end, new
    words = held.prose(text)
    for found in held.NUMBER.finditer(words):
        yield "numbers", *found.span(), next_digit(found[0])
    for found in re.finditer(r"(?<![\w-])[a-z]+(?![\w-])", words):
        if found[0] in PAIRS:
            yield "words", *found.span(), PAIRS[found[0]]
    for found in re.finditer(r"`[^`\n]+`", lines):
        for name in held.NAME.finditer(found[0]):
            if "_" in name[0]:
                yield "code", *swapped(text, found.start() + name.start(), len(name[0]))
    for found in re.finditer(r"\[\[(?:code|run) [\w/.:-]+?(?=/\d|\]| )", lines):
        yield "code", *swapped(text, found.end() - 6, 6)
    for found in equations.FENCE.finditer(text):
        head = found[0].split("\n", 1)[0]
        if re.search(r"(`{3,}|~{3,}) *\{?\.?(python|pycon)", head) and not re.search(
            r"notest|fixture", head
        ):
            begin = found.start() + len(head)
            body = text[begin : found.end()]
            for at, end, new in changes_of(body, IN_FENCE, CODE):
                line = body[body.rfind("\n", 0, at) + 1 : end].lstrip()
                printed = "pycon" in head and not line.startswith((">>> ", "... "))
                if printed == new[0].isdigit():  # a number that is given is no claim
                    yield "code", begin + at, begin + end, new


def mutants_of(page: str) -> Iterator[Mutant]:
    """All mutants of a page."""
    text = (ROOT / page).read_text("utf8")
    fences = [found.span() for found in equations.FENCE.finditer(text)]
    for kind, begin, end, new in places(text):
        old = text[begin:end]
        if old != new:
            changed = text[:begin] + new + text[end:]
            line = text.count("\n", 0, begin) + 1
            words = " ".join(text[max(0, begin - 30) : end + 30].split())
            runs = any(first <= begin < last for first, last in fences)
            yield Mutant(page, kind, line, f"{old} → {new.strip()}: {words}", changed, runs)


@functools.cache
def runners():
    """How fences are run: what `conftest.py` gives pytest."""
    spec = importlib.util.spec_from_file_location("of_fences", ROOT / "conftest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fails(mutant: Mutant) -> bool:
    """Whether one of the fences of a page that has changed fails."""
    from pytest_markdown_docs.plugin import FenceSyntax, extract_fence_tests

    def fences(text: str) -> list:
        where = ROOT / mutant.page
        found = extract_fence_tests(
            runners().DocsMarkdown(), text, 0, where, fence_syntax=FenceSyntax.superfences
        )
        return [each for each in found if not each.fixture_names]

    before = {each.source for each in fences((ROOT / mutant.page).read_text("utf8"))}
    for each in fences(mutant.text):
        if each.source not in before:
            runner = runners().Session() if each.runner_name == "Session" else runners().Fence()
            try:
                runner.runtest(each, {}, asyncio_runner=None)
            except BaseException:
                return True
    return False


def noticed(mutant: Mutant) -> bool:
    """Whether a check that reads this page fails."""
    return bool(held.faults(mutant.page, mutant.text)) or (mutant.runs and fails(mutant))


def by_code(mutant: Mutant) -> bool:
    """Whether code of the page or a count holds the number, and not the list alone."""
    number = mutant.change.partition(" ")[0]
    known = held.in_code((ROOT / mutant.page).read_text("utf8"))
    in_code = len(number) > 2 and held.plain(number) in known
    return in_code or bool(held.miscounted(mutant.page, mutant.text))


def all_mutants() -> Iterator[Mutant]:
    for path in sorted((ROOT / "docs").rglob("*.md")):
        page = path.relative_to(ROOT).as_posix()
        if not page.startswith("docs/_"):
            yield from mutants_of(page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draw", type=int, default=60, help="how many mutants of each kind")
    parser.add_argument("--seed", type=int, default=20261128)
    options = parser.parse_args()
    mutants = list(all_mutants())
    random.Random(options.seed).shuffle(mutants)
    drawn = [m for kind in KINDS for m in [m for m in mutants if m.kind == kind][: options.draw]]
    survivors, found = [], Counter()
    for mutant in drawn:
        if noticed(mutant):
            found[mutant.kind] += 1
            found["by code"] += mutant.kind == "numbers" and by_code(mutant)
        else:
            place = f"{mutant.page}:{mutant.line}"
            survivors.append({"place": place, "kind": mutant.kind, "change": mutant.change})
            print("SURVIVED", mutant.kind, place, mutant.change, flush=True)
    of, taken = (Counter(m.kind for m in each) for each in (mutants, drawn))
    kinds = {k: {"of": of[k], "drawn": taken[k], "noticed": found[k]} for k in KINDS}
    kinds["numbers"]["by_code"] = found["by code"]
    result = {"seed": options.seed, "kinds": kinds, "survivors": survivors}
    RESULT.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", "utf8")
    print(json.dumps(kinds, indent=1))


if __name__ == "__main__":
    main()
