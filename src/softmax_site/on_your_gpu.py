"""The ladder on a reader's GPU: what the command prints, and the command in a notebook.

The notebook clones the repository, whose address is known when the site is built: `REPO_URL`. Colab
opens only what lies in a repository on GitHub, so `REPO_URL=… python -m softmax_site.on_your_gpu`
writes the same notebook there, to be committed; the page links to Colab where that was done.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from softmax_bench import traffic
from softmax_playground.checker import course, timed
from softmax_site.benchmarks.page import NOT_MEASURED, Fragment, measured_by, shown
from softmax_site.benchmarks.tables import table
from softmax_tutorial.ladder_table import LADDER, basis, committed, figures, report

PAGE = "use/on-your-gpu.md"
DOWNLOAD = "assets/take-home/on-your-gpu.ipynb"
"""Where the site has the notebook."""
COMMITTED = "notebooks/on-your-gpu.ipynb"
"""Where the repository has it."""
GITHUB = "https://github.com/"


def expected(data: dict) -> Fragment:
    """What the command prints on the GPU on which the ladder was measured."""
    found = figures(data["rows"])
    rows = [found[name] for name in LADDER if name in found]
    if len(rows) < len(LADDER):
        return NOT_MEASURED
    times = {row["provider"]: row["us"]["p50"] for row in rows}
    text = report(times, rows[0]["environment"], moved=rows[0]["bytes"], beside={})
    return Fragment(f"```text\n{text}\n```\n", measured_by(rows))


WARPS = {"three_loops": (8,), "two_loops": (2, 4, 8, 16)}
"""Of a program of the rungs that read a row again; the tuner of two loops takes the best."""


def predicted(measured: dict) -> Iterator[tuple[str, int, float, float]]:
    """(rung, numbers moved for each of the matrix, predicted, measured microseconds); `measured` is
    a `ladder_table.basis`."""
    for label, us in measured["rungs"][1:]:
        name = label.replace(" ", "_")
        # What the library chooses moves as little as any.
        moves = traffic.FORWARD.get(name, traffic.FORWARD["split_rows"])
        numbers = moves.reads_mn + moves.writes_mn
        again = moves.reads_mn - 1 if name in WARPS else 0
        ways = (timed.predicted(measured, numbers, again, w) for w in WARPS.get(name, (16,)))
        yield label, numbers, min(ways), us


def predictions(root: Path) -> Fragment:
    """Each rung as it is predicted, beside what it takes."""
    measured = basis(root)
    if not measured:
        return NOT_MEASURED
    lines = []
    for label, numbers, us, took in predicted(measured):
        off = f"{100 * (us / took - 1):+.0f} %".replace("-", "−")
        lines.append([label, str(numbers), f"{us:,.0f}", f"{took:,.0f}", off])
    head = ["", "numbers moved", "predicted, µs", "measured, µs", "off by"]
    body = table(head, lines, caption=f"{measured['matrix']}, float32, {measured['gpu']}.")
    return shown(body, [*committed(root).values()])


def notebook(repository: str | None) -> str:
    """The notebook, which clones the repository, or without an address runs in a clone of it."""
    kernel = course.read(Path(__file__).parents[2] / course.FOLDER / "single_block.py")
    get = "# In a clone of the repository, whose folder the notebook is run in."
    if repository:
        get = f"!git clone --quiet --depth 1 {repository} softmax\n%cd softmax"
    cells = [
        ("markdown", "# Softmax, rung by rung, on this GPU\n\nChoose a runtime with a GPU first."),
        ("code", f"{get}\n!pip install --quiet -e ."),
        ("code", "!PYTHONPATH=src python -m softmax_tutorial"),
        ("markdown", "A kernel of your own: change this one, or paste yours."),
        ("code", f"%%writefile {kernel.name}.py\n{kernel.solution}"),
        ("code", f"!python -m exercises {kernel.name} --time --file {kernel.name}.py"),
    ]
    made = []
    for number, (kind, text) in enumerate(cells):
        cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": text}
        made.append(cell | ({"execution_count": None, "outputs": []} if kind == "code" else {}))
    metadata = {
        "accelerator": "GPU",
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    }
    whole = {"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1) + "\n"


def colab(root: Path, repository: str | None) -> str | None:
    """Where Colab opens the committed notebook, if GitHub has it with this address."""
    path, address = root / COMMITTED, (repository or "").rstrip("/")
    if not address.startswith(GITHUB) or not path.is_file():
        return None
    if path.read_text("utf8") != notebook(repository):
        return None
    where = f"{address.removeprefix(GITHUB).removesuffix('.git')}/blob/HEAD/{COMMITTED}"
    return f"https://colab.research.google.com/github/{where}"


if __name__ == "__main__":
    Path(COMMITTED).parent.mkdir(exist_ok=True)
    Path(COMMITTED).write_text(notebook(os.environ["REPO_URL"]), "utf8")
