"""The exercises on the pages: what stands there without a script, and the file that the script
loads. The exercises lie in `exercises/`, and `softmax_playground.checker` checks them."""

from __future__ import annotations

import json
import re
import textwrap
from html import escape
from pathlib import Path

import markdown

from softmax_playground.checker import course
from softmax_playground.checker.course import Exercise
from softmax_site import source
from softmax_site.benchmarks.page import Fragment, Rendered
from softmax_site.listing import coloured

FOLDER = course.FOLDER
ASSET = "assets/practice.json"
CHECKER = (
    *(f"checker/{name}.py" for name in ("judge", "rows", "lab", "with_small_triton", "in_page")),
    *(f"small_triton/{name}.py" for name in ("right", "probes", "refusals")),
)
"""What a page runs of `src/softmax_playground`, beside the small Triton that cells have too."""


def _coloured(text: str) -> str:
    """Coloured code."""
    shown = "\n".join(map(coloured, source.tokens(text.rstrip())))
    return f'<div class="highlight"><pre><code>{shown}\n</code></pre></div>'


def _html(text: str) -> str:
    """Markdown as HTML that stands in a fold, with the addresses that pages have in the site."""
    found = markdown.markdown(text)
    return re.sub(r'href="\.\./([\w/-]+?)(?:/?index)?\.md', r'href="/\1/', found)


def _solution(each: Exercise) -> str:
    """What a solution fills in, in a fold; the script puts the whole of it into the editor."""
    shown = "\n…\n".join(textwrap.dedent(piece).rstrip() for piece in each.solved)
    whole = escape(each.solution.rstrip())
    return (
        f'<details class="solution" data-source="{whole}"><summary>Solution</summary>'
        f"{_coloured(shown)}</details>"
    )


def box(each: Exercise) -> str:
    """An exercise in a fold: its text, where the reader answers, hints, solution. Without a script
    the code stands there, to read; the script makes an editor or a field of it."""
    command = f"<code>python -m exercises {each.name}</code>"
    head = f'<summary class="exercise-head"><span>{each.facts}</span> {command}</summary>'
    if each.kind in ("predict", "find the shape"):
        code = each.start.replace("ANSWER = ...\n\n\n", "").replace("ANSWER = ...", "").strip()
        shown = _coloured(code) if code else ""
        source = f' data-source="{escape(each.start.rstrip())}"'
    else:
        code, source = f"<pre><code>{escape(each.start)}</code></pre>", ""
        shown = f'<div class="editor highlight no-copy">{code}</div>'
    hints = "".join(
        f'<details class="tip"><summary>Hint {number}</summary>{_html(hint)}</details>'
        for number, hint in enumerate(each.hints, 1)
    )
    return (
        f'<details class="exercise" data-exercise="{each.name}"{source} data-search-exclude>\n'
        f'{head}<div class="exercise-text">{_html(each.text)}</div>{shown}'
        f'<div class="exercise-help">{hints}{_solution(each)}</div>\n</details>\n'
    )


def exercise(each: Exercise) -> str:
    """An exercise as Markdown: its heading, what it teaches, and its box."""
    teaches = f"Teaches: {each.teaches}.\n{{ .exercise-facts }}\n"
    return "\n".join([f"## {each.title} {{ #{each.anchor} }}\n", teaches, box(each)])


def listing(exercises: dict[str, Exercise], root: Path) -> str:
    """All exercises as the index of the practice has them."""
    out, number = [], 0
    for page, (title, names) in course.stages(root).items():
        items = []
        for name in names:
            each, number = exercises[name], number + 1
            items.append(
                f'<li value="{number}" data-exercise-name="{name}">'
                f'<a href="{page}/#{each.anchor}">{escape(each.title)}</a>: {escape(each.teaches)} '
                f'<span class="exercise-kind">{each.facts.lower()}</span></li>'
            )
        head = f'<p class="exercise-group"><a href="{page}/">{escape(title)}</a></p>'
        out.append(f"<div>{head}<ol>{''.join(items)}</ol></div>")
    return '<div class="exercise-list" data-search-exclude>\n' + "\n".join(out) + "\n</div>\n"


def render(root: Path) -> Rendered:
    """The fragments `exercises` and `course-PAGE`, and the file to load."""
    exercises = course.load(root)
    own = root / "src/softmax_playground"
    files = {f"softmax_playground/{path}": (own / path).read_text("utf8") for path in CHECKER}
    folders = {parent for path in files for parent in Path(path).parents[:-1]}
    packages = {f"{folder}/__init__.py": "" for folder in sorted(folders)}
    sheets = json.dumps({name: [each.check, each.solution] for name, each in exercises.items()})
    asset = {"files": {**packages, **files, "sheets.json": sheets}, "names": list(exercises)}
    text = json.dumps(asset, ensure_ascii=False, separators=(",", ":"))
    out = Rendered(assets={ASSET: text})
    out.fragments["exercises"] = Fragment(listing(exercises, root))
    for page, (_, names) in course.stages(root).items():
        text = "\n".join(exercise(exercises[name]) for name in names)
        out.fragments[f"course-{page}"] = Fragment(text)
    return out
