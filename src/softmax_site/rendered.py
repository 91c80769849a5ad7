"""What a page may include by `[[rendered name]]`: text that follows from files of the repository.

It is made when the site is built and lies nowhere on disk, so it cannot go stale. What needs a
compiler or a kernel run is made by `softmax_site.computed` instead, and committed.

Names, besides those of `benchmarks.views` and its neighbours:

* `bench-rung-KERNEL`: what a kernel reaches, length by length, with a sign against torch (or all);
* `reaches-NAME`: one number for beside a title, the share of a copy's speed at one named shape;
* `which-kernel`: the form that asks the planner, with its first answer; `which-kernel-usual`, a
  table of usual shapes; `which-kernel-guesses`, how good its times are;
* `exercise-NAME` and `solution-NAME`, with a dash for each underscore; `exercises`, their list;
* `moved-NAME`: the elements that a kernel reads and writes, as blocks, below those it improves on.

KERNEL is the name of a module, as `single_block`; NAME is that, or `backward`, or for `reaches`
also `logsumexp`. `reaches` and `moved` stand side by side when one line follows the other.
"""

from __future__ import annotations

from pathlib import Path

from softmax_playground import cells
from softmax_site import (
    checks,
    corrections,
    kernel_map,
    modules,
    practice,
    source,
    traffic,
)
from softmax_site.benchmarks import notice
from softmax_site.benchmarks.data import newest
from softmax_site.benchmarks.page import Fragment, Rendered
from softmax_site.benchmarks.render import render
from softmax_site.figures import home, moving
from softmax_site.which_kernel import page as which_kernel

READ = (
    *("docs/benchmarks/**/*.json", "src/**/*.py", f"{moving.FRAMES}/*.html"),
    *(corrections.TESTS, checks.COUNTS, f"{practice.FOLDER}/**/*.py", f"{cells.FOLDER}/**/*.py"),
)
"""What everything rendered follows from."""

forget = source.forget


@source.kept(*READ)
def load(root: Path) -> Rendered:
    """Everything rendered for the repository below `root`; after `forget`, made again if a file
    has changed."""
    out = render(root)
    found = newest(root)
    out.fragments |= kernel_map.fragments(root, found and found[1]) | home.fragments(root)
    texts = traffic.tables() | {
        "corrections": corrections.listing(root),
        "checks": checks.table(root),
        "cell-names": cells.names_list(),
        **{f"modules-{name}": modules.listing(root, name) for name in modules.PACKAGES},
    }
    out.fragments |= {name: Fragment(text) for name, text in texts.items()}
    if (root / which_kernel.LIBRARY).is_dir():
        out.add(which_kernel.render(root))
    if (root / practice.FOLDER).is_dir():
        out.add(practice.render(root))
    return out


def markdown(name: str, root: Path | str = ".") -> str:
    """A fragment as a page shows it today: what a reader must know of its age, then the text."""
    fragments = load(root).fragments
    if name not in fragments:
        raise KeyError(f"nothing rendered is named {name!r}; there is {', '.join(fragments)}")
    text, measured, brief = fragments[name]
    if not measured:
        return text
    if brief:
        return notice.briefly(text, measured)
    return notice.markdown(measured) + text
