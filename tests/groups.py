"""Which tests run on the same worker: those of a file, which share its fixtures, and those of a
page in the browser, which is opened once for all of them.

pytest-xdist would read groups off the names that it gives to tests; pytest 9.2 has another place
for names, and nothing was kept together any more. So the groups are made here, from the names as
they are.
"""

from __future__ import annotations

from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
LONGEST = (
    "tests/site/test_mutations.py",
    "tests/library/test_callers.py",
    "tests/site/test_figures.py",
    "tests/library/test_ops.py",
    "tests/library/kernels/test_split_rows.py",
    "tests/library/test_functional.py",
    "tests/library/test_invariance.py",
)
"""What runs first, so that no worker is left with it in the end; the second that needs the site
comes while others do not wait for it to be built."""


def group_of(nodeid: str) -> str:
    """The group of a test.

    >>> group_of("tests/library/test_nn.py::test_modules[softmax]")
    'tests/library/test_nn.py'
    >>> group_of("tests/site/test_pages.py::test_a_phone_scrolls_nothing_sideways[math/softmax]")
    'math/softmax'
    """
    file, _, test = nodeid.partition("::")
    parameter = test.partition("[")[2].removesuffix("]")
    is_page = file.startswith("tests/site/") and (DOCS / f"{parameter}.md").is_file()
    return parameter if is_page else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Hand out group after group; for `--dist=loadgroup`."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return Groups(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """The longest files first; everything else as it was found."""
    rank = {file: at for at, file in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.nodeid.partition("::")[0], len(rank)))
