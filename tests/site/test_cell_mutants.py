"""A cell's verdict sees what is wrong with its kernel: a mutant of one place is refused, unless it
changes nothing that the cell can show, for a reason that stands here."""

import ast
import re
import signal
import time

import pytest

from mutate import mutants_of
from site_build import ROOT
from softmax_playground import cells
from softmax_playground.small_triton import access, session

NAMES = [name for name in cells.names(ROOT) if not name.startswith("mistakes/")]
LIBRARY = "strided|tile"

SAME = [
    ("An axis counted from the end, or the last of one thing.", ".*", r"0 → -1( #2)?$"),
    ("Printed, which no verdict reads.", ".*", "^print"),
    ("All is float32 here.", ".*", "float64 → .* != tl.float64$|INNER: |wide_index"),
    ("The verdict names what the result is: softmax or its logarithm.", ".*", "LOG → not LOG"),
    (
        "Lanes behind the end are computed and not stored.",
        "attention",
        r"^q = .* → .*(other|1\.0|<)",
    ),
    ("Lanes behind the end are computed and not stored.", "backward", r"^(y|dy) = .*0\.0 → 1\.0"),
    ("Lanes behind the end are computed and not stored.", "(two|three)-loops", r"^x = .* → "),
    ("Lanes behind the end are −∞ below, or have the weight 0.", "attention", r"^[kv] = .* → "),
    ("The other operand is 0 there.", "vectors", r"^[qkv] = .*0\.0 → 1\.0"),
    ("All heads share their keys here.", "vectors", r"^k_at = .*head // group"),
    (
        "Where no key is seen the sum is 0.",
        "vectors|descriptors",
        r"^d_safe = .*1\.0 → 2\.0",
    ),
    (
        "There is one head, in one batch.",
        "descriptors|recomputation",
        r"^(n_heads|n_key_heads|group|batch|batch_head|key_head|head|at)\b",
    ),
    (
        "More tiles are visited, or masked, than need be.",
        "descriptors",
        r"^(n_seen|n_seen_by_all|start) = ",
    ),
    ("Tiles of queries are full here.", "descriptors", r"^tl\.store\(at, lse"),
    (
        "More tiles are visited, or masked, than need be; past the last query weights are 0.",
        "recomputation",
        r"^(first_tile|n_row_tiles|at_edge|delta = tl\.load)",
    ),
    (
        "There is one head, and its components fill a tile.",
        "split-keys",
        r"^head = |head \* n_|dims < head_dim",
    ),
    ("The weight of a missing chunk is 0.", "split-keys", r"^o_parts = .*0\.0 → 1\.0"),
    ("Each query sees a key.", "split-keys", r"d == 0\.0, 1\.0"),
    ("No gradient arrives at lse.", "recomputation", "dlse"),
    ("Programs run one after another.", "recomputation", "atomic_add"),
    ("What is masked is −∞ below; only bytes differ.", "score-modifiers", r"^x = tl\.load"),
    ("Whole vectors at the start are head as well as body.", "aligned-rows", r"^first = .*1 → 0"),
    (
        "exp(−∞) is 0, from wherever it counts.",
        "merge|online|three-loops|descriptors",
        r"(m_safe|return).* → ",
    ),
    ("A row of −∞ only is NaN either way.", "split-rows", r"^m, d = .*0\.0 → 1\.0"),
    ("A program that polls less, more or in vain goes on without.", "split-rows", "poll"),
    ("Not reached by the operations that the cell offers.", "operations-.*", r"^m = 0\.0"),
    ("Not reached by the operations that the cell offers.", LIBRARY, r"^m = 0\.0|numbers|barrier"),
    (
        "Not reached by the operations that the cell offers.",
        LIBRARY,
        r"col\b|^places?_?|^tl.store.* #2$",
    ),
    ("Not reached by the operations that the cell offers.", LIBRARY, r"^first = |row_results"),
    ("There is no z-loss.", "loss-head", r"^lse = |^factor = .*(2\.0|lse) → "),
    (
        "There is no label smoothing, which brings two numbers more.",
        "loss-head",
        r"numbers\[5\]|numbers\[4\]|totals\[2\]|numbers\[:4\]|3 → 4",
    ),
    ("Whether products may fuse, which nothing does here.", ".*", "False → True"),
    ("A tile has two axes, and a column is spread along both.", "tile", "^totals = .*1 → 2"),
]
"""Why a mutant is as good: in which cells, and what its name looks like."""


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
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        answer = session.run_cell(cell.request([text, *cell.texts()[1:]]))
    except TooLong:
        return False
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return not answer["error"] and answer["verdict"]["right"] is True


@pytest.mark.parametrize("name", NAMES)
def test_a_mutant_that_changes_a_result_is_refused(name):
    session.provide(cells.library(ROOT))
    cell = cells.read(ROOT, name)
    reasons = [mutant for _, which, mutant in SAME if re.fullmatch(which, name)]
    begun = time.process_time()
    assert cell.run()["verdict"]["right"]
    long = 10 * (time.process_time() - begun)
    passed = [mutant for mutant, text in mutants(cell.texts()[0]) if accepted(cell, text, long)]
    unexplained = [each for each in passed if not any(re.search(why, each) for why in reasons)]
    assert not unexplained
    own = [mutant for _, which, mutant in SAME if which != ".*" and re.fullmatch(which, name)]
    assert all(any(re.search(why, each) for each in passed) for why in own), "an unneeded reason"


WRONG = [
    (
        "two-loops",
        'm = tl.full((BLOCK_ROWS,), float("-inf")',
        "m = tl.full((BLOCK_ROWS,), 0.0",
        "Right here, but with negative numbers far apart it is wrong. y[0, 0] is NaN",
    ),
    (
        "attention",
        "scores = tl.where((keys < n_keys)",
        "scores = tl.where((keys <= n_keys)",
        "Right here, but with three queries and five keys it is wrong. o[0] is",
    ),
    (
        "primer",
        ', other=float("-inf")',
        "",
        "with negative numbers it is wrong. out[0] is ∞ and should be -1",
    ),
]


@pytest.mark.parametrize("name, old, new, says", WRONG)
def test_a_verdict_says_on_which_input_a_kernel_is_wrong(name, old, new, says):
    session.provide(cells.library(ROOT))
    cell = cells.read(ROOT, name)
    kernel, call = cell.texts()
    assert kernel.count(old) == 1
    answer = session.run_cell(cell.request([kernel.replace(old, new), call]))
    assert answer["verdict"] == {"right": False, "step": None}
    assert says in answer["html"]


def test_a_kernel_after_a_cell_finds_nan_where_nothing_was_read():
    session.provide(cells.library(ROOT))
    cell = cells.read(ROOT, "primer")
    assert cell.run()["verdict"]["right"]
    assert access.NAN != access.NAN


def test_an_input_that_the_reader_has_changed_is_not_run_again():
    session.provide(cells.library(ROOT))
    cell = cells.read(ROOT, "two-loops")
    kernel, call = cell.texts()
    kernel = kernel.replace(
        'm = tl.full((BLOCK_ROWS,), float("-inf")', "m = tl.full((BLOCK_ROWS,), 0.0"
    )
    for old, new, right in (
        ("3.0", "3.0", False),
        ("LOG=False", "LOG=1", False),
        ("5.0", "4.0", True),
    ):
        answer = session.run_cell(cell.request([kernel, call.replace(old, new)]))
        assert answer["verdict"]["right"] is right, new
