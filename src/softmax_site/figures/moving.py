"""Figures that a reader moves: what a page includes of them, and the picture that it shows first.

A figure is a module of `docs/assets/figures/`, which computes its numbers and draws them; this file
has its caption and the data that it needs from Python. The first picture is drawn by that module
too, in Chromium, and committed in `frames/` (`python -m softmax_site.figures`), so that a page
without script shows it; a browser test draws it again and compares.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from softmax_bench import traffic
from softmax_bench.report import by_case, gbs, timed
from softmax_site.benchmarks.data import newest, of_suite
from softmax_site.benchmarks.page import Fragment, measured_by
from softmax_site.figures.moved import moved

ASSETS = "docs/assets"
FRAMES = "src/softmax_site/figures/frames"
TRACE = "src/softmax_site/figures/split_rows_trace.json"


class Moving(NamedTuple):
    """A figure of a page."""

    module: str
    """Which draws it, without suffix."""
    caption: str
    data: Callable[[Path], Any] = lambda root: None
    """What its module is given, as JSON."""


EXPONENTIALS = 132 * 16 * 1.98e9
"""Exponentials that an H200 computes in a second: multiprocessors, special functions of each in a
clock (CUDA C++ programming guide, arithmetic instructions, compute capability 9.0), clocks."""


STRIDED = {"strided": "strided", "split_strided": "strided", "strided_loops": "two_loops"}
"""Kernels over strands, and which kernel over rows moves as much."""


def moved_by(way: str) -> dict[str, float]:
    """For each kernel, how often an element is moved, in a matrix of long rows; for torch, whose
    kernels are not counted, the least that is possible.

    >>> moved_by("forward")["naive"], moved_by("backward")["strided_loops"]
    (8, 5)
    """
    table = traffic.FORWARD if way == "forward" else traffic.BACKWARD
    every = {name: name for name in table} | STRIDED | {"torch": "single_block"}
    return {name: table[like].reads_mn + table[like].writes_mn for name, like in every.items()}


def roofline(root: Path) -> dict:
    """What was measured of each kernel: (way, type, columns or length of a strand, name, elements a
    second, how often it moves an element, bytes a second of the copy in the same case)."""
    found = newest(root)
    points = {}
    for suite in ("ladder", "strided"):
        for group in by_case(of_suite(found[1], suite) if found else []).values():
            copy = group["copy"]
            way, shape = copy["direction"], copy["shape"]
            for provider, row in group.items():
                time = timed(row)
                if not time or copy["layout"] != "contiguous":
                    continue
                kernel = row["kernels"][0].removesuffix("_kernel") if row["kernels"] else ""
                name = kernel if provider == "strided" else provider
                if name in moved_by(way) and (name, suite) != ("torch", "strided"):
                    speed = round(math.prod(shape) / (time * 1e-6))
                    of_copy = round((gbs(copy) or 0) * 1e9)
                    moves = moved_by(way)[name]
                    key = way, copy["dtype"], shape[copy["dim"]], name
                    known = points.get(key)  # of two shapes with strands of this length
                    if known is None or speed > known[4]:
                        points[key] = [*key, speed, moves, of_copy]
    lengths = sorted({length for _, _, length, name in points if name == "naive"})
    return {"exponentials": EXPONENTIALS, "lengths": lengths, "points": list(points.values())}


def traces(root: Path) -> dict[str, list]:
    """Events of the programs of a row (`softmax_site.computed.split_rows_trace`)."""
    return json.loads((root / TRACE).read_text("utf8"))


FIGURES = {
    "softmax": Moving(
        "softmax",
        "Left a row, right its softmax. The outlines are the shares without shift, at temperature "
        "1. Drag the dots, or move them with the arrow keys.",
    ),
    "jacobian": Moving(
        "jacobian",
        "A row, its softmax, and all 25 derivatives: blue where an output grows with an input, "
        "orange where it shrinks. Drag the dots of the row, or move them with the arrow keys.",
        lambda root: {"vjp": False},
    ),
    "vjp": Moving(
        "jacobian",
        "Both routes to the gradient, computed as you move the row <i>x</i> or the gradient "
        "<i>dy</i>: through the matrix, and by one dot product. The dashed line is the mean "
        "<i>s</i> of <i>dy</i> with the weights <i>y</i>.",
        lambda root: {"vjp": True},
    ),
    "merge": Moving(
        "merge",
        "The same eight numbers, merged in a tree; move its first cut. An orange edge scales its "
        "sum down, a blue one keeps it. Computed in float32, rounded after every operation.",
    ),
    "rounding": Moving(
        "rounding",
        "Dots: measured here, in float32, on rows of numbers spread evenly; left the worst of four "
        "rows, right the worst of 1,024 exponentials. Dashed: the bounds of this page. All axes "
        "are logarithmic; <i>u</i> is 2⁻²⁴.",
    ),
    "online": Moving(
        "online",
        "A row is read from left to right. Blue is the largest number so far; when a larger one "
        "arrives, everything read before shrinks, and the sum with it, by the same factor.",
    ),
    "attention": Moving(
        "attention",
        "One query and six keys, one after another. Grey: what was there before, first as it was, "
        "then rescaled; blue or orange: what the key adds. Drag scores and values.",
    ),
    "bytes": Moving(
        "bytes",
        "The elements that each rung asks for, blue read and grey written, moved at the same "
        "speed. Every block is one pass over a matrix in the trace of a run: of the rung’s own "
        "kernel in the small Triton that <a href='../reference/verified/#in-the-page'>runs in "
        "these pages</a>, or of a kernel for each line of the naive one.",
        moved,
    ),
    "packed": Moving(
        "packed",
        "Rows in tiles; two shades tell programs apart. The sides of a tile are powers of two, so "
        "that one tile is often too wide. Several narrow ones, side by side, leave fewer lanes "
        "empty; the library uses those for short rows.",
    ),
    "aligned": Moving(
        "aligned",
        "The first rows of a matrix without gaps. Blue: whole vectors of 16 bytes, each one "
        "access. Orange: head and tail, fewer elements than a vector each.",
    ),
    "split-rows": Moving(
        "timeline",
        "One row in four chunks. The events are those of a run of <code>split_rows_simple</code> "
        "in Triton’s interpreter, its programs side by side; how long a read, a poll and a write "
        "take is assumed. A dashed line: from here on the word of a chunk is there.",
        lambda root: {"absent": -1, "traces": traces(root)},
    ),
    "split-rows-alone": Moving(
        "timeline",
        "The same row when program 2 has no room. The others poll for a limited time, and then "
        "each reads the missing chunk itself; the whole kernel also publishes its word. Choose who "
        "is missing, and how patient the others are. Events from runs of "
        "<code>split_rows_simple</code>, with assumed durations.",
        lambda root: {"absent": 2, "traces": traces(root)},
    ),
    "roofline": Moving(
        "roofline",
        "Measured speeds over the bytes that a kernel asks for; for strided kernels, the strands "
        "nearest in length. PyTorch stands where the fewest bytes would put it, since its kernels "
        "are not counted. The roof is a copy as measured in the same case and, far above softmax, "
        "one exponential an element: 132 multiprocessors (16 a clock each, "
        '<a href="https://docs.nvidia.com/cuda/cuda-c-programming-guide/'
        'index.html#arithmetic-instructions">NVIDIA’s table</a>) at 1.98 GHz.',
        roofline,
    ),
    "strided": Moving(
        "strided",
        "Each program takes neighbouring strands over their whole length; two shades tell programs "
        "apart. A dashed line is where a sector of 32 bytes begins, the least that memory moves.",
    ),
}


def frame_path(name: str) -> str:
    """Where the first picture of a figure lies."""
    return f"{FRAMES}/{name}.html"


def figure(name: str, root: Path) -> str:
    """A figure as a page includes it: picture, caption, data."""
    module, caption, data = FIGURES[name]
    frame = (root / frame_path(name)).read_text("utf8")
    given = json.dumps(data(root), ensure_ascii=False, separators=(",", ":"))
    given = given.replace("</", "<\\/")
    return (
        f'<div class="moving" id="figure-{name}" data-figure="{module}" data-search-exclude>\n'
        f"<figure>\n{frame}<figcaption>{caption}</figcaption>\n</figure>\n"
        f'<script type="application/json">{given}</script>\n</div>\n'
    )


def fragments(root: Path) -> dict[str, Fragment]:
    """The figures by the name that a page includes them by, and what the measured one rests on."""
    found = newest(root)
    measured = of_suite(found[1], "ladder") + of_suite(found[1], "strided") if found else []
    names = tuple(sorted({row["provider"] for row in measured} & {*traffic.FORWARD}))
    return {
        f"moving-{name}": Fragment(
            figure(name, root), measured_by(measured, names) if name == "roofline" else None
        )
        for name in FIGURES
        if (root / frame_path(name)).is_file()
    }


_DRAW = """async (figures) => {
    const { frame } = await import("/figures/moving.js");
    const drawn = {};
    for (const [name, module, data] of figures) {
        drawn[name] = frame((await import(`/figures/${module}.js`)).default, data);
    }
    return drawn;
}"""


def draw(view: Any, root: Path) -> dict[str, str]:
    """The first pictures as their modules draw them in a tab of Chromium."""
    address = "http://figures.invalid/"

    def answer(route: Any) -> None:
        path = root / ASSETS / route.request.url.removeprefix(address)
        if path.is_file():
            route.fulfill(path=path, content_type="text/javascript")
        else:
            route.fulfill(body="<!doctype html>", content_type="text/html")

    view.route(f"{address}**", answer)
    view.goto(address)
    given = [[name, each.module, each.data(root)] for name, each in FIGURES.items()]
    return view.evaluate(_DRAW, given)


def frames(root: Path) -> dict[str, str]:
    """The first pictures by path, drawn in a Chromium of its own."""
    import shutil

    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        drawn = draw(browser.new_page(), root)
        browser.close()
    return {frame_path(name): text for name, text in drawn.items()}
