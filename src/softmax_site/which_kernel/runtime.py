"""What the planner's source needs where it runs in a page: there are no tensors there, only their
shapes and strides, and MicroPython has no NamedTuple, no dataclasses and fewer methods of numbers.

Runs under MicroPython and CPython alike.
"""
# pyright: reportCallIssue=false, reportArgumentType=false
# MicroPython has no types to say what these dictionaries hold.


class Record:
    """What a NamedTuple or a dataclass becomes."""

    _fields = ()
    _defaults = {}

    def __init__(self, *values, **named):
        given = dict(zip(self._fields, values))
        given.update(named)
        for name in self._fields:
            if name in given:
                setattr(self, name, given.pop(name))
            elif name in self._defaults:
                setattr(self, name, self._defaults[name])
            else:
                raise TypeError("missing " + name)
        if given:
            raise TypeError("unknown " + ", ".join(given))

    def _asdict(self):
        return {name: getattr(self, name) for name in self._fields}

    def _replace(self, **changes):
        values = self._asdict()
        values.update(changes)
        return type(self)(**values)

    def __iter__(self):
        return iter([getattr(self, name) for name in self._fields])

    def __eq__(self, other):
        return type(self) is type(other) and list(self) == list(other)

    def __hash__(self):
        return hash(tuple(self))


class Missing:
    """A name of a module that is not in the page: a kernel, for one. It can be named and passed
    on."""

    def __init__(self, name):
        self.__name__ = name.split(".")[-1]

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(name)

    def __call__(self, *arguments, **named):
        return arguments[0] if len(arguments) == 1 and not named else self


def joined(*parts):
    """A display with stars: [*a, b] is joined(a, [b])."""
    out = []
    for part in parts:
        out.extend(part)
    return out


def merged(*parts):
    """A display with double stars."""
    out = {}
    for part in parts:
        out.update(part)
    return out


def bit_length(n):
    return len(bin(n)) - 2 if n else 0


def isqrt(n):
    root = n
    while root * root > n:
        root = (root + n // root) // 2
    return root


def removeprefix(text, prefix):
    return text[len(prefix) :] if text.startswith(prefix) else text


# ---- The questions that were asked on the way ----

asked = []
_open = []


def begin(number):
    """A condition is about to be looked at."""
    _open.append({"at": number, "inner": []})


def decide(begun, value, names, values):
    """It has been: what came out, and the values of the names in it."""
    question = _open.pop()
    question["answer"] = bool(value)
    question["with"] = [(name, shown(each)) for name, each in zip(names, values)]
    (_open[-1]["inner"] if _open else asked).append(question)
    return value


def forget_questions():
    del asked[:]
    del _open[:]


def shown(value):
    """A value as a reader may see it; None of what is too long to read."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (tuple, list)) and len(value) < 5:
        return str(tuple(value)) if all(isinstance(each, int) for each in value) else None
    return None


# ---- What stands where torch and triton stood ----


class Dtype:
    def __init__(self, name, itemsize):
        self.name = name
        self.itemsize = itemsize

    def __repr__(self):
        return "torch." + self.name


class Place:
    """A device."""

    def __init__(self, type):
        self.type = type
        self.index = 0


GPU = Place("cuda")


class Tensor:
    """A tensor without numbers.

    Args:
        shape: its sizes.
        dtype: of its elements.
        strides: in elements; by default it is contiguous.
        address: of its first element, in bytes.
    """

    is_cuda = True
    device = GPU

    def __init__(self, shape, dtype, strides=None, address=0):
        self.shape = tuple(shape)
        self.dtype = dtype
        self.strides = contiguous_strides(shape) if strides is None else tuple(strides)
        self.address = address

    def dim(self):
        return len(self.shape)

    def stride(self, dim=None):
        return self.strides if dim is None else self.strides[dim]

    def numel(self):
        n = 1
        for size in self.shape:
            n *= size
        return n

    def element_size(self):
        return self.dtype.itemsize

    def data_ptr(self):
        return self.address

    def get_device(self):
        return 0

    def is_contiguous(self):
        wanted = contiguous_strides(self.shape)
        pairs = zip(self.shape, self.strides, wanted)
        return all(size == 1 or have == want for size, have, want in pairs)

    def contiguous(self):
        return self if self.is_contiguous() else Tensor(self.shape, self.dtype)

    def clone(self, **_):
        return Tensor(self.shape, self.dtype)

    def to(self, dtype):
        return Tensor(self.shape, dtype, self.strides)

    def reshape(self, *shape):
        return Tensor(shape, self.dtype)

    def unsqueeze(self, dim):
        at = dim % (len(self.shape) + 1)
        shape = list(self.shape)
        strides = list(self.strides)
        strides.insert(at, shape[at] * strides[at] if at < len(shape) else 1)
        shape.insert(at, 1)
        return Tensor(shape, self.dtype, strides, self.address)

    def expand(self, shape):
        strides = [
            0 if mine == 1 and size != 1 else step
            for mine, size, step in zip(self.shape, shape, self.strides)
        ]
        return Tensor(shape, self.dtype, strides, self.address)


def contiguous_strides(shape):
    strides = []
    step = 1
    for size in reversed(tuple(shape)):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


class Properties:
    """Of the device that is asked about."""

    multi_processor_count = 132


class Version:
    hip = None


class Cuda:
    @staticmethod
    def get_device_properties(device):
        return Properties


class Torch:
    Tensor = Tensor
    Size = tuple
    float16 = Dtype("float16", 2)
    bfloat16 = Dtype("bfloat16", 2)
    float32 = Dtype("float32", 4)
    float64 = Dtype("float64", 8)
    int64 = Dtype("int64", 8)
    int32 = Dtype("int32", 4)
    contiguous_format = None
    cuda = Cuda
    version = Version

    @staticmethod
    def promote_types(a, b):
        if a is b:
            return a
        if a.itemsize == b.itemsize:
            return Torch.float32  # of both 16-bit types
        return a if a.itemsize > b.itemsize else b

    @staticmethod
    def empty(*shape, **options):
        return Tensor(shape[0], options.get("dtype") or Torch.float32)

    @staticmethod
    def empty_like(tensor, **options):
        return Tensor(tensor.shape, options.get("dtype") or tensor.dtype)


class Triton:
    JITFunction = Missing
    language = Missing("language")

    @staticmethod
    def jit(function):
        return function

    @staticmethod
    def cdiv(n, divisor):
        return -(-n // divisor)


torch = Torch
triton = Triton
empty_like = Torch.empty_like


def replace(record, **changes):
    return record._replace(**changes)


class Launch(Record):
    _fields = ("kernel", "grid", "numbers", "constants", "options")


class Workspace(Record):
    _fields = ("n_words", "zeroed")
    _defaults = {"zeroed": False}


def cuda_index(tensor):
    return 0


def current_device():
    return 0
