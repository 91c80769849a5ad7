"""Read the measured constants: the tables of `measured.txt`, whose first matching line wins."""

from collections.abc import Iterator
from importlib.resources import files
from typing import Any, NamedTuple

ANY = 2**60
"""Exceeds every number of a call."""


class Limits(NamedTuple):
    """The range of one number of a call in which a line matches."""

    name: str
    low: float
    high: float
    below: bool
    """The range excludes `high`."""


class Line(NamedTuple):
    """A line of a table: the ranges in which it matches, and the values it gives."""

    limits: tuple[Limits, ...]
    values: dict[str, int]

    def holds(self, facts: dict[str, float]) -> bool:
        """Return whether the line matches a call in numbers.

        >>> [Line((limits("rows", "4..<8"),), {}).holds({"rows": n}) for n in (3, 4, 7, 8)]
        [False, True, True, False]
        """
        for name, low, high, below in self.limits:
            value = facts[name]
            if value < low or value > high or (below and value == high):
                return False
        return True


def limits(name: str, text: str) -> Limits:
    """Parse a range as the tables write it: `8`, `4..8`, `4..<8`, `..8` or `4..`.

    >>> limits("cols", "..<8")
    Limits(name='cols', low=0, high=8, below=True)
    """
    first, last = text.split("..") if ".." in text else (text, text)
    below = last[:1] == "<"
    ends = first or "0", last[below:] or str(ANY)
    low, high = [float(end) if "." in end else int(end) for end in ends]
    return Limits(name, low, high, below)


def parsed(text: str) -> dict[str, list[Line]]:
    """Parse the tables of a text, by name.

    >>> parsed("[tiles]\\ncols load | warps\\n..8 - | 4")["tiles"][0].values
    {'warps': 4}
    """
    tables: dict[str, list[Line]] = {}
    table: list[Line] = []
    names: list[str] = []
    for line in text.splitlines():
        cells = line.split()
        if not cells or cells[0][0] == "#":
            continue
        if cells[0][0] == "[":
            table, names = [], []
            tables[cells[0][1:-1]] = table
        elif not names:
            names = cells
        else:
            bar = names.index("|")
            pairs = list(zip(names, cells, strict=True))
            asked = tuple(limits(name, cell) for name, cell in pairs[:bar] if cell != "-")
            said = {name: ANY if cell == "-" else int(cell) for name, cell in pairs[bar + 1 :]}
            table.append(Line(asked, said))
    return tables


TABLES = parsed(files(__name__.rpartition(".")[0]).joinpath("measured.txt").read_text("utf-8"))


def holding(name: str, facts: dict[str, float]) -> Iterator[dict[str, int]]:
    """Yield the values of every matching line of a table, in order."""
    for line in TABLES[name]:
        if line.holds(facts):
            yield line.values


def first(name: str, facts: dict[str, float]) -> Any:
    """Return the values of the first matching line of a table, by name; None if no line matches."""
    return next(holding(name, facts), None)
