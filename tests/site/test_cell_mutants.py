"""A cell's verdict sees what is wrong with its kernel: a mutant of one place is refused, unless it
changes nothing that the cell can show, for a reason in `same_mutants.toml`."""

import ast
import gc
import re
import signal
import time
import tomllib

import pytest

from mutate import mutants_of
from site_build import ROOT
from softmax_playground import cells
from softmax_playground.small_triton import access, session

NAMES = [name for name in cells.names(ROOT) if not name.startswith("mistakes/")]
SAME = tomllib.loads((ROOT / "tests/site/same_mutants.toml").read_text("utf8"))["same_in_cells"]
SAME = sum(SAME.values(), [])
"""In which cells a mutant is as good, and what its name looks like."""


@pytest.fixture(autouse=True, scope="module")
def library():
    session.provide(cells.library(ROOT))
    gc.collect()
    gc.freeze()  # a collection of what other tests left would use up a mutant's time
    yield
    gc.unfreeze()


class TooLong(BaseException):
    """A mutant that does not end."""


def stop(*_):
    raise TooLong


def mutants(text):
    """(name, text) of all changes in functions and loops, and of 0 for each −∞ there."""
    nodes = [each for each in ast.parse(text).body if isinstance(each, ast.FunctionDef | ast.For)]
    inside = {line for node in nodes for line in range(node.lineno, node.end_lineno + 1)}
    for mutant in mutants_of("", text):
        if mutant.line in inside:
            yield mutant.name[2:], mutant.text
    for found in re.finditer(r'float\("-inf"\)|-inf\b', text):
        line = text[: found.start()].count("\n")
        if line + 1 in inside:
            name = f"{text.splitlines()[line].strip()}: {found[0]} → 0.0"
            yield name, f"{text[: found.start()]}0.0{text[found.end() :]}"


def accepted(cell, text, seconds):
    """Whether the cell says of other code in its first editor that it is right, in so many seconds
    of this process, whatever else the machine does."""
    signal.signal(signal.SIGVTALRM, stop)
    # Again each second: Python ignores what is raised while it collects garbage.
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, 1.0)
    try:
        try:
            answer = session.run_cell(cell.request([text, *cell.texts()[1:]]))
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except TooLong:  # which may come on the way out, too
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        return False
    return not answer["error"] and answer["verdict"]["right"] is True


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", NAMES)
def test_a_mutant_that_changes_a_result_is_refused(name):
    cell = cells.read(ROOT, name)
    reasons = [mutant for which, mutant in SAME if re.fullmatch(which, name)]
    begun = time.process_time()
    assert cell.run()["verdict"]["right"]
    assert access.NAN != access.NAN  # again what an unread lane holds
    long = 10 * (time.process_time() - begun)
    passed = [mutant for mutant, text in mutants(cell.texts()[0]) if accepted(cell, text, long)]
    unexplained = [each for each in passed if not any(re.search(why, each) for why in reasons)]
    assert not unexplained
    own = [mutant for which, mutant in SAME if which != ".*" and re.fullmatch(which, name)]
    assert all(any(re.search(why, each) for each in passed) for why in own), "an unneeded reason"


def test_an_input_that_the_reader_has_changed_is_not_run_again():
    cell = cells.read(ROOT, "two-loops")
    kernel, call = cell.texts()
    kernel = kernel.replace('ROWS,), float("-inf")', "ROWS,), 0.0")
    for old, new, right in (("3.0", "3.0", 0), ("LOG=False", "LOG=1", 0), ("5.0", "4.0", 1)):
        answer = session.run_cell(cell.request([kernel, call.replace(old, new)]))
        assert answer["verdict"]["right"] == right, new
