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
    found, values, known = [], [], {}

    def index(value):
        """Where a value stands in the list, in which tiles stand once."""
        if isinstance(value, NUMBERS) or id(value) not in known:
            known[id(value)] = len(values)
            values.append(_shown(value))
            return len(values) - 1
        return known[id(value)]

    for step in trace.steps[:MOST_STEPS]:
        names = [pair for name, value in step.names for pair in _parts(name, value)]
        call = f"{step.launch}.{step.program}."
        did = [each for each in step.accesses if each.places]
        one = {"who": str(step.program) + (f" of {step.kernel}" if trace.launches > 1 else "")}
        one["frame"] = [[call + str(number), name] for number, name in step.frame]
        ours = step.at is not None and step.at[2].startswith("<text ")
        one["at"] = [int(step.at[2][6:-1]), step.at[0], step.at[1]] if ours else None
        one["turns"] = step.turns
        one["names"] = [[name, index(value)] for name, value in names]
        one["accesses"] = [
            [a.kind, trace.tensors.index(a.tensor), a.places, _texts(a.values)] for a in did
        ]
        found.append(one)
    return found, values


def _parts(name, value):
    """(name, value) of what can be shown: tiles, pointers, numbers, and tuples of them."""
    if isinstance(value, constexpr):
        value = value.value
    if type(value) is tuple:  # and no named one, which is a constant
        parts = [_parts(f"{name}[{i}]", value[i]) for i in range(len(value))]
        return [pair for part in parts for pair in part]
    return [(name, value)] if isinstance(value, (Tile, Pointer) + NUMBERS) else []


def _texts(numbers):
    whole = not [1 for each in numbers if each - each == 0 and each != int(each)]
    return [show.number(each, whole) for each in numbers]


def _shown(value):
    of = value.tensor.name if isinstance(value, Pointer) else ""
    tile = value.offsets if of else value
    if not isinstance(tile, Tile):
        tile = Tile([value], (), type(value).__name__)
    data = [int(each) for each in tile.data] if tile.dtype is int1 else tile.data
    rows = [
        show.by_rows(each, tile.shape)[:MOST_ROWS] for each in (_texts(data), tile.masked or [])
    ]
    lanes, masked = [[row[:MOST_LANES] for row in each] for each in rows]
    shape, dtype = list(tile.shape), str(tile.dtype)
    return {"shape": shape, "dtype": dtype, "of": of, "lanes": lanes, "masked": masked}
