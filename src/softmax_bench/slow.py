"""The kinds of calls that are known to be slow, which the tuner works through: `slow.txt`."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Kind(NamedTuple):
    """Calls that the same lines of a table decide."""

    search: list[str]  # names of shapes, as `tune --shapes` takes them
    check: list[str]  # names of others, on which nothing is chosen
    ways: list[str]  # to try


def parsed(text: str) -> dict[str, Kind]:
    """Read the kinds of a text, by name.

    >>> parsed("[few] softmax/forward/float32 dim0\\nsearch 8x64\\ncheck 9x64\\ntiles")["few"]
    Kind(search=['softmax/forward/float32/8x64/dim0'], \
check=['softmax/forward/float32/9x64/dim0'], ways=['tiles'])
    """
    kinds: dict[str, Kind] = {}
    kind, begin, end = Kind([], [], []), "", ""
    for line in text.splitlines():
        first, *rest = line.split() or ["#"]
        if first.startswith("["):
            kind = kinds[first[1:-1]] = Kind([], [], [])
            begin, end = rest[0], "".join(f"/{each}" for each in rest[1:])
        elif first in ("search", "check"):
            getattr(kind, first).extend(f"{begin}/{shape}{end}" for shape in rest)
        elif first != "#":
            kind.ways.append(line)
    return kinds


KINDS = parsed(Path(__file__).with_suffix(".txt").read_text("utf-8"))
"""In the order in which they are worked through."""
