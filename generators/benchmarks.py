"""What follows from the measurements: fragments, charts and tables of the benchmark pages."""

from __future__ import annotations

from pathlib import Path

from triton_softmax.bench import render


def generate() -> dict[str, str]:
    """The files by path."""
    return render.generate(Path(__file__).resolve().parents[1])
