"""The steps of a trace as a page shows them: each name of a program as a tile of lanes."""

from . import show
from .memory import int1
from .tiles import Pointer, Tile, constexpr

MOST_STEPS = 2000
MOST_ROWS, MOST_LANES = 8, 32
NUMBERS = (bool, int, float)


def listed(trace):
    """What programs did, in order, and the values that they saw.

    Returns:
        Two lists. Of each step a dictionary: "who", its program, and the kernel where there were
        several launches; "frame", a list of [number, name] for the kernel and the functions below
        it, the number common to the steps of one call; "at", [text, first line, last line] or None
        where the text is none of the cell's; "turns", whether a loop begins its next turn;
        "names", a list of [name, index of its value];
        "accesses", a list of [kind, tensor, places, values as text].

        Of each value a dictionary: "shape", "dtype", "of" (the tensor to which it points, or
        nothing), "lanes" and "masked", both a list of rows, cut where they are long.
    """
    values = Values()
    found = []
    for step in trace.steps[:MOST_STEPS]:
        names = [pair for name, value in step.names for pair in _parts(name, value)]
        found.append(
            {
                "who": str(step.program) + (f" of {step.kernel}" if trace.launches > 1 else ""),
                "frame": [
                    [f"{step.launch}.{step.program}.{number}", n] for number, n in step.frame
                ],
                "at": _at(step.at),
                "turns": step.turns,
                "names": [[name, values.index(value)] for name, value in names],
                "accesses": [
                    [a.kind, trace.tensors.index(a.tensor), a.places, _texts(a.values)]
                    for a in step.accesses
                    if a.places
                ],
            }
        )
    return found, values.shown


def _at(at):
    if at is None or not at[2].startswith("<text "):
        return None
    return [int(at[2][6:-1]), at[0], at[1]]


def _parts(name, value):
    """(name, value) of what can be shown: tiles, pointers, numbers, and tuples of them."""
    if isinstance(value, constexpr):
        value = value.value
    if type(value) is tuple:  # and no named one, which is a constant
        parts = [_parts(f"{name}[{i}]", value[i]) for i in range(len(value))]
        return [pair for part in parts for pair in part]
    shown = isinstance(value, (Tile, Pointer) + NUMBERS)
    return [(name, value)] if shown else []


def _texts(numbers):
    whole = not [1 for each in numbers if each - each == 0 and each != int(each)]
    return [show.number(each, whole) for each in numbers]


class Values:
    """Values without repetition."""

    def __init__(self):
        self.shown = []
        self.known = {}

    def index(self, value):
        """Where a value stands in the list."""
        if isinstance(value, NUMBERS) or id(value) not in self.known:
            self.shown.append(self._shown(value))
            if isinstance(value, NUMBERS):
                return len(self.shown) - 1
            self.known[id(value)] = len(self.shown) - 1
        return self.known[id(value)]

    def _shown(self, value):
        of = value.tensor.name if isinstance(value, Pointer) else ""
        tile = value.offsets if isinstance(value, Pointer) else value
        if not isinstance(tile, Tile):
            tile = Tile([value], (), type(value).__name__)
        data = [int(each) for each in tile.data] if tile.dtype is int1 else tile.data
        rows = show.by_rows(_texts(data), tile.shape)[:MOST_ROWS]
        masked = show.by_rows(tile.masked, tile.shape)[:MOST_ROWS] if tile.masked else []
        return {
            "shape": list(tile.shape),
            "dtype": str(tile.dtype),
            "of": of,
            "lanes": [row[:MOST_LANES] for row in rows],
            "masked": [row[:MOST_LANES] for row in masked],
        }
