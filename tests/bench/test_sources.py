"""What a hash of the sources sees: the files that an implementation rests on, and no words."""

from __future__ import annotations

from pathlib import Path

import pytest

from softmax_bench import sources
from softmax_bench.roster import CHOOSER, RUNGS


def test_every_implementation_of_ours_has_a_hash():
    assert set(sources.ENTRIES) == {CHOOSER, *RUNGS}
    for name, entries in sources.ENTRIES.items():
        for entry in entries:
            assert (sources.PACKAGE / entry).is_file(), f"{name}: no {entry}"
    assert set(sources.hashes()) == set(sources.ENTRIES)


def test_a_comment_or_docstring_does_not_change_the_hash(tmp_path):
    package = tmp_path / "package"
    (package / "kernels").mkdir(parents=True)
    kernel = package / "kernels/two_loops.py"
    (package / "kernels/online.py").write_text("A = 1\n")

    def sha(text: str) -> str:
        kernel.write_text(text)
        return sources.hash_of("two_loops", package)

    first = sha('"""Doc."""\nfrom .online import A\n\ndef f():\n    return A\n')
    assert first == sha(
        '"""Other."""\nfrom .online import A\ndef f():\n    "doc"\n    # why\n    return A\n'
    )
    assert first != sha('"""Doc."""\nfrom .online import A\n\ndef f():\n    return A + 1\n')
    again = sha('"""Doc."""\nfrom .online import A\n\ndef f():\n    return A\n')
    assert first == again
    (package / "kernels/online.py").write_text("A = 2\n")
    assert sources.hash_of("two_loops", package) != first


@pytest.fixture
def package(tmp_path) -> Path:
    """A library in which kernels import device functions and operations are constants."""
    files = {
        "dispatch.py": "from .operations import softmax\nfrom .kernels import split_rows\n"
        "from .choose import choose\n",
        "operations/softmax.py": "from ..arithmetic import exp\nF = exp\n",
        "operations/toy.py": "F = 2\n",
        "arithmetic.py": "exp = 1\n",
        "kernels/split_rows.py": "from .device.exchange import poll\n",
        "kernels/device/exchange.py": "from package.kernels.device import words\npoll = words\n",
        "kernels/device/words.py": "A = 1\n",
        "kernels/single_block.py": "A = 1\n",
        "choose/__init__.py": "from .rows import choose\n",
        "choose/rows.py": "choose = 1\n",
    }
    for name, text in files.items():
        path = tmp_path / "package" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "package"


@pytest.mark.parametrize(
    ("edited", "seen"),
    [
        ("kernels/split_rows.py", True),
        ("kernels/device/exchange.py", True),
        ("kernels/device/words.py", True),
        ("operations/softmax.py", True),
        ("arithmetic.py", True),
        ("operations/toy.py", False),
        ("kernels/single_block.py", False),
        ("dispatch.py", False),
        ("choose/rows.py", False),
    ],
)
def test_a_geometry_rests_on_what_it_imports_and_on_the_operations_it_is_given(
    package, edited, seen
):
    before = sources.hash_of("split_rows", package)
    with open(package / edited, "a") as file:
        file.write("B = 2\n")
    assert (sources.hash_of("split_rows", package) != before) == seen


def test_a_rung_that_spells_its_operation_out_rests_on_no_other(package):
    before = sources.hash_of("single_block", package)
    with open(package / "operations/softmax.py", "a") as file:
        file.write("B = 2\n")
    assert sources.hash_of("single_block", package) == before


@pytest.mark.parametrize(
    "edited", ["choose/__init__.py", "choose/rows.py", "operations/softmax.py"]
)
def test_the_chooser_rests_on_what_a_folder_passes_on(package, edited):
    before = sources.hash_of(CHOOSER, package)
    with open(package / edited, "a") as file:
        file.write("B = 2\n")
    assert sources.hash_of(CHOOSER, package) != before


def test_the_chooser_rests_on_every_choice():
    """All of `choose` decides; one of its files left out would let a page grow old unseen."""
    files = set(sources.files_of(CHOOSER)) | set(sources.files_of("loss_head"))
    assert set((sources.PACKAGE / "choose").rglob("*.py")) <= files
    assert set((sources.PACKAGE / "kernels/device").glob("[a-z]*.py")) <= files
