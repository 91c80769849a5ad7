"""What a page may include by `[[rendered name]]`: text that follows from files of the repository.

It is made when the site is built and lies nowhere on disk, so it cannot go stale. What needs a
compiler or a kernel run is made by `softmax_site.computed` instead, and committed.

Names, besides those of `benchmarks.views` and its neighbours:

* `bench-rung-KERNEL`: what a kernel reaches, length by length, with a sign against torch (or all);
* `reaches-NAME`: one number for beside a title, the share of a copy's speed at one named shape;
* `course-PAGE`: the exercises of a page below docs/practice; `exercises`, the list of all;
* `take-home`: the file that a reader takes along; `take-home-shares`, how it stands;
* `on-your-gpu`: what `python -m softmax_tutorial` prints;
* `moved-NAME`: the elements that a kernel reads and writes, as blocks, below those it improves on.

KERNEL is the name of a module, as `single_block`; NAME is that, or `backward`, or for `reaches`
also `logsumexp`. `reaches` and `moved` stand side by side when one line follows the other.
"""

from __future__ import annotations

from pathlib import Path

from softmax_bench.roster import PROVIDERS
from softmax_site import kernel_map, modules, on_your_gpu, practice, source, take_home
from softmax_site.benchmarks import (
    attention,
    bookkeeping,
    page,
    ranks,
    rungs,
    training,
    tuning,
    views,
)
from softmax_site.benchmarks.data import REASONS, read, size_key
from softmax_site.benchmarks.data import measurements as load_data
from softmax_site.benchmarks.page import Fragment, Rendered
from softmax_site.benchmarks.values import UNSAID
from softmax_site.figures import home


def measurements(root: Path) -> Rendered:
    """What follows from the measurements; without data the fragments say so."""
    data = load_data(root)
    order = {case: at for at, case in enumerate(dict.fromkeys(r["case"] for r in data["rows"]))}
    rank = {name: at for at, name in enumerate(PROVIDERS)}
    data["rows"].sort(
        key=lambda row: (size_key(row), order[row["case"]], rank.get(row["provider"], len(rank)))
    )
    out = views.fragments(data)
    out.fragments |= rungs.fragments(data)
    out.fragments |= ranks.fragments(root) | attention.fragments(root)
    out.fragments |= bookkeeping.fragments(root, data, read(root, REASONS, {}))
    out.fragments |= {"tuning-choices": tuning.choices(root), "training": training.steps(root)}
    out.fragments["on-your-gpu"] = on_your_gpu.expected(data)
    out.fragments["predicted-rungs"] = on_your_gpu.predictions(root)
    return out


@source.kept
def load(root: Path) -> Rendered:
    """Everything rendered for the repository below `root`."""
    out = measurements(root)
    out.fragments |= kernel_map.fragments(root, load_data(root)) | home.fragments(root)
    texts = {
        "corrections": modules.corrections(root),
        **{f"modules-{name}": modules.listing(root, name) for name in modules.LISTED},
    }
    out.fragments |= {name: Fragment(text) for name, text in texts.items()}
    if (root / take_home.FILE).is_file():
        out.add(take_home.render(root, load_data(root)))
    if (root / practice.FOLDER).is_dir():
        out.add(practice.render(root))
    return out


def markdown(name: str, root: Path | str = ".") -> str:
    """A fragment as a page shows it today: what a reader must know of its age, then the text."""
    fragments = load(root).fragments
    if name not in fragments and f"[[rendered {name}]]" in read(Path(root), UNSAID, []):
        return page.NOT_MEASURED.text
    if name not in fragments:
        raise KeyError(f"nothing rendered is named {name!r}; there is {', '.join(fragments)}")
    text, measured = fragments[name]
    return (page.warning(measured, page.today()) if measured else "") + text
