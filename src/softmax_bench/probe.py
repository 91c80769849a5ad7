"""What calls launch on an H200, found out without a GPU.

Run as a program this file reads cells of a data file and answers with every launch of each: kernel,
grid, numbers, constants, options, and a hash of the machine code. The library that it asks is the
one that it finds on its path, which may be of any commit: calls are public ones, and launches are
seen where Triton would compile and run a kernel. Tensors lie on the CPU, unread and unwritten, and
say that they lie on an H200.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import Any

import torch
import torch.distributed as dist

from softmax_bench import providers
from softmax_bench.case import Case
from softmax_bench.inputs import Inputs
from softmax_bench.replay import cell_of
from softmax_bench.roster import CHOOSER

PROPERTIES = types.SimpleNamespace(
    name="NVIDIA H200", multi_processor_count=132, major=9, minor=0, L2_cache_size=62914560,
    total_memory=150109880320, warp_size=32,
)  # fmt: skip
TARGET = ("cuda", 90, 32)

PROCESSES = 2
"""That compile."""

EVERY = 10
"""Of the lengths of a sweep every tenth is looked at."""


# --- the calls: the one place that knows the library, by its public functions ---


class Unread(Inputs):
    """Tensors whose numbers nobody reads."""

    def numbers(self, dtype: str, slot: int, elements: int) -> Any:
        """Memory as it comes."""
        return torch.empty(elements, dtype=getattr(torch, dtype))


def call_of(row: dict) -> Callable[[], object]:
    """The call of a measured row. What it returns may be called for a second part, which alone was
    measured: the backward pass."""
    if row["suite"] == "ranks":
        return call_of_ranks(row)
    names = ("suite", "dtype", "direction", "op", "dim", "layout", "inputs")
    case = Case(shape=tuple(row["shape"]), **{name: row[name] for name in names})
    if case.suite == "compiles":  # many lengths
        calls = [
            call_of({**row, "suite": "", "shape": (case.n_rows, n_cols)})
            for n_cols in case.lengths[::EVERY]
        ]
        return lambda: [done(call) for call in calls]
    if case.suite != "loss_head":  # a step is not compiled, and numbers make no difference
        case = replace(case, suite="", inputs="normal")
    name, t = row["provider"], Unread("cpu").tensors(case)
    of_library = (CHOOSER, *providers.imported("triton_softmax").IMPLEMENTATIONS)
    if case.direction != "backward" or name not in of_library:
        return providers.prepare(case, name, t)
    x = t.x.requires_grad_()
    function = providers.FUNCTIONS[name](replace(case, direction="forward"), t)

    def forward() -> Callable[[], object]:
        y = function(x)
        return lambda: torch.autograd.grad(y, x, t.dy)

    return forward


def done(call: Callable[[], object]) -> object:
    """Both parts of a call."""
    second = call()
    return second() if callable(second) else second


def call_of_ranks(row: dict) -> Callable[[], object]:
    """The call of a rank on its part of the rows; the other ranks are processes here."""
    ours, (n_rows, n_cols) = providers.imported("triton_softmax"), row["shape"]
    x = torch.empty(n_rows, n_cols, dtype=torch.bfloat16)
    name, _, alone = row["op"].partition(", ")
    where: dict[str, Any] = {} if alone else {"group": groups[row["ranks"]]}
    if name == "softmax":
        return lambda: (ours.softmax(x, 1, **where), None)
    if where:
        start = n_cols * dist.get_rank()
        where |= {"vocab_start": start, "vocab_size": n_cols * row["ranks"]}
    leaf, target = x.requires_grad_(), torch.zeros(n_rows, dtype=torch.int64)
    return lambda: ours.cross_entropy(leaf, target, **where).backward()


groups: dict[int, Any] = {}
"""Process groups by the number of their ranks, which this process is in."""


# --- a device that is not there ---


def pretend() -> None:
    """Let PyTorch's tensors say that they lie on an H200, though their memory is the host's, and
    nothing large be computed with them."""
    tensor: Any = torch.Tensor
    tensor.is_cuda = property(lambda self: not self.is_meta)
    true_device = tensor.device
    device = torch.device("cuda", 0)
    tensor.device = property(lambda self: true_device.__get__(self) if self.is_meta else device)
    tensor.get_device = lambda self: 0
    tensor.data_ptr = lambda self: self.storage_offset() * self.element_size()
    true_to = tensor.to

    def to(self: Any, *where: Any, **more: Any) -> Any:
        more.pop("device", None)
        rest = [each for each in where if not isinstance(each, (torch.device, str))]
        return true_to(self, *rest, **more) if rest or more else self

    tensor.to = to

    def patched(function: Any) -> Any:
        def call(*args: Any, device: Any = None, generator: Any = None, **more: Any) -> Any:
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
    tensor.clone = lambda self: torch.empty_like(self)
    cuda: Any = torch.cuda
    cuda.get_device_properties = lambda *_: PROPERTIES
    cuda.get_device_capability = lambda *_: (9, 0)
    cuda.is_available = lambda: True
    cuda.current_device = lambda: 0
    for name, value in (
        ("_cuda_getDevice", 0), ("_cuda_isCurrentStreamCapturing", False),
        ("_cuda_getCurrentRawStream", 0),
    ):  # fmt: skip
        setattr(torch._C, name, lambda *_, value=value: value)


class Driver:
    """What Triton asks of the driver before it compiles."""

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget(*TARGET)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


class Recorder:
    """Takes the place of Triton's compiler: keeps what would be compiled, and what is launched."""

    def __init__(self) -> None:
        import triton
        from triton.runtime import autotuner, driver
        from triton.runtime import jit as of_triton

        jit: Any = of_triton
        tuner: Any = autotuner.Autotuner
        self.kernels: list[tuple[Any, Any]] = []
        self.log: list[tuple[int, str, str]] = []
        self.tried: list[str] = []
        triton.knobs.compilation.disable_line_info = True
        driver.set_active(Driver())  # pyright: ignore[reportArgumentType]
        made = jit.JITCallable.__init__

        def without_words(function: Any, fn: Any) -> None:
            made(function, fn)
            function._src = code(function._src)
            function.starting_line_number = 0

        jit.JITCallable.__init__ = without_words
        jit.JITFunction._do_compile = lambda fn, *found: self.compiled(fn, *found)
        # Which configuration is fastest is not known here.
        tuner.run = lambda tuner, *args, **more: self.tuned(tuner, *args, **more)

    def tuned(self, tuner: Any, *args: Any, **more: Any) -> Any:
        """The first of the configurations that a tuner tries; the others follow its numbers."""
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        tried = tuner.prune_configs(more)
        self.tried = [hashed("; ".join(map(str, tried)))]
        return tuner.fn.run(*args, **more, **tried[0].all_kwargs())

    def compiled(self, fn, key, signature, device, constexprs, options, attrs, warmup):
        """A stand-in for the compiled kernel."""
        from triton.compiler import ASTSource

        number = len(self.kernels)
        self.kernels.append((ASTSource(fn, signature, constexprs, attrs), options))
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


def numbers(arguments: Iterable[Any]) -> list[str]:
    """What is no tensor among a launch's arguments, as text, in their order."""
    found = []
    for each in arguments:
        if isinstance(each, (tuple, list)):
            found += numbers(each)
        elif not hasattr(each, "data_ptr"):
            found.append(str(each))
    return found


# --- machine code ---


def code(text: str) -> str:
    """A function's text without comments and docstrings, by which Triton knows it."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def normal_ir(text: str) -> str:
    """Triton's intermediate language without places in files and without names.

    >>> normal_ir('#loc = loc("f.py":1:0)\\ntt.func public @f(%x: i32 loc("x"))')
    'tt.func public @name0(%0: i32 )'
    """
    text = re.sub(r"^#loc.*\n?", "", text, flags=re.MULTILINE)
    text = re.sub(r"\bloc\((?:[^()\"]|\"[^\"]*\"|\([^()]*(?:\([^()]*\)[^()]*)*\))*\)", "", text)
    for mark, stem in (("%", ""), ("@", "name")):
        names: dict[str, str] = {}
        text = re.sub(
            rf"{mark}[\w.$]+|{mark}\"[^\"]*\"",
            lambda found, m=mark, s=stem, n=names: n.setdefault(found[0], f"{m}{s}{len(n)}"),
            text,
        )
    return text


def normal(assembly: str) -> str:
    """PTX without what does not reach the machine: comments, names of files, of lines, of kernels
    and of functions.

    >>> print(normal(".visible .entry f(\\n.param .u64 f_param_0) // why\\nret;"))
    .visible .entry name0(
    .param .u64 name0_param_0)
    ret;
    """
    text = re.sub(r"//[^\n]*", "", assembly)
    text = re.sub(r"^\s*\.section\s+\.debug.*?^\s*\}", "", text, flags=re.DOTALL | re.MULTILINE)
    names = re.findall(r"\.(?:entry|func)\b\s*(?:\([^)]*\)\s*)?([\w$.]+)", text)
    for number, name in enumerate(dict.fromkeys(names)):
        text = re.sub(rf"(?<![\w$.]){re.escape(name)}(?=\b|_)", f"name{number}", text)
    skipped = (".file", ".loc", "$L__tmp", "$L__func")
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith(skipped))


def hashed(text: str) -> str:
    """Long enough for some thousands."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def key_of(source: Any, options: Any) -> str:
    """Follows from all that machine code follows from: sources, constants, options, compiler."""
    import triton

    return hashed(f"{triton.__version__} {source.hash()} {options.hash()}")


def compiled(kernel: tuple[Any, Any], machine: bool) -> str:
    """A hash of the first language that a source becomes with its options; or of its machine code:
    of PTX, which ptxas turns into the same every time."""
    import triton
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import make_backend

    source, options = kernel
    target = GPUTarget(*TARGET)
    backend: Any = make_backend(target)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, source.language)
    metadata = {"target": target, **options.__dict__}
    functions = backend.get_codegen_implementation(options)
    module = source.make_ir(target, options, functions, backend.get_module_map(), context)
    module = stages["ttir"](module, metadata)
    if not machine:
        return hashed(f"{triton.__version__} {options.hash()} {normal_ir(str(module))}")
    for name in ("ttgir", "llir", "ptx"):
        module = stages[name](module, metadata)
    return hashed(f"{normal(module)} {metadata['shared']}")


def find(known: dict[str, str], kernels: dict[str, tuple[Any, Any]], machine: bool) -> None:
    """Add the hashes of kernels that are not known yet, each by its name, from several
    processes."""
    _kernels.update((name, each) for name, each in kernels.items() if name not in known)
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("fork")) as pool:
        wanted = list(_kernels)
        found = pool.map(_compiled, wanted, [machine] * len(wanted), chunksize=2)
        known.update(zip(wanted, found, strict=True))
    _kernels.clear()


_kernels: dict[str, tuple[Any, Any]] = {}
"""What the processes that compile take from the one that starts them: it cannot be sent."""


def _compiled(name: str, machine: bool) -> str:
    return compiled(_kernels[name], machine)


def described(source: Any, options: Any) -> str:
    """A kernel's constants and options in words, for people."""
    names = list(source.signature)
    constants = [
        f"{names[path[0]]}={value}"
        for path, value in source.constants.items()
        if len(path) == 1 and not hasattr(value, "cache_key") or isinstance(value, str)
    ]
    shown = ("num_warps", "num_stages", "maxnreg", "enable_fp_fusion")
    return ", ".join([*constants, *(f"{name}={getattr(options, name)}" for name in shown)])


# --- the program ---


def launches(row: dict, recorder: Recorder) -> list[tuple[int, str, str]]:
    """What a row's call launches, in order; of a sweep each kernel once, on no grid. The naive rung
    launches PyTorch's kernels alone, and is not called."""
    if row["provider"] == "naive":
        return []
    call = call_of(row)
    recorder.log.clear()
    second = call()
    if callable(second):
        recorder.log.clear()
        second()
    if row["suite"] == "compiles":
        return [(kernel, "", "") for kernel in dict.fromkeys(each[0] for each in recorder.log)]
    return list(recorder.log)


def probe(rows: list[dict], known: dict[str, str], looked_at: list[str]) -> dict:
    """All kernels (name, words, key, hash of the first language, hash of the machine code), and
    each row's launches by case and provider.

    The first language that Triton compiles to has neither names of functions nor of variables, and
    with the options and the compiler it decides the machine code. So two kernels that agree in it
    are the same, and only where they differ is the machine code looked at: it may agree all the
    same, and takes four times as long.

    Args:
        rows: of the data.
        known: hashes of the first language by `key_of`, and of machine code by these.
        looked_at: hashes of the first language of kernels whose machine code is asked for.
    """
    recorder = Recorder()
    cells = {cell_of(row): launches(row, recorder) for row in rows if row["suite"] != "ranks"}
    if of_several := [row for row in rows if row["suite"] == "ranks"]:
        with tempfile.TemporaryDirectory() as folder:
            cells |= of_ranks(of_several, recorder, 0, folder)
    keys = [key_of(*kernel) for kernel in recorder.kernels]
    find(known, dict(zip(keys, recorder.kernels, strict=True)), machine=False)
    by_first = {known[key]: each for key, each in zip(keys, recorder.kernels, strict=True)}
    find(known, {each: by_first[each] for each in looked_at if each in by_first}, machine=True)
    kernels = [
        (each[0].name, described(*each), key, known[key], known.get(known[key]))
        for each, key in zip(recorder.kernels, keys, strict=True)
    ]
    return {"cells": cells, "kernels": kernels}


def of_ranks(rows: list[dict], recorder: Recorder, rank: int, folder: str) -> dict:
    """What a rank launches; the first one starts the others, which call the same."""
    sizes = sorted({row["ranks"] for row in rows})
    given = json.dumps({"rows": rows, "folder": folder})
    command = [sys.executable, "-m", "softmax_bench.probe", given]
    others = [
        subprocess.Popen([*command, str(each)], stdout=subprocess.DEVNULL)
        for each in (range(1, sizes[-1]) if rank == 0 else ())
    ]
    try:
        store = dist.FileStore(f"{folder}/store", sizes[-1])
        dist.init_process_group("gloo", store=store, rank=rank, world_size=sizes[-1])
        groups.update({size: dist.new_group(list(range(size))) for size in sizes})
        return {cell_of(row): launches(row, recorder) for row in rows if rank < row["ranks"]}
    finally:
        for other in others:
            other.wait(60)


if __name__ == "__main__":
    pretend()
    if len(sys.argv) > 1:
        of_ranks(recorder=Recorder(), rank=int(sys.argv[2]), **json.loads(sys.argv[1]))
    else:
        json.dump(probe(**json.load(sys.stdin)), sys.stdout)
