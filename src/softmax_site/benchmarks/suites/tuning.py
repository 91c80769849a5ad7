"""How near the constants come to the best that was found, on seeds they were chosen by and on
others."""

from __future__ import annotations

from pathlib import Path
from statistics import geometric_mean

from softmax_bench import tuned
from softmax_site.benchmarks.page import Fragment, block
from softmax_site.benchmarks.tables import Row, folded, table
from softmax_site.benchmarks.words import percent

NEAR = 0.9
"""The share of the best found from which a cell counts as near it."""


def shares(cells: list[dict], chooser: str) -> list[float]:
    """The share of the best speed that a chooser reaches, in each cell where it was measured."""
    return [share for cell in cells if (share := tuned.share(cell, chooser)) is not None]


def _of(cells: list[dict], chooser: str) -> tuple[str, str, str]:
    found = shares(cells, chooser)
    if not found:
        return "–", "–", "–"
    near = sum(share >= NEAR for share in found) / len(found)
    return f"{geometric_mean(found):.3f}", f"{min(found):.2f}", percent(near)


def sentence(run: dict) -> str:
    """A run in words."""
    cells = run["cells"]
    tried = sum(len(cell["timed"]) for cell in cells) / len(cells)
    told = (
        "measured before any constant was chosen by it"
        if run["unseen"]
        else "by which constants were chosen"
    )
    own, model = (_of(cells, who) for who in tuned.CHOOSERS)
    timed = [len(shares(cells, who)) for who in tuned.CHOOSERS]
    partly = ""
    if min(timed) < len(cells):
        partly = (
            f" The constants’ choice was among those timed in {timed[0]} cells and the model’s in "
            f"{timed[1]}; the shares are over these."
        )
    drew, how_many = f"Seed {run['seed']}", f"{tried:.0f} choices in each"
    if run["seed"] == tuned.LISTED:
        drew = "A list of shapes"
        how_many = f"of the choices tried in each, the fastest {tuned.KEPT} are kept"
    return (
        f"<p>{drew}, {told}: {len(cells)} cells on one {run['environment']['gpu']}, "
        f"{how_many}. In the geometric mean the library’s constants reach "
        f"<b>{own[0]}</b> of the best one’s speed, and the model <b>{model[0]}</b>; at least "
        f"{NEAR:g} of it in {own[2]} and in {model[2]} of the cells.{partly}</p>"
    )


def class_table(run: dict) -> str:
    """A run kind by kind."""
    kinds: dict[tuple[str, ...], list[dict]] = {}
    for cell in run["cells"]:
        kinds.setdefault(tuned.kind(cell), []).append(cell)
    body: list[Row | list[str]] = [["all", str(len(run["cells"])), *_columns(run["cells"])]]
    for kind in sorted(kinds):
        geometry, direction, size = kind
        name = f"{geometry.replace('_', ' ')}, {direction}, {size}"
        body.append([name, str(len(kinds[kind])), *_columns(kinds[kind])])
    head = ["cells", "how many"]
    for who in ("constants", "model"):
        head += [f"{who}: of the best", "worst", f"from {NEAR:g} on"]
    return table(head, body)


def _columns(cells: list[dict]) -> list[str]:
    return [text for who in tuned.CHOOSERS for text in _of(cells, who)]


def fragment(root: Path) -> Fragment:
    """What the page says of the choices that were tried."""
    path = root / tuned.FILE
    runs = tuned.read(path) if path.is_file() else []
    if not runs:
        return Fragment("The choices beside the library’s own have not been measured yet.\n")
    parts = [block(sentence(run) + folded("Kind by kind", class_table(run))) for run in runs]
    return Fragment("\n\n".join(parts) + "\n")
