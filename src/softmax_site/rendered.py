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

from functools import lru_cache
from pathlib import Path

from softmax_playground import cells
from softmax_site import (
    checks,
    corrections,
    kernel_map,
    modules,
    practice,
    traffic,
)
from softmax_site.benchmarks import notice
from softmax_site.benchmarks.data import newest
from softmax_site.benchmarks.page import Fragment, Rendered
from softmax_site.benchmarks.render import render
from softmax_site.figures import home, moving
from softmax_site.which_kernel import page as which_kernel

READ = ("docs/benchmarks", "tests/site/test_corrections.py", checks.COUNTS)
"""What everything rendered follows from, beside the modules in `src/`."""


@lru_cache(maxsize=2)
def _stamp(root: Path) -> tuple:
    files = [root / name for name in READ]
    files += [*(root / READ[0]).rglob("*.json"), *(root / "src").rglob("*.py")]
    files += (root / moving.FRAMES).glob("*.html")
    files += [*(root / practice.FOLDER).rglob("*.py"), *(root / cells.FOLDER).rglob("*.py")]
    return tuple((path, path.stat().st_mtime_ns) for path in files if path.is_file())


@lru_cache(maxsize=2)
def _load(root: Path, stamp: tuple) -> Rendered:
    out = render(root)
    out.fragments["corrections"] = Fragment(corrections.listing(root))
    out.fragments["checks"] = Fragment(checks.table(root))
    out.fragments |= {name: Fragment(text) for name, text in traffic.tables().items()}
    found = newest(root)
    out.fragments |= kernel_map.fragments(root, found and found[1])
    out.fragments |= home.fragments(root)
    out.fragments["cell-names"] = Fragment(cells.names_list())
    if (root / which_kernel.LIBRARY).is_dir():
        out.add(which_kernel.render(root))
    if (root / practice.FOLDER).is_dir():
        out.add(practice.render(root))
    out.fragments |= {
        f"modules-{name}": Fragment(modules.listing(root, name)) for name in modules.PACKAGES
    }
    return out


def load(root: Path | str = ".") -> Rendered:
    """Everything rendered for the repository below `root`; after `forget`, made again if a file
    has changed."""
    root = Path(root).resolve()
    return _load(root, _stamp(root))


def forget() -> None:
    """Look at the files again at the next `load`."""
    _stamp.cache_clear()


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
