"""The exercises on the pages: what stands there without a script, and the file that the script
loads. The exercises lie in `exercises/`, and `softmax_playground.checker` checks them."""

from __future__ import annotations

import ast
import difflib
import itertools
import json
import re
import textwrap
from html import escape
from pathlib import Path
from typing import NamedTuple

from softmax_playground.checker.exercise_checks import EXERCISES
from softmax_site import equations, source
from softmax_site.benchmarks.page import Fragment, Rendered
from softmax_site.listing import coloured

FOLDER = "exercises"
ASSET = "assets/practice.json"
CHECKER = ("judge.py", "exercise_checks.py", "with_small_triton.py", "in_page.py")
"""What a page runs of `src/softmax_playground/checker`."""

KINDS = {"predict": "Predict", "fill in": "Fill in", "find the bug": "Find the bug"}

_SHOWN = re.compile(r"^\[\[rendered exercise-([\w-]+)\]\]$", re.M)


class Exercise(NamedTuple):
    """One exercise."""

    name: str
    kind: str
    """A key of `KINDS`."""
    title: str
    skeleton: str
    """What the reader starts from."""
    solution: str

    @property
    def anchor(self) -> str:
        """Where its page has it."""
        return self.name.replace("_", "-")

    @property
    def filled(self) -> set[int]:
        """The lines of the solution, from 1, that the skeleton does not have."""
        before, after = self.skeleton.splitlines(), self.solution.splitlines()
        matcher = difflib.SequenceMatcher(None, before, after, False)
        return {
            number
            for what, _, _, first, last in matcher.get_opcodes()
            if what != "equal"
            for number in range(first + 1, last + 1)
        }


def load(root: Path) -> dict[str, Exercise]:
    """Every exercise by name, in order."""
    folder = root / FOLDER
    out = {}
    for name, kind, title, _ in EXERCISES:
        skeleton = (folder / f"{name}.py").read_text("utf8")
        solution = (folder / "solutions" / f"{name}.py").read_text("utf8")
        out[name] = Exercise(name, kind, title, skeleton, solution)
    return out


def _coloured(text: str) -> str:
    """Coloured code."""
    shown = "\n".join(map(coloured, source.tokens(text.rstrip())))
    return f'<div class="highlight"><pre><code>{shown}\n</code></pre></div>'


def asked(skeleton: str) -> tuple[str, str]:
    """The question of an exercise in which a number is predicted, and the code that it is about.

    >>> asked("'Predict. How many?' ANSWER = ... x = 1".replace(" ANSWER", "\\nANSWER"))
    ('How many?', 'x = 1')
    """
    words, _, code = skeleton.partition("ANSWER = ...")
    question = ast.get_docstring(ast.parse(words)) or ""
    return " ".join(question.removeprefix("Predict. ").split()), code.strip()


def exercise(each: Exercise) -> str:
    """The exercise as it stands in its page; the script makes an editor or a field of it."""
    attribute = ""
    if each.kind == "predict":
        question, code = asked(each.skeleton)
        attribute = f' data-source="{escape(each.skeleton.rstrip())}"'
        body = f'<p class="exercise-question">{escape(question)}</p>\n'
        if code:
            body += f"<details><summary>The kernel</summary>{_coloured(code)}</details>"
    else:
        code = f"<pre><code>{escape(each.skeleton)}</code></pre>"
        body = f'<div class="editor highlight no-copy">{code}</div>'
    return (
        f'<div class="exercise" data-exercise="{each.name}"{attribute} data-search-exclude>\n'
        f'<p class="exercise-head"><span class="exercise-kind">{KINDS[each.kind]}</span> '
        f"<code>{FOLDER}/{each.name}.py</code></p>\n"
        f"{body}\n</div>\n"
    )


def solution(each: Exercise) -> str:
    """What a solution fills in, in a fold; the script puts the whole of it into the editor."""
    whole, groups = each.solution.splitlines(), []
    for number in sorted(each.filled):
        if number - 1 not in each.filled:
            groups.append([])
        groups[-1].append(whole[number - 1])
    shown = "\n…\n".join(textwrap.dedent("\n".join(group)) for group in groups)
    return (
        f'<details class="solution" data-solution="{each.name}" data-search-exclude '
        f'data-source="{escape(each.solution.rstrip())}"><summary>Solution</summary>\n'
        f"{_coloured(shown)}\n</details>\n"
    )


def pages(root: Path) -> dict[str, list[str]]:
    """The exercises of each page that has some, in order."""
    found = {}
    for page in equations.load(root).titles:
        text = (root / "docs" / page).read_text("utf8")
        if names := [name.replace("-", "_") for name in _SHOWN.findall(text)]:
            found[page] = names
    return found


def listing(exercises: dict[str, Exercise], root: Path) -> str:
    """All exercises as the index of the practice has them."""
    out, count = [], itertools.count(1)
    for path, names in pages(root).items():
        items, page = [], Path(path).stem
        for name, number in zip(names, count):
            each = exercises[name]
            items.append(
                f'<li value="{number}" data-exercise-name="{name}">'
                f'<a href="{page}/#{each.anchor}">{escape(each.title)}</a> '
                f'<span class="exercise-kind">{KINDS[each.kind].lower()}</span></li>'
            )
        of_page = equations.load(root).titles[path].partition(":")[0]
        title = f'<p class="exercise-group"><a href="{page}/">{of_page}</a></p>'
        out.append(f"<div>{title}<ol>{''.join(items)}</ol></div>")
    return '<div class="exercise-list" data-search-exclude>\n' + "\n".join(out) + "\n</div>\n"


def render(root: Path) -> Rendered:
    """The fragments `exercises`, `exercise-NAME` and `solution-NAME`, and the file to load."""
    exercises = load(root)
    checker = root / "src/softmax_playground/checker"
    files = {f"checker/{name}": (checker / name).read_text("utf8") for name in CHECKER}
    asset = {"files": files, "names": list(exercises)}
    text = json.dumps(asset, ensure_ascii=False, separators=(",", ":"))
    out = Rendered(assets={ASSET: text})
    out.fragments["exercises"] = Fragment(listing(exercises, root))
    for each in exercises.values():
        out.fragments[f"exercise-{each.anchor}"] = Fragment(exercise(each))
        out.fragments[f"solution-{each.anchor}"] = Fragment(solution(each))
    return out
