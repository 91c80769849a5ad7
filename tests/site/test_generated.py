"""Committed files that are computed from the library are what the library computes."""

from __future__ import annotations

from pathlib import Path

import pytest

from triton_softmax.site import regenerate

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", regenerate.names())
def test_generated_files_are_up_to_date(name):
    for path, text in regenerate.generate(name).items():
        committed = (ROOT / path).read_text("utf8") if (ROOT / path).is_file() else None
        assert committed == text, f"{path} is stale: run `make regenerate`"


def test_every_generated_file_has_a_generator():
    sources = "\n".join(path.read_text("utf8") for path in (ROOT / "generators").glob("*.py"))
    measured = {
        ROOT / path for path in regenerate.generate("benchmarks")
    }  # a fragment for every suite that the data has
    for path in (ROOT / "docs/_generated").rglob("*.*"):
        assert path in measured or path.name in sources or path.stem in sources, (
            f"no generator mentions {path.name}"
        )
