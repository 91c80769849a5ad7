"""The file with the tutorial's kernels that a reader takes along, and how these stand beside the
library."""

from __future__ import annotations

import re
from pathlib import Path

from softmax_bench.report import by_case
from softmax_bench.roster import CHOOSER
from softmax_site.benchmarks.data import n_cols, of_suite
from softmax_site.benchmarks.page import Fragment, Rendered, shown
from softmax_site.benchmarks.tables import share_of, table
from softmax_site.benchmarks.words import kernel_words

FILE = "examples/softmax.py"
PATH = "assets/take-home/softmax.py"
"""Where the site has the file."""
DTYPE = "bfloat16"
"""The type of which the page has figures."""


def shares(data: dict, longest: int) -> Fragment:
    """What the kernels of the file and the library reach of a copy's speed, length by length."""
    rows = of_suite(data, "ladder", dtype=DTYPE)
    lines: dict[int, list] = {}
    for group in by_case(rows).values():
        row = group[CHOOSER]
        mine = "single_block" if n_cols(row) <= longest else "two_loops"
        line = lines.setdefault(n_cols(row), [f"{n_cols(row):,}", mine.replace("_", " ")])
        found = [share_of(group, name) for name in (mine, CHOOSER)]
        line += [f"{each:.2f}" if each else "–" for each in found]
        if row["direction"] == "forward":
            line.append(kernel_words(row))
    head = ["columns", "in the file", "forward, file", "library", "by"]
    head += ["backward, file", "library"]
    caption = f"Shares of a copy's speed, {DTYPE}."
    body = table(head, lines.values(), 2, (4,), caption=caption)
    return shown(body, rows, told=True)


def render(root: Path, data: dict) -> Rendered:
    """The file, its text on the page, and how its kernels stand beside the library."""
    text = (root / FILE).read_text("utf8")
    longest = int(re.findall(r"^LONGEST = (\d+)", text, re.M)[0])
    lines = "\n".join(f"    {line}".rstrip() for line in text.splitlines())
    title = f'???+ code "softmax.py, {len(text.splitlines())} lines"'
    listing = f"{title}\n\n    ```{{.python .excerpt}}\n{lines}\n    ```\n"
    return Rendered(
        {"take-home": Fragment(listing), "take-home-shares": shares(data, longest)}, {PATH: text}
    )
