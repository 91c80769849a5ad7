"""What calls launch on a GPU that is not there, seen where Triton would compile and run a kernel.

A process that has a `recorder` records every launch: tensors lie on the CPU, unread and unwritten,
and say that they lie on the GPU that `on` names. `process` starts one, with the library as it lies
below any folder, of whatever commit: calls are public ones.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import os
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import torch.distributed as dist

from softmax_bench import providers
from softmax_bench.case import Case
from softmax_bench.gpus import GPUS, MEASURED
from softmax_bench.inputs import Inputs
from softmax_bench.roster import CHOOSER
from softmax_bench.schema import DataError

MOST_RANKS = 8

EVERY = 10
"""Of the lengths of a sweep every tenth is looked at."""


# --- the calls: the one place that knows the library, by its public functions


class Unread(Inputs):
    """Tensors whose numbers nobody reads."""

    def __init__(self, device: str = "cpu"):
        super().__init__("cpu", seed=0)
        self.device = torch.device(device)

    def numbers(self, dtype: str, *shape: int) -> Any:
        """Memory as it comes."""
        return torch.empty(shape, dtype=getattr(torch, dtype), device=self.device)


def call_of(row: dict) -> Callable[[], object]:
    """The call of a measured row; where that is a backward pass alone, what comes before is called
    already."""
    if row["suite"] == "ranks":
        return call_of_ranks(row)
    if row["suite"] == "invariant":
        from softmax_bench import invariance

        case = invariance.cases()[row["case"].removeprefix("invariant/")]
        t = Unread().tensors(case)
        both = [invariance.prepare(case, each, t) for each in (False, True)]
        return lambda: [call() for call in both]
    case = Case.of(row)
    if case.suite == "compiles":  # many lengths
        calls = [
            call_of({**row, "suite": "", "shape": (case.n_rows, n_cols)})
            for n_cols in case.lengths[::EVERY]
        ]
        return lambda: [call() for call in calls]
    if case.suite != "loss_head":  # a step is not compiled, and numbers make no difference
        case = replace(case, suite="", inputs="normal")
    name, t = row["provider"], Unread().tensors(case)
    if case.direction != "backward" or name != CHOOSER:
        return providers.prepare(case, name, t)
    x = t.x.requires_grad_()
    y = providers.FUNCTIONS[name](replace(case, direction="forward"), t)(x)
    return lambda: torch.autograd.grad(y, x, t.dy)


def call_of_ranks(row: dict) -> Callable[[], object]:
    """The call of the first of several ranks on its part of the rows."""
    ours, (n_rows, n_cols) = providers.imported("triton_softmax"), row["shape"]
    x = torch.empty(n_rows, n_cols, dtype=torch.bfloat16)
    name, _, alone = row["op"].partition(", ")
    where: dict[str, Any] = {} if alone else {"group": ranks(row["ranks"])}
    if name == "softmax":
        return lambda: ours.softmax(x, 1, **where)
    leaf, target = x.requires_grad_(), torch.zeros(n_rows, dtype=torch.int64)
    return lambda: ours.cross_entropy(leaf, target, **where).backward()


@functools.cache
def ranks(size: int) -> Any:
    """A process group of which only the first rank is there; the others say what it says."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if not dist.is_initialized():
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=MOST_RANKS)
    return dist.new_group(list(range(size)))


# --- a device that is not there


def target_of(gpu: str) -> Any:
    """A GPU as Triton's compiler is told of it."""
    from triton.backends.compiler import GPUTarget

    return GPUTarget(*GPUS[gpu][:3])


class Driver:
    """What Triton asks of the driver before it compiles. A GPU's index is its place in `GPUS`."""

    gpu = MEASURED

    def get_current_target(self) -> Any:
        return target_of(self.gpu)

    def get_current_device(self) -> int:
        return list(GPUS).index(self.gpu)

    def get_current_stream(self, device: int) -> int:
        return 0


driver = Driver()


@contextlib.contextmanager
def on(name: str) -> Iterator[None]:
    """Let the current GPU be another one for a while.

    Raises:
        DataError: it is not one of `GPUS`.
    """
    if name not in GPUS:
        raise DataError(f"the GPU is one of {', '.join(GPUS)}, not {name}")
    hip = "7" if GPUS[name].backend == "hip" else None
    with patch.object(driver, "gpu", name), patch.object(torch.version, "hip", hip):
        yield


def pretend() -> None:
    """Let PyTorch's tensors say that they lie on the current GPU, though their memory is the
    host's, and nothing large be computed with them."""
    tensor: Any = torch.Tensor
    tensor.is_cuda = property(lambda self: not self.is_meta)
    true_device = tensor.device
    devices = [torch.device("cuda", index) for index in range(len(GPUS))]
    tensor.device = property(
        lambda self: (
            true_device.__get__(self) if self.is_meta else devices[driver.get_current_device()]
        )
    )
    tensor.get_device = lambda self: driver.get_current_device()
    # No tensor lies at 0, which would be one without memory.
    tensor.data_ptr = lambda self: 4096 + self.storage_offset() * self.element_size()
    true_to = tensor.to

    def to(self: Any, *where: Any, **more: Any) -> Any:
        more.pop("device", None)
        rest = [each for each in where if not isinstance(each, (torch.device, str))]
        return true_to(self, *rest, **more) if rest or more else self

    tensor.to = to

    def patched(function: Any) -> Any:
        def call(*args: Any, device: Any = None, **more: Any) -> Any:
            for name in ("generator", "pin_memory"):
                more.pop(name, None)
            return function(*args, device="meta" if str(device) == "meta" else None, **more)

        return call

    torch.softmax = torch.log_softmax = lambda x, dim: torch.empty(x.shape, dtype=x.dtype)
    for name in ("empty", "zeros", "ones", "full", "arange", "tensor", "empty_strided"):
        setattr(torch, name, patched(getattr(torch, name)))
    torch.randn = torch.rand = torch.empty
    zeros: Any = torch.zeros
    torch.randint = lambda low, high, size, **more: zeros(size, dtype=torch.int64)
    torch.mm = lambda a, b, out=None: a.new_empty(len(a), b.shape[1]) if out is None else out
    tensor.addmm_ = lambda self, a, b: self
    torch.addmm = lambda total, a, b, out_dtype=None, out=None: total
    tensor.clone = lambda self: torch.empty_like(self)

    def properties(*_: Any) -> Any:
        return types.SimpleNamespace(multi_processor_count=GPUS[driver.gpu].multiprocessors)

    cuda: Any = torch.cuda
    cuda.get_device_properties, cuda.is_available = properties, lambda: True
    cuda.synchronize = cuda.current_stream = lambda *_: None
    inner: Any = torch._C
    cuda.current_device = inner._cuda_getDevice = driver.get_current_device
    cuda.is_current_stream_capturing = inner._cuda_isCurrentStreamCapturing = lambda: False
    inner._cuda_getCurrentRawStream = lambda _: 0


# --- what is recorded


class Kernel(NamedTuple):
    """What Triton would compile."""

    source: Any
    options: Any
    gpu: str  # a key of `GPUS`

    @property
    def constants(self) -> dict[str, Any]:
        """The values of the compile-time constants, by name; of an operation its name."""
        names = list(self.source.signature)
        return {
            names[path[0]]: str(value) if isinstance(value, str) else value
            for path, value in self.source.constants.items()
            if len(path) == 1
        }


class Recorder:
    """Takes the place of Triton's compiler: keeps what would be compiled, and what is launched."""

    lines = False
    """Whether machine code says which line of a file it is of; a comment changes it, then."""

    def __init__(self) -> None:
        import triton
        from triton.runtime import autotuner
        from triton.runtime import driver as of_runtime
        from triton.runtime import jit as of_triton

        pretend()
        jit: Any = of_triton
        tuner: Any = autotuner.Autotuner
        self.kernels: list[Kernel] = []
        self.log: list[tuple[int, str, str]] = []
        """(index of the kernel, grid, numbers) of each launch."""
        self.tried: list[str] = []
        triton.knobs.compilation.disable_line_info = not self.lines
        of_runtime.set_active(driver)  # pyright: ignore[reportArgumentType]
        made = jit.JITCallable.__init__

        def without_words(function: Any, fn: Any) -> None:
            made(function, fn)
            function._src = code(function._src)
            function.starting_line_number = 0

        if not self.lines:
            jit.JITCallable.__init__ = without_words
        jit.JITFunction._do_compile = lambda fn, *found: self.compiled(fn, *found)
        # Which configuration is fastest is not known here.
        tuner.run = lambda tuner, *args, **more: self.tuned(tuner, *args, **more)

    def launches(self, call: Callable[[], object]) -> list[tuple[int, str, str]]:
        """What a call launches, in order."""
        self.log.clear()
        call()
        return list(self.log)

    def kernels_of(self, call: Callable[[], object]) -> list[Kernel]:
        """The kernels that a call launches, each once."""
        return [self.kernels[at] for at in dict.fromkeys(each[0] for each in self.launches(call))]

    def tuned(self, tuner: Any, *args: Any, **more: Any) -> Any:
        """The first of the configurations that a tuner tries; the others follow its numbers."""
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        tried = tuner.prune_configs(more)
        self.tried = [hashed("; ".join(map(str, tried)))]
        return tuner.fn.run(*args, **more, **tried[0].all_kwargs())

    def compiled(self, fn, key, signature, device, constexprs, options, attrs, warmup):
        """A stand-in for the compiled kernel."""
        number = len(self.kernels)
        source = fn.ASTSource(fn, signature, constexprs, attrs)  # Gluon has its own
        self.kernels.append(Kernel(source, options, list(GPUS)[device]))
        constant = [parameter.is_constexpr for parameter in fn.params]

        def run(x, y, z, stream, function, packed, metadata, enter, leave, *args) -> None:
            given = [each for each, skip in zip(args, constant, strict=True) if not skip]
            grid = ",".join(map(str, (x, y, z))).removesuffix(",1").removesuffix(",1")
            self.log.append((number, grid, ",".join([*numbers(given), *self.tried])))
            self.tried = []

        target = types.SimpleNamespace(backend="none")  # it has no short way to launch
        kernel = types.SimpleNamespace(
            run=run, function=None, packed_metadata=None, launch_metadata=lambda *_: None,
            metadata=types.SimpleNamespace(target=target),
        )  # fmt: skip
        fn.device_caches[device][0][key] = kernel
        return kernel


@functools.cache
def recorder() -> Recorder:
    """The one of this process; it comes before the library is imported, and stays."""
    return Recorder()


def process(tree: Path | None = None, lines: bool = False) -> Executor:
    """A process that records, whether or not kernels are interpreted here; Triton decides that when
    it is imported.

    Args:
        tree: where the library and the tutorial are looked for first.
        lines: see `Recorder`.
    """
    with patch.dict(os.environ):
        os.environ.pop("TRITON_INTERPRET", None)
        pool = ProcessPoolExecutor(1, get_context("spawn"), _begin, (tree, lines))
        pool.submit(os.getpid).result()  # it is there
    return pool


def _begin(tree: Path | None, lines: bool) -> None:
    if tree is not None:
        sys.path.insert(0, str(tree))
    Recorder.lines = lines
    recorder()


def numbers(arguments: Iterable[Any]) -> list[str]:
    """What is no tensor among a launch's arguments, as text, in their order."""
    found = []
    for each in arguments:
        if isinstance(each, (tuple, list)):
            found += numbers(each)
        elif not hasattr(each, "data_ptr"):
            found.append(str(each))
    return found


def code(text: str) -> str:
    """A function's text without comments and docstrings, by which Triton knows it."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def hashed(text: str) -> str:
    """Long enough for some thousands."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]
