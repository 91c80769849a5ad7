"""One mistake of each kind is planted in a copy of the repository, and has to turn the run red.

Only what should notice is run, in one run for all that tests notice, and each mistake is looked for
in what is said: a run that is red for another reason does not count. A build stops at the first
mistake, so that each has its own, without the pages that take long.
"""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from mutate import copy_to
from site_build import build, python

pytest.importorskip("mkdocs")  # the tests that are run need it


class Mistake(NamedTuple):
    """The first match of a pattern in a file becomes something else, and that is said then."""

    path: str
    pattern: str
    replacement: str
    says: str
    tests: str = ""
    """The file of tests that has to notice; else the build has to."""
    keyword: str = ""
    """Which of its tests, as for `-k`."""

    def plant(self, root: Path) -> None:
        file = root / self.path
        text = file.read_text("utf8")
        changed, count = re.subn(self.pattern, self.replacement, text, count=1, flags=re.M)
        assert count == 1 and changed != text, f"nothing to change in {self.path}"
        file.write_text(changed, "utf8")


KERNEL, PAGE = "src/softmax_tutorial/single_block.py", "docs/math/softmax.md"
VJP = r"^(\s*# eq: [^\n]*\bsoftmax-vjp\b[^\n]*\n(?:[^\n]*\n){0,6}?[^\n]*= y \* \(dy) - "
BY_TESTS = {
    "a flipped sign in the VJP kernel": Mistake(
        KERNEL, VJP, r"\1 + ",
        r"def test_backward[\s\S]*?not close[\s\S]*?FAILED [^\n]*test_backward\[single_block",
        "tests/library/kernels/test_rungs.py", "single_block and test_backward and 31"),
    "a digit of printed output on a page": Mistake(
        PAGE, r"^\[0\.09   0\.2447", "[0.09   0.2448",
        r"softmax\.md[\s\S]*?Expected:[^:]*0\.2448[^:]*Got:[^:]*0\.2447",
        PAGE, "softmax.md and not is_shown"),  # that test would build the site
    "a section without its end": Mistake(
        "src/softmax_tutorial/reference.py", r"^# --8<-- \[end:softmax-naive-numpy\]\n", "",
        r"reference\.py has no section 'softmax-naive-numpy'",
        "tests/site/test_fences.py", "well_formed"),
    "a piece of a kernel that its page does not show": Mistake(
        KERNEL, r"^( +e = exp_shifted)", r"\n\1",
        r"single-block\.md: src/softmax_tutorial/single_block\.py:forward",
        "tests/site/test_fences.py", "whole_sections"),
    "an equation without a test": Mistake(
        "tests/formulas/bindings.py", r"\bvjp-chain-rule\b", "vjp-chain",
        r"\['vjp-chain-rule'\] have no test in",
        "tests/site/test_site.py", "every_equation_has_a_test"),
    "a sign in a formula": Mistake(
        "docs/math/vjp.md", r"(\\odot \\bigl\( \\mathit\{dy\}) -", r"\1 +",
        r"statement 1 does not hold at[\s\S]*?FAILED [^\n]*test_equation\[softmax-vjp-vjp",
        "tests/site/test_equations.py", "test_equation and softmax-vjp-vjp"),
    "a typed measurement": Mistake(
        PAGE, r"\Z", "\nIt is 1.4× faster.\n", r"typed by hand: '1\.4× faster'",
        "tests/site/test_typed_speeds.py", "no_speed_is_typed_on_a_page"),
    "a stale computed file": Mistake(
        "docs/_computed/worked-forward.md", r"0\.6652", "0.6653", r"worked-forward\.md is stale",
        "tests/site/test_computed.py", "worked_views"),
}  # fmt: skip
BY_THE_BUILD = {
    "a broken anchor": Mistake(
        "docs/math/monoid.md", r"\(jacobian\.md#[\w-]+\)", "(jacobian.md#nowhere)",
        r"does not contain an anchor '#nowhere'"),
    "a reference to an equation that does not exist": Mistake(
        PAGE, r"\\eqref\{[\w-]+\}", r"\\eqref{nowhere}",
        r"no equation is labelled 'nowhere'"),
}  # fmt: skip
"""What warns, and what raises while a page is converted."""


OTHER_PAGES = Mistake(
    "mkdocs.yml",
    r"^exclude_docs: \|\n",
    "exclude_docs: |\n  benchmarks/\n  kernels/\n  practice/\n  reference/\n",
    "",
)


@pytest.fixture(scope="module")
def red_run(tmp_path_factory) -> str:
    """What pytest says with all mistakes planted that tests notice."""
    root = copy_to(tmp_path_factory.mktemp("mistakes"))
    for mistake in BY_TESTS.values():
        mistake.plant(root)
    files = sorted({mistake.tests for mistake in BY_TESTS.values()})
    keywords = " or ".join(f"({mistake.keyword})" for mistake in BY_TESTS.values())
    command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", *files, "-k", keywords)
    result = python(*command, cwd=root, PYTHONPATH=str(root / "src"))
    assert result.returncode == 1, result.stdout + result.stderr
    return result.stdout + result.stderr


@pytest.mark.parametrize("name", BY_TESTS)
def test_a_planted_mistake_turns_the_run_red(name, red_run):
    assert re.search(BY_TESTS[name].says, red_run), red_run


@pytest.mark.parametrize("name", BY_THE_BUILD)
def test_a_planted_mistake_stops_the_build(name, tmp_path):
    mistake = BY_THE_BUILD[name]
    root = copy_to(tmp_path)
    OTHER_PAGES.plant(root)
    mistake.plant(root)
    result = build(root / "site-out", root=root)
    assert result.returncode == 1, f"nothing noticed {name}"
    assert re.search(mistake.says, result.stdout + result.stderr), result.stdout + result.stderr
