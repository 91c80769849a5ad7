"""Types of numbers, tensors in a memory of their own, and the trace of what is read and written."""

import struct
from array import array
from collections import namedtuple

INF = float("inf")
NAN = float("nan")


def product(sizes):
    count = 1
    for size in sizes:
        count *= size
    return count


class dtype:  # noqa: N801 (its name in Triton)
    """A type of numbers.

    Attributes:
        name: as Triton writes it.
        kind: "float", "int", "bool" or "pointer".
        size: bytes of one element.
        primitive_bitwidth: bits of one element.
        rank: position in the order of promotion: of two types the higher one wins.
    """

    def __init__(self, name, kind, size, code, rank):
        self.name = name
        self.kind = kind
        self.size = size
        self.code = code
        self.rank = rank
        self.primitive_bitwidth = 1 if kind == "bool" else 8 * size

    def __repr__(self):
        return self.name

    def is_floating(self):
        return self.kind == "float"

    def round(self, numbers):
        """A list of numbers, each rounded to this type."""
        if self.code == "f":
            return list(array("f", numbers))
        if self.name == "float16":
            return [_to_float16(number) for number in numbers]
        if self.name == "bfloat16":
            return [_to_bfloat16(number) for number in numbers]
        return numbers

    def cast(self, numbers):
        """A list of numbers, converted to this type as `tile.to` does."""
        if self.kind == "float":
            return self.round([float(number) for number in numbers])
        if self.kind == "bool":
            return [number != 0 for number in numbers]
        half = 1 << (8 * self.size - 1)
        whole = [int(number) for number in numbers]
        return [n if -half <= n < half else ((n + half) & (2 * half - 1)) - half for n in whole]

    def bits(self, numbers):
        """Their bits, as bytes."""
        if self.name == "bfloat16":
            return b"".join([struct.pack("<f", number)[2:] for number in numbers])
        return struct.pack("<" + str(len(numbers)) + self.code, *numbers)

    def from_bits(self, data):
        """The numbers of this type that these bytes are."""
        count = len(data) // self.size
        if self.name == "bfloat16":
            each = range(0, len(data), 2)
            return [struct.unpack("<f", b"\0\0" + data[i : i + 2])[0] for i in each]
        return list(struct.unpack("<" + str(count) + self.code, data))


def _to_bfloat16(number):
    """The nearest number of 8 bits, ties to even."""
    if number != number or number in (INF, -INF):
        return number
    (bits,) = struct.unpack("<I", struct.pack("<f", array("f", [number])[0]))
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def _to_float16(number):
    """The nearest number of 11 bits, ties to even."""
    size = abs(number)
    if number != number or size == 0.0 or size == INF:
        return number
    unit = 2.0**-24
    while unit * 2048 <= size and unit < 64:
        unit *= 2
    size = round(size / unit) * unit
    if size > 65504.0:
        size = INF
    return -size if number < 0 else size


float64 = dtype("float64", "float", 8, "d", 9)
float32 = dtype("float32", "float", 4, "f", 8)
float16 = dtype("float16", "float", 2, "e", 7)
bfloat16 = dtype("bfloat16", "float", 2, "", 6)
int64 = dtype("int64", "int", 8, "q", 4)
int32 = dtype("int32", "int", 4, "i", 3)
int16 = dtype("int16", "int", 2, "h", 2)
int1 = dtype("int1", "bool", 1, "b", 1)


class pointer_type(dtype):  # noqa: N801 (its name in Triton)
    """The type of pointers to elements of one type."""

    def __init__(self, element_ty):
        dtype.__init__(self, "pointer<" + element_ty.name + ">", "pointer", 8, "", 0)
        self.element_ty = element_ty


class Tensor:
    """Numbers in a memory of their own, seen as a shape with strides.

    Args:
        values: nested lists of numbers, all of one length at each level.
        dtype: the type to which they are rounded.
        name: what traces and messages call it.
        strides: elements from one to the next along each dimension; by default those of a
            contiguous tensor. What lies between is NaN, so whoever reads it is found out.

    Attributes:
        data: the memory, a flat list.
        shape, strides, dtype, name: as above.
    """

    def __init__(self, values, dtype=float32, name="x", strides=None):
        self.dtype = dtype
        self.name = name
        shape, flat = [], values
        while isinstance(flat, (list, tuple)):
            shape.append(len(flat))
            flat = flat[0] if len(flat) else None
        self.shape = tuple(shape)
        numbers = [values]
        for size in shape:
            if [1 for row in numbers if len(row) != size]:
                raise ValueError("the rows of a tensor have one length")
            numbers = [number for row in numbers for number in row]
        self.strides = tuple(strides or [product(shape[i + 1 :]) for i in range(len(shape))])
        places = self.places()
        empty = NAN if dtype.kind == "float" else 0
        self.data = [empty] * (max(places) + 1 if places else 0)
        for place, number in zip(places, dtype.cast(numbers)):
            self.data[place] = number

    def places(self):
        """Where its elements lie in its memory, in the order of rows."""
        found = [0]
        for size, stride in zip(self.shape, self.strides):
            found = [place + i * stride for place in found for i in range(size)]
        return found

    def view(self, dtype):
        """Let the bytes of its memory be numbers of another type from now on."""
        if dtype is not self.dtype:
            self.data = dtype.from_bits(self.dtype.bits(self.data))
            self.dtype = dtype

    def stride(self, dim):
        return self.strides[dim]

    def element_size(self):
        return self.dtype.size

    def numel(self):
        return len(self.places())

    def tolist(self):
        """The elements as nested lists."""
        found = [self.data[place] for place in self.places()]
        for size in reversed(self.shape[1:]):
            found = [found[i : i + size] for i in range(0, len(found), size)]
        return found if self.shape else found[0]

    def index(self, place):
        """The position of an element that lies there, a tuple; None for what lies between rows.

        >>> Tensor([[1.0, 2.0], [3.0, 4.0]], strides=(3, 1)).index(4)
        (1, 1)
        """
        places = self.places()
        if place not in places:
            return None
        number, found = places.index(place), []
        for size in reversed(self.shape):
            found.insert(0, number % size)
            number //= size
        return tuple(found)


def empty(shape, dtype=float32, name="y", strides=None):
    """A tensor nobody has written yet: NaN everywhere (0 for integers)."""
    value = NAN if dtype.kind == "float" else 0
    for size in reversed(shape):
        value = [value] * size
    return Tensor(value, dtype, name, strides)


class Access:
    """One load, store or atomic operation of one program.

    Attributes:
        kernel: name of the kernel.
        program: number of the program, counted along the grid of its launch.
        kind: "load", "store" or "atomic".
        tensor: the `Tensor`.
        places: where in its memory, for each element that is not masked, in order.
        values: what was read or written there.
    """

    def __init__(self, kernel, program, kind, tensor, places, values):
        self.kernel = kernel
        self.program = program
        self.kind = kind
        self.tensor = tensor
        self.places = places
        self.values = values

    def __repr__(self):
        return f"program {self.program}: {self.kind} {self.tensor.name}{self.places}"


Step = namedtuple("Step", "kernel program launch frame at turns names accesses")
"""A statement that a program has run.

* `launch`: which launch it is, from 1;
* `frame`: (number, name) of the kernel, and of each function that is running below it;
* `at`: first line, last line, and what `run` was told to call the text; None where an access is of
  text without probes;
* `turns`: whether a loop begins its next turn;
* `names`: a list of (name, value) that it has set;
* `accesses`: a list of the `Access`es that it made.
"""


class Trace:
    """What programs read and wrote, in order.

    Attributes:
        accesses: a list of `Access`.
        steps: a list of `Step`, if the text was run with `probes`.
        pending: accesses of the statement that runs now.
        programs: how many programs began to run.
        launches: how many kernels were launched.
        tensors: all that were handed to a kernel.
    """

    def __init__(self):
        self.accesses, self.steps, self.pending, self.tensors = [], [], [], []
        self.programs = self.launches = 0

    def meet(self, arguments):
        """Remember the tensors among the arguments of a launch."""
        for each in arguments:
            each = getattr(each, "base", each)  # of a descriptor
            if isinstance(each, tuple):
                self.meet(each)
            elif isinstance(each, Tensor) and each not in self.tensors:
                self.tensors.append(each)

    def of(self, kind, tensor=None):
        """Places that were read ("load") or written ("store"), each as often as it was."""
        return [
            place
            for each in self.accesses
            if each.kind == kind and (tensor is None or each.tensor is tensor)
            for place in each.places
        ]

    def bytes(self, kind):
        """Bytes that were read ("load") or written ("store"), or both at once ("atomic")."""
        return sum([len(a.places) * a.tensor.dtype.size for a in self.accesses if a.kind == kind])
