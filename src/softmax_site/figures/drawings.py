"""Drawings that stand still: the files of `drawings/`, in the colours of the style sheet."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).with_name("drawings")


def drawing(name: str, environment: dict | None = None) -> str:
    """A drawing as a page includes it; sizes in braces are those of the GPU that was measured."""
    text = (FOLDER / f"{name}.svg").read_text("utf8")
    if "{" not in text or environment is None:
        return text
    count = environment["multiprocessors"]
    return text.format(
        count=count,
        last=count - 1,
        l2=environment["l2_bytes"] / 2**20,
        memory=environment["gpu_memory_bytes"] / 2**30,
    )
