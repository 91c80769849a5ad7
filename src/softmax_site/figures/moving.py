"""Figures that a reader moves: what a page includes of them, and the picture that it shows first.

A figure is a module of `docs/assets/figures/`, which computes its numbers and draws them; this file
has the data that it needs from Python, and a page its caption. The first picture is drawn by that
module too, in Chromium, and committed in `frames/` (`python -m softmax_site.figures`), so that a
page without script shows it; a browser test draws it again and compares.
"""

from __future__ import annotations

import contextlib
import json
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from softmax_bench import traffic
from softmax_bench.cases import BOTH
from softmax_bench.report import by_case, gbs, timed
from softmax_bench.roster import RUNGS
from softmax_site.benchmarks.data import measurements, of_suite
from softmax_site.figures.moved import moved

ASSETS = "docs/assets"
FRAMES = "src/softmax_site/figures/frames"
TRACES = "src/softmax_site/figures/{}_trace.json"


class Moving(NamedTuple):
    """A figure of a page."""

    module: str
    """Which draws it, without suffix."""
    data: Callable[[Path], Any] = lambda root: None
    """What its module is given, as JSON."""
    still: bool = False
    """Whether it is only its picture."""


class NotMeasured(LookupError):
    """What a figure shows is not among the data."""


MULTIPROCESSORS = 132
EXPONENTIALS = MULTIPROCESSORS * 16 * 1.98e9
"""Exponentials that an H100 or H200 on an SXM board computes in a second: multiprocessors, special
functions of each in a clock (CUDA C++ programming guide, arithmetic instructions, compute
capability 9.0), clocks."""

STRIDED = {"strided": "strided", "split_strided": "strided", "two_pass": "two_loops"}
"""Kernels over columns, and which kernel over rows moves as much."""


def moved_by(way: str) -> dict[str, float]:
    """For each kernel, how often an element is moved, in a matrix of long rows; for torch, whose
    kernels are not counted, the least that is possible.

    >>> moved_by("forward")["naive"], moved_by("backward")["two_pass"]
    (8, 5)
    """
    table = traffic.FORWARD if way == "forward" else traffic.BACKWARD
    every = {name: name for name in table} | STRIDED | {"torch": "single_block"}
    return {name: table[like].reads_mn + table[like].writes_mn for name, like in every.items()}


def roofline(root: Path) -> dict:
    """What was measured of each kernel: (way, type, length of a row or column, name, elements a
    second, how often it moves an element, bytes a second of the copy in the same case).

    Raises:
        NotMeasured: the data have no ladder.
    """
    points, data = {}, measurements(root)
    for suite in ("ladder", "strided"):
        for group in by_case(of_suite(data, suite)).values():
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
                    known = points.get(key)  # of two shapes with columns of this length
                    if known is None or speed > known[4]:
                        points[key] = [*key, speed, moves, of_copy]
    lengths = sorted({length for _, _, length, name in points if name == "naive"})
    if not lengths:
        raise NotMeasured("no times of the ladder")
    return {"exponentials": EXPONENTIALS, "lengths": lengths, "points": list(points.values())}


def traces(root: Path, of: str = "split_rows") -> dict[str, list]:
    """Events of a kernel's run, by what was chosen (`softmax_site.computed`)."""
    return json.loads((root / TRACES.format(of)).read_text("utf8"))


SCENES = "memory lines three two one pairs programs gpus backward measured".split()
ROWS = [2048, 65536]
"""Which rows the explainer's times are of, in float32."""


def one_row(root: Path) -> dict:
    """What the explainer shows: passes and events of traces, and times in µs.

    Raises:
        NotMeasured: the data have no such rows.
    """
    out: dict[str, Any] = {"copies": {}}
    for group in by_case(of_suite(measurements(root), "ladder", dtype="float32")).values():
        copy = group["copy"]
        if copy["shape"] == ROWS and timed(copy):
            times = {name: us for name, row in group.items() if (us := timed(row))}
            out[copy["direction"]] = times
            out["copies"][copy["direction"]] = {n: us / times["copy"] for n, us in times.items()}
            out["exponentials"] = EXPONENTIALS / ((gbs(copy) or 0) * 1e9 / 4)
    if not all({*RUNGS, "torch"} - {"strided"} <= {*out.get(way, ())} for way in BOTH):
        raise NotMeasured(f"no times of {ROWS[0]:,} × {ROWS[1]:,}, float32")
    out["gap"] = out["forward"]["split_rows"] / out["forward"]["copy"] - 1
    events = {"passes": moved(root), "split": traces(root)["-1 8"]}
    return out | events | {"multiprocessors": MULTIPROCESSORS}


FIGURES = {
    "softmax": Moving("softmax"),
    "jacobian": Moving("jacobian", lambda root: {"vjp": False}),
    "vjp": Moving("jacobian", lambda root: {"vjp": True}),
    "merge": Moving("merge"),
    **{name: Moving(name) for name in ("rounding", "online", "attention", "cross-entropy")},
    **{name: Moving(name) for name in ("attention-vectors", "causal")},
    "score-modifiers": Moving("modifiers"),
    "bytes": Moving("bytes", moved),
    "packed": Moving("packed"),
    "aligned": Moving("aligned"),
    "split-rows": Moving("timeline", lambda root: {"absent": -1, "traces": traces(root)}),
    "split-rows-alone": Moving("timeline", lambda root: {"absent": 2, "traces": traces(root)}),
    "roofline": Moving("roofline", roofline),
    "strided": Moving("strided"),
    "warp-groups": Moving("warp-groups", lambda root: traces(root, "warp_groups")),
    **{
        f"one-row-{name}": Moving("one-row", lambda root, n=n: one_row(root) | {"scene": n}, n > 0)
        for n, name in enumerate(SCENES)
    },
}


def frame_path(name: str) -> str:
    """Where the first picture of a figure lies."""
    return f"{FRAMES}/{name}.html"


def figure(name: str, root: Path) -> tuple[dict[str, str], str, str]:
    """What stands around a figure, its first picture, and the data for its module; of a figure that
    lacks its data that this is so."""
    module, data, still = FIGURES[name]
    try:
        values = data(root)
    except NotMeasured:
        return {"class": "drawing"}, "<p>Not measured yet.</p>", ""
    around, picture = {"class": "moving", "id": f"figure-{name}"}, root / frame_path(name)
    if still:
        narrow = picture.read_text("utf8").partition('<div class="panels" data-width="300"')
        return around, "".join(narrow[1:]), ""
    given = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    given = given.replace("</", "<\\/")
    script = f'<script type="application/json">{given}</script>'
    return around | {"data-figure": module}, picture.read_text("utf8"), script


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
    given = []
    for name, each in FIGURES.items():
        with contextlib.suppress(NotMeasured):
            given.append([name, each.module, each.data(root)])
    return view.evaluate(_DRAW, given)


CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "chrome")
"""What the browser may be called."""


@contextlib.contextmanager
def tab(**viewport: int) -> Iterator[Any]:
    """A tab in a Chromium of its own."""
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, CHROMIUM)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser.new_page(viewport=viewport or None)  # pyright: ignore[reportArgumentType]
        browser.close()


def frames(root: Path) -> dict[str, str]:
    """The first pictures by path, drawn in Chromium."""
    with tab() as view:
        return {frame_path(name): text for name, text in draw(view, root).items()}
