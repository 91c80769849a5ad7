"""A small Triton in plain Python, which runs kernels as they are written.

It runs under CPython and under MicroPython, so the same kernels run in a test and in a page. A
kernel is any `@triton.jit` function; its programs run one after another, and every read and write
is recorded.

    from softmax_playground import small_triton as triton
    from softmax_playground.small_triton import Tensor, empty, language as tl

    @triton.jit
    def twice_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < n)
        tl.store(y_ptr + offsets, 2 * x, mask=offsets < n)

    x = Tensor([1.0, 2.0, 3.0], name="x")
    y = empty((3,), name="y")
    trace = twice_kernel[(2,)](x, y, 3, BLOCK=2)
    trace.accesses                    # program 0: load x[0, 1], program 0: store y[0, 1], …
    trace.bytes("load")               # 12
    trace.steps                       # of text that was run with `probes`: the values of each name

`empty` makes a tensor that is NaN until it is written, `with record() as trace:` collects what all
launches inside it do, and `run(code, **names)` runs text in which `import triton` and `import
triton.language as tl` mean these modules. Options such as `num_warps` change nothing; of several
configurations of a tuner the first is taken unless the call says its constants.

The library's own kernels: `softmax_playground.kernel_source.needed` takes them from their files,
and `small_triton.library.load` runs what it took.

Numbers: every operation is rounded to its type, float32 and float64 as IEEE says, float16 and
bfloat16 to the nearest. In float32 the results have the bits of Triton's own interpreter. What a
mask leaves out is NaN where no `other` is given; an access outside a tensor raises, and says which
program asked for which element.

Not here: inline assembly and other rare parts of `tl`, which say so; addresses as numbers; programs
that run at the same time. Of programs that wait for each other the first has to go on alone.
"""

# ruff: noqa: F401, I001  (what a caller finds here)

import sys

from . import language
from .access import Paused, State, rehearsed, rest
from .memory import Access, Tensor, Trace, bfloat16, empty, float16, float32, float64
from .memory import int16, int32, int64
from .probes import probed
from .tiles import Pointer, Tile

try:
    import __future__

    _FLAGS = (__future__.annotations.compiler_flag, True)
except ImportError:  # MicroPython, which never looks at annotations
    _FLAGS = ()

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""What a launch says to the compiler."""


class Kernel:
    """A jitted function: called from another one it is that function, `kernel[grid]` launches."""

    def __init__(self, function, config=None):
        self.fn = function.fn if isinstance(function, Kernel) else function
        self.config = config or {}
        self.__name__ = function.__name__

    def __call__(self, *arguments, **named):
        before = State.frame
        State.calls += 1
        State.frame = before + ((State.calls, self.__name__),)
        try:
            return self.fn(*arguments, **named)
        finally:
            State.frame = before

    def __getitem__(self, grid):
        return lambda *arguments, **named: self._launch(grid, arguments, named)

    def _launch(self, grid, arguments, named):
        constants = dict(self.config)
        constants.update(named)
        for option in OPTIONS:
            constants.pop(option, None)
        if callable(grid):
            grid = grid(constants)
        grid = tuple(grid) if isinstance(grid, (tuple, list)) else (grid,)
        grid = tuple([int(size) for size in grid]) + (1,) * (3 - len(grid))
        trace = _open[-1] if _open else Trace()
        trace.meet(arguments)
        arguments = [_argument(each) for each in arguments]
        constants = {name: _argument(each) for name, each in constants.items()}
        before = State.kernel, State.trace, State.grid
        State.kernel, State.trace, State.grid = self.__name__, trace, grid
        places = [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]
        left = {program: ([], 0) for program in range(len(places))}
        turns = [(program, 1) for program in State.order if program in left]
        turns += [(program, -1) for program in range(len(places))]
        trace.launches += 1
        begun = set()
        try:
            for State.program, State.budget in rehearsed(turns):
                if State.program not in left:
                    continue
                State.log, State.known = left[State.program]
                State.place, State.calls = places[State.program], 0
                State.answered = State.steps = 0
                trace.programs += State.program not in begun
                begun.add(State.program)
                try:
                    self(*arguments, **constants)
                    del left[State.program]
                except Paused:
                    left[State.program] = (State.log, State.steps)
                rest()
        finally:
            rest()
            State.kernel, State.trace, State.grid = before
        return trace


def _argument(value):
    """What a kernel sees: a pointer in place of a tensor."""
    if isinstance(value, Tensor):
        return Pointer(value, Tile([0], (), int64))
    if type(value) is tuple:  # and no named one, which is a constant
        return tuple([_argument(each) for each in value])
    return value


_open = []


class record:  # noqa: N801 (called like a function)
    """A trace of all launches while it is open."""

    def __enter__(self):
        _open.append(Trace())
        return _open[-1]

    def __exit__(self, *_):
        _open.pop()


class order:  # noqa: N801 (called like a function)
    """In which order the programs of launches inside it run.

    Each number gives that program a turn, which ends before what follows its next atomic operation.
    Then all that are left run to their end, one after another.
    """

    def __init__(self, *programs):
        for each in programs:
            if not isinstance(each, int):
                raise TypeError(f"order takes numbers of programs, not {each!r}")
        self.programs = programs

    def __enter__(self):
        State.order = self.programs

    def __exit__(self, *_):
        State.order = ()


def jit(function=None, **_):
    """Decorator: a function for the GPU. Options change nothing."""
    return Kernel(function) if function is not None else jit


class Config:
    """Constants that a tuner may choose, and options for the compiler."""

    def __init__(self, kwargs, **_):
        self.kwargs = kwargs


def autotune(configs, key=None, **_):
    """Decorator: the constants of the first configuration, unless the call says others."""
    return lambda kernel: Kernel(kernel, configs[0].kwargs)


constexpr_function, cdiv = language.constexpr_function, language.cdiv


def next_power_of_2(n):
    """The smallest power of two that is at least n."""
    power = 1
    while power < n:
        power *= 2
    return power


class knobs:  # noqa: N801 (its name in Triton)
    """Triton's settings: we interpret."""

    class runtime:  # noqa: N801
        interpret = True


def run(code, path="<cell>", probes=False, **names):
    """Run source text in which `triton` and `tl` are these modules; answer the names it defines.

    Args:
        code: Python; it may import triton and triton.language, and need not.
        path: what tracebacks call it.
        probes: whether traces get the steps of its kernels, each with the values of its names.
        names: more names that the text can use.

    Returns:
        A dictionary of all names.
    """
    this = sys.modules[__name__]
    found = {"triton": this, "tl": language, "__name__": path}
    found.update(language.PYTHONS)
    found.update(names)
    kept = {name: sys.modules.get(name) for name in ("triton", "triton.language")}
    sys.modules["triton"], sys.modules["triton.language"] = this, language
    try:
        program = compile(code, path, "exec", *_FLAGS)
        if probes:
            program = compile(probed(code, path), path, "exec", *_FLAGS)
        exec(program, found)
    finally:
        for name, module in kept.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
    return found
