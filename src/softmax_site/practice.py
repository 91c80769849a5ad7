"""The exercises on the pages: what stands there without a script, and the file that the script
loads. The exercises lie in `exercises/`, and `softmax_playground.checker` checks them."""

from __future__ import annotations

import json
import re
import textwrap
from itertools import count
from pathlib import Path

import markdown

from softmax_playground.checker import course
from softmax_playground.checker.course import Exercise
from softmax_site import source
from softmax_site.benchmarks.page import Fragment, Rendered
from softmax_site.listing import coloured
from softmax_site.templates import filled
from softmax_tutorial import ladder_table

FOLDER = course.FOLDER
ASSET = "assets/practice.json"
CHECKER = (
    *(f"checker/{name}.py" for name in ("judge", "rows", "timed")),
    *(f"checker/{name}.py" for name in ("with_small_triton", "in_page")),
    *(f"small_triton/{name}.py" for name in ("right", "probes", "refusals")),
)
"""What a page runs of `src/softmax_playground`, beside the small Triton that cells have too."""


def coloured_block(text: str) -> str:
    """Code as a block in its colours; nothing of none."""
    shown = "\n".join(map(coloured, source.tokens(text.rstrip())))
    return text and f'<div class="highlight"><pre><code>{shown}\n</code></pre></div>'


def html(text: str) -> str:
    """Markdown as HTML that stands in a fold, with the addresses that pages have in the site."""
    found = markdown.markdown(text)
    return re.sub(r'href="\.\./([\w/-]+?)(?:/?index)?\.md', r'href="/\1/', found)


def exercise(each: Exercise, level: int) -> str:
    """An exercise as Markdown: a heading of that level, and its box."""
    solved = "\n…\n".join(textwrap.dedent(piece).rstrip() for piece in each.solved)
    helpers = {"html": html, "coloured": coloured_block}
    return filled("exercise", each=each, level=level, solved=solved, **helpers)


def render(root: Path) -> Rendered:
    """The fragments `exercises` and `course-PAGE`, `exercise-NAME` for the end of another page, and
    the file to load."""
    exercises = course.load(root)
    own = root / "src/softmax_playground"
    files = {f"softmax_playground/{path}": (own / path).read_text("utf8") for path in CHECKER}
    folders = {parent for path in files for parent in Path(path).parents[:-1]}
    packages = {f"{folder}/__init__.py": "" for folder in sorted(folders)}
    sheets = json.dumps({name: [each.check, each.solution] for name, each in exercises.items()})
    files |= {"sheets.json": sheets, "ladder.json": json.dumps(ladder_table.basis(root))}
    asset = {"files": packages | files, "names": list(exercises)}
    text = json.dumps(asset, ensure_ascii=False, separators=(",", ":"))
    out = Rendered(assets={ASSET: text})
    stages, number = {}, count(1)
    for page, (title, names) in course.stages(root).items():
        stages[page] = title, [(next(number), exercises[name]) for name in names]
        text = "\n".join(exercise(exercises[name], 2) for name in names)
        out.fragments[f"course-{page}"] = Fragment(text)
    for name, each in exercises.items():
        out.fragments[f"exercise-{name}"] = Fragment(exercise(each, 3))
    out.fragments["exercises"] = Fragment(filled("exercises", stages=stages))
    return out
