"""What needs a compiler or a kernel run is committed, small, and what the library computes."""

import importlib
from collections import Counter
from pathlib import Path

import pytest
import triton

from site_build import ROOT
from softmax_bench.compilation import machine_code
from softmax_site import computed
from softmax_site.computed import rounding_table, warp_groups_trace
from softmax_site.computed.compiled import KERNELS, single_block

FOLDER = ROOT / "docs/_computed"
PINNED = (ROOT / "constraints.txt").read_text("utf8")


@pytest.mark.parametrize("name", computed.NAMES)
def test_computed_files_are_up_to_date(name):
    if name == "compiled" and f"triton=={triton.__version__}\n" not in PINNED:
        pytest.skip("the committed file is of the Triton in constraints.txt")
    module = importlib.import_module(f"softmax_site.computed.{name}")
    for path, text in module.generate().items():
        committed = (ROOT / path).read_text("utf8") if (ROOT / path).is_file() else None
        assert committed == text, f"{path} is stale: run `make regenerate`"


def test_what_the_pages_say_of_loads_and_stores():
    """What the compiler cannot know to be a multiple of 16 bytes costs one instruction per element;
    cache modifiers reach the instructions."""
    result = single_block(1024)
    assert (result.load_bits, result.store_bits) == (32, 32)
    result = single_block(1024, aligned=True)
    assert all(".ca." in name for name in result.global_loads)
    assert all(".cs." in name for name in result.global_stores)


@pytest.mark.parametrize("name", KERNELS)
def test_machine_code_moves_whole_vectors_and_knows_its_lines(name):
    *_, counted = machine_code(KERNELS[name])
    kinds = sum(counted.values(), Counter())
    assert kinds["LDG.E.128"] and kinds["STG.E.128"]
    assert all(Path(path).is_file() for path, _ in counted)


def test_machine_code_is_of_the_choice_that_holds_now():
    """Not of the one that the same call had before."""
    call = "softmax(torch.empty(4096, 33, dtype=torch.bfloat16), 1)"
    names = "from triton_softmax.config import Choice, constants"
    how = "Choice('packed_rows', constants.RowTile(16, 4, 1, False, 9), 1)"
    counts = []
    for text in (call, f"{names}\nwith choosing(lambda *_: {how}):\n    {call}", call):
        (counted,) = machine_code(text)
        counts.append(sum(sum(kinds.values()) for kinds in counted.values()))
    library, narrow, again = counts
    assert library == again != narrow


def test_groups_that_do_not_wait_for_one_another_are_wrong(monkeypatch):
    """The trace's check of the result sees a tile that is read too early, or overwritten too soon;
    groups that wait for what never comes are seen, too."""
    shape = (64, 2, 1)
    warp_groups_trace.trace(*shape)
    monkeypatch.setattr(warp_groups_trace.Barrier, "passed", lambda self, parity: 0)
    with pytest.raises(AssertionError):
        warp_groups_trace.trace(*shape)
    monkeypatch.setattr(warp_groups_trace.Barrier, "passed", lambda self, parity: None)
    with pytest.raises(ValueError, match="empty"):
        warp_groups_trace.trace(*shape)


def test_what_a_choice_costs_stays_below_its_bound():
    """Of the page on rounding. The better way is better by more than a digit."""
    assert len(rounding_table.CHOICES) == 6
    for choice in rounding_table.CHOICES:
        loses, keeps = choice()
        for error in (loses, keeps):
            assert 0 < error.measured <= error.bound, choice
        assert keeps.measured < loses.measured / 10, choice


def test_every_computed_file_is_made_by_a_module_and_is_on_a_page():
    folder = Path(computed.__file__).parent
    sources = "\n".join((folder / f"{name}.py").read_text("utf8") for name in computed.NAMES)
    pages = "\n".join(path.read_text("utf8") for path in (ROOT / "docs").rglob("*.md"))
    for path in FOLDER.iterdir():
        assert f'"docs/_computed/{path.name}"' in sources, f"nothing makes {path.name}"
        included = f'--8<-- "docs/_computed/{path.name}"'
        quoted = f"{{{{ {path.stem}[" if path.suffix == ".json" else included
        assert quoted in pages, f"no page includes {path.name}"
