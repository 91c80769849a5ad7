"""Loads, stores and atomic operations, each recorded in the trace of the launch."""

import time

from .memory import NAN, Access, Step, Trace, int1, int64
from .tiles import Pointer, Tile, common_shape, spread, tile_of


class State:
    """What runs now: the program, its place in the grid, and where accesses are recorded."""

    kernel = ""
    program = 0
    place = (0, 0, 0)
    grid = (1, 1, 1)
    trace = Trace()
    calls = 0
    frame = ((0, ""),)
    order = ()
    log, answered, budget = [], 0, -1
    steps, known = 0, 0
    rehearses, ahead = False, 0.0


class Paused(BaseException):
    """The turn of a program ends."""


def _in_turn(access, atomic=0):
    """A program whose turn has ended begins again at its next, and meets its own past: what it has
    asked for before is answered from its log, and done no second time."""

    def answer(*arguments, **named):
        if State.answered == len(State.log):
            if State.budget == 0:
                raise Paused
            State.budget -= atomic
            State.log.append(access(*arguments, **named))
        State.answered += 1
        return State.log[State.answered - 1]

    return answer


def _places(pointer, mask, what):
    """(offset, mask) for each element of an access; whatever leaves the tensor raises."""
    if not isinstance(pointer, Pointer):
        raise TypeError(f"tl.{what} takes a pointer, such as x_ptr + offsets")
    shape = pointer.shape
    live = [True] * len(pointer.offsets.data)
    if mask is not None:
        mask = tile_of(mask)
        if common_shape(mask.shape, shape) != shape:
            raise ValueError(f"a mask of shape {mask.shape} for pointers of shape {shape}")
        live = spread(mask, shape)
    tensor = pointer.tensor
    tensor.view(pointer.element_ty)
    for offset, wanted in zip(pointer.offsets.data, live):
        if wanted and not 0 <= offset < len(tensor.data):
            raise IndexError(
                f"tl.{what} leaves {tensor.name}: program {State.program} asks for element "
                f"{offset}, and there are {len(tensor.data)}"
            )
    return pointer.offsets.data, live


def _record(kind, tensor, places, values):
    access = Access(State.kernel, State.program, kind, tensor, places, values)
    State.trace.accesses.append(access)
    State.trace.pending.append(access)


def load(pointer, mask=None, other=None, cache_modifier="", eviction_policy="", volatile=False):
    """Read. What the mask leaves out is `other`, or NaN (0 for integers) if there is none: on a GPU
    it may be anything, and who sets `NAN` of this module says what it is here."""
    offsets, live = _places(pointer, mask, "load")
    tensor, to = pointer.tensor, pointer.tensor.dtype
    if mask is None and other is not None:
        raise ValueError("tl.load takes other only beside a mask")
    if other is None:
        other = NAN if to.kind == "float" else 0
    data = spread(tile_of(other, to).to(to), pointer.shape)
    memory = tensor.data
    data = [memory[at] if wanted else rest for at, wanted, rest in zip(offsets, live, data)]
    places = [at for at, wanted in zip(offsets, live) if wanted]
    _record("load", tensor, places, [memory[at] for at in places])
    masked = None if all(live) else [not wanted for wanted in live]
    return Tile(data, pointer.shape, to, masked)


def store(pointer, value, mask=None, cache_modifier="", eviction_policy=""):
    """Write, rounded to the type of the tensor."""
    offsets, live = _places(pointer, mask, "store")
    tensor, to = pointer.tensor, pointer.tensor.dtype
    value = tile_of(value, to)
    if common_shape(value.shape, pointer.shape) != pointer.shape:
        raise ValueError(f"a value of shape {value.shape} for pointers of shape {pointer.shape}")
    places, values = [], []
    for at, wanted, number in zip(offsets, live, spread(value.to(to), pointer.shape)):
        if wanted:
            tensor.data[at] = number
            places.append(at)
            values.append(number)
    _record("store", tensor, places, values)


load, store = _in_turn(load), _in_turn(store)


class TensorDescriptor:
    """A tensor whose tiles, all of one shape, are read and written by the position of their first
    element. What lies outside the tensor is read as 0, and not written."""

    def __init__(self, base, shape, strides, block_shape):
        self.base, self.dtype, self.shape = base, base.dtype, shape
        self.strides, self.block_shape = strides, block_shape

    def load(self, position):
        return load(*self._tile(position), 0.0)

    def store(self, position, value):
        pointer, mask = self._tile(position)
        store(pointer, value, mask)

    def _tile(self, position):
        """The addresses of a tile, and which of them lie in the tensor."""
        at, inside = Tile([0], (), int64), Tile([True], (), int1)
        sizes = zip(position, self.shape, self.strides, self.block_shape)
        for first, size, stride, width in sizes:
            index = first + Tile(list(range(width)), (width,), int64)
            at = Tile(at.data, at.shape + (1,), int64) + index * stride
            inside = Tile(inside.data, inside.shape + (1,), int1) & (index < size)
        return Pointer(self.base, at), inside


def _atomic(pointer, value, mask, what, function):
    offsets, live = _places(pointer, mask, what)
    tensor, to = pointer.tensor, pointer.tensor.dtype
    before, places, values = [], [], []
    for at, wanted, number in zip(offsets, live, spread(tile_of(value, to).to(to), pointer.shape)):
        before.append(tensor.data[at] if wanted else to.cast([0])[0])
        if wanted:
            tensor.data[at] = to.cast([function(tensor.data[at], number)])[0]
            places.append(at)
            values.append(tensor.data[at])
    _record("atomic", tensor, places, values)
    return Tile(before, pointer.shape, to)


def atomic_add(pointer, value, mask=None, sem=None, scope=None):
    return _atomic(pointer, value, mask, "atomic_add", lambda old, new: old + new)


def atomic_xchg(pointer, value, mask=None, sem=None, scope=None):
    return _atomic(pointer, value, mask, "atomic_xchg", lambda old, new: new)


def atomic_cas(pointer, expected, value, sem=None, scope=None):
    """Write where the memory has what is expected; answer what it had."""
    wanted = iter(spread(tile_of(expected, pointer.element_ty), pointer.shape))
    swap = lambda old, new: new if old == next(wanted) else old  # noqa: E731
    return _atomic(pointer, value, None, "atomic_cas", swap)


atomic_add, atomic_xchg = _in_turn(atomic_add, 1), _in_turn(atomic_xchg, 1)
atomic_cas = _in_turn(atomic_cas, 1)

# ---- What probes call; see `probes` ----


def seen(at, names, *values, turns=False):
    """A statement has run, and given values to names, as one text with spaces."""
    State.steps += 1
    if State.steps <= State.known:
        return
    _step(at, turns, list(zip(names.split(), values)), State.trace.pending)
    State.trace.pending = []


def _step(*what):
    trace = State.trace
    trace.steps.append(Step(State.kernel, State.program, trace.launches, State.frame, *what))


def rehearsed(many):
    """Each of many; a rehearsal ends as soon as it can tell from some how long all of them take,
    and `State.ahead` has the seconds of those that it leaves out."""
    begun, before, count = time.time(), State.ahead, 0
    for each in many:
        yield each
        count += 1
        spent = State.rehearses and time.time() - begun + State.ahead - before
        if spent > 0.02 and isinstance(many, (range, list)):
            State.ahead += spent * (len(many) / count - 1)
            return


def turns(at, names, *values):
    """What a loop goes through, each turn recorded."""
    count = len(names.split())
    for value in rehearsed(values[0] if len(values) == 1 else values):
        seen(at, names, *([value] if count == 1 else value), turns=True)
        yield value


def again(at, condition):
    """Whether a loop goes on, recorded."""
    seen(at, "condition", condition, turns=True)
    return condition


def back(at, *values):
    """What a function returns, recorded."""
    value = values if len(values) > 1 else values[0]
    seen(at, "returned", value)
    return value


def rest():
    """What is left when a program ends: accesses of text without probes, each a step."""
    for access in State.trace.pending:
        _step(None, False, [], [access])
    State.trace.pending = []
