"""Ask the compiler what a kernel becomes, without a GPU.

Triton compiles for a device that is not there: what the kernel's loads and stores turned into, how
many registers it takes and what it spills are facts on any Linux machine, for NVIDIA and AMD alike.

>>> integers = ("x_row_stride", "y_row_stride", "n_cols")
>>> request = Request(
...     "softmax_tutorial.single_block:softmax_forward_single_block_kernel",
...     {"x_ptr": "*fp32", "y_ptr": "*fp32", **dict.fromkeys(integers, "i32")},
...     {"LOG": False, "BLOCK_SIZE": 1024},
...     aligned=integers,
... )
>>> result = compiled(request)
>>> result.global_loads, result.global_stores
({'ld.global.ca.v4.b32': 2}, {'st.global.cs.v4.b32': 2})
>>> result.load_bits, result.store_bits, result.spill_bytes
(128, 128, 0)
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import dataclasses
import functools
import importlib
import io
import multiprocessing
import os
import re
from concurrent.futures import Executor, ProcessPoolExecutor
from operator import attrgetter
from typing import Any, cast

import torch

from softmax_bench.problem import problem_of
from triton_softmax.config import Choice, Device
from triton_softmax.config.space import TILE_KERNELS

ARCHITECTURES = {
    "sm_80": ("cuda", 80, 32),
    "sm_90": ("cuda", 90, 32),
    "sm_100": ("cuda", 100, 32),
    "gfx942": ("hip", "gfx942", 64),
}
"""The targets by name: backend, architecture, threads per warp. A100, H100 and H200, B200;
MI300."""


@dataclasses.dataclass(frozen=True)
class Compilation:
    """What one kernel became for one target."""

    kernel: str
    """The name of the function."""
    target: str
    """A key of `ARCHITECTURES`."""
    assembly: str
    """PTX for NVIDIA, GCN assembly for AMD."""
    registers: int
    """Registers per thread; vector registers on AMD."""
    spill_bytes: int
    """Bytes per thread stored to memory because the registers ran out; on AMD four for each spilled
    vector register."""
    shared_bytes: int
    """Shared memory per program."""
    num_warps: int
    """Warps per program."""

    @property
    def ptx(self) -> str:
        """The PTX, for an NVIDIA target."""
        if not self.target.startswith("sm_"):
            raise AttributeError(f"{self.target} has no PTX; see `assembly`")
        return self.assembly

    @property
    def global_loads(self) -> dict[str, int]:
        """How often each load of global memory occurs in the text, by instruction."""
        return self._count(r"ld\.(?:volatile\.)?global[\w.:]*|(?:global|buffer|flat)_load_\w+")

    @property
    def global_stores(self) -> dict[str, int]:
        """How often each store to global memory occurs in the text, by instruction."""
        return self._count(r"st\.(?:volatile\.)?global[\w.:]*|(?:global|buffer|flat)_store_\w+")

    def _count(self, pattern: str) -> dict[str, int]:
        counts = collections.Counter(re.findall(rf"\b(?:{pattern})", self.assembly))
        return dict(sorted(counts.items()))

    @property
    def load_bits(self) -> int:
        """Width of the widest load of global memory, in bits per thread."""
        return max(map(access_bits, self.global_loads), default=0)

    @property
    def store_bits(self) -> int:
        """Width of the widest store to global memory, in bits per thread."""
        return max(map(access_bits, self.global_stores), default=0)


def access_bits(instruction: str) -> int:
    """Bits that one thread moves with one instruction.

    >>> [access_bits(name) for name in ("ld.global.v4.b32", "st.global.cs.v2.b64", "ld.global.b16")]
    [128, 128, 16]
    >>> names = "global_load_dwordx4", "buffer_store_dword", "global_load_ushort"
    >>> [access_bits(name) for name in names]
    [128, 32, 16]
    """
    if match := re.search(r"dwordx?(\d*)", instruction):
        return 32 * int(match[1] or 1)
    if re.search(r"_(short|ushort|b16|d16)", instruction):
        return 16
    if re.search(r"_(byte|ubyte|sbyte)", instruction):
        return 8
    if match := re.search(r"_b(\d+)$", instruction):
        return int(match[1])
    vector = re.search(r"\.v(\d)", instruction)
    element = re.search(r"\.[bfsu](\d+)$", instruction)
    return int(element[1]) * (int(vector[1]) if vector else 1) if element else 0


@dataclasses.dataclass(frozen=True)
class Request:
    """One compilation to be done, as plain data."""

    kernel: str
    """`module:function`. A tuned kernel is named as it is in its module."""
    signature: dict[str, Any]
    """Triton type of each argument that is not a constant, `*fp32` or `i32`; of an argument that is
    a tuple, a tuple of them, where an integer stands for itself."""
    constants: dict[str, Any]
    """Value of each `tl.constexpr` argument; an operation as `module:name`."""
    target: str = "sm_90"
    """A key of `ARCHITECTURES`."""
    num_warps: int = 4
    """Warps per program."""
    num_stages: int = 3
    """Stages of software pipelining."""
    aligned: tuple[str, ...] = ()
    """Integer arguments that are multiples of 16, as Triton notices at a launch; all integers of an
    argument that is a tuple. Pointers always are."""
    max_registers: int | None = None
    """Registers per thread that an NVIDIA target may use."""


OPERATIONS = {
    "softmax": "triton_softmax.operations.softmax:SOFTMAX",
    "softmax_backward": "triton_softmax.operations.softmax:SOFTMAX_VJP",
    "log_softmax": "triton_softmax.operations.log_softmax:LOG_SOFTMAX",
    "log_softmax_backward": "triton_softmax.operations.log_softmax:LOG_SOFTMAX_VJP",
    "logsumexp": "triton_softmax.operations.logsumexp:LOGSUMEXP",
    "logsumexp_backward": "triton_softmax.operations.logsumexp:LOGSUMEXP_VJP",
}
"""Where the operations are found, by the names that plans have for them."""


H200 = Device(132, nvidia=True)


DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}
"""PyTorch's types by Triton's."""


def choose(operation: str, dtype: str, shape: tuple[int, ...], device: Device = H200) -> Choice:
    """What the library chooses for contiguous tensors, along the second dimension."""
    return problem_of(operation, getattr(torch, DTYPES[dtype]), shape, 1, device).library()


def launch_requests(
    choice: Choice, operation: str, dtype: str, target: str = "sm_90"
) -> list[Request]:
    """The compilation of each launch of a choice, as a plan launches it: of columns and strides
    that are multiples of 16. Only strided geometries are compiled anew for that; their columns lie
    side by side in any case.

    Args:
        choice: what is launched.
        operation: a key of `OPERATIONS`.
        dtype: of the inputs and of the result, a key of `DTYPES`.
        target: a key of `ARCHITECTURES`.
    """
    tile = choice.kernel in TILE_KERNELS
    module = f"triton_softmax.kernels.{'tile' if tile else choice.kernel}"
    name = "tile_kernel" if tile else f"{choice.kernel}_kernel"
    names = getattr(importlib.import_module(module), name).arg_names
    n_inputs = 2 if "backward" in operation else 1
    strides = ("i32", "i32", 1) if "n_inner" in names else "i32"
    known = {
        "in_ptrs": (f"*{dtype}",) * n_inputs,
        "out_ptrs": (f"*{dtype}",),
        "words_ptr": "*i64",
        "in_strides": (strides,) * n_inputs,
        "out_strides": (strides,),
    }
    signature = {name: known.get(name, "i32") for name in names if name not in ("OP", "HOW")}
    aligned = () if choice.kernel.endswith("_rows") else ("in_strides", "out_strides", "n_inner")
    return [
        Request(
            f"{module}:{name}",
            signature,
            {"OP": OPERATIONS[operation], "HOW": how},
            target,
            choice.num_warps,
            aligned=aligned,
            max_registers=choice.max_registers,
        )
        for how in choice.launches
    ]


def compiled(request: Request) -> Compilation:
    """Compile a kernel for a target that need not be there, in a process with the interpreter off
    whether or not it is on here. Triton's own cache on disk keeps what has not changed.

    Raises:
        ValueError: the target is not one of `ARCHITECTURES`, or an argument has neither a type nor
            a value.
        RuntimeError: the compiler refuses the kernel; its message is in the error.
    """
    return _process().submit(_compile, request).result()


@functools.cache
def _process() -> Executor:
    """Triton decides when it is imported whether it interprets, so the process is a new one."""
    interpret = os.environ.pop("TRITON_INTERPRET", None)
    try:
        pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        pool.submit(os.getpid).result()
        atexit.register(pool.shutdown)
    finally:
        if interpret is not None:
            os.environ["TRITON_INTERPRET"] = interpret
    return pool


# --- in the process without the interpreter -------------------------------------------------------


def _compile(request: Request) -> Compilation:
    if request.target not in ARCHITECTURES:
        raise ValueError(f"the target is one of {', '.join(ARCHITECTURES)}, not {request.target}")
    try:
        return _compiled(request)
    except ValueError:
        raise
    except Exception as error:
        # The compiler's own errors hold what cannot be handed to another process.
        raise RuntimeError(f"{request.kernel} for {request.target}: {error}") from None


def _compiled(request: Request) -> Compilation:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    module, name = request.kernel.split(":")
    kernel = getattr(importlib.import_module(module), name)
    while not isinstance(kernel, triton.runtime.JITFunction):  # what tunes a kernel wraps it
        kernel = kernel.fn
    names, given = kernel.arg_names, request.signature | request.constants
    if set(names) != set(given):
        missing = [name for name in names if name not in given]
        unknown = [name for name in given if name not in names]
        raise ValueError(
            f"{request.kernel} takes {', '.join(names)}; missing: {missing}, unknown: {unknown}"
        )
    signature, constants, attributes = {}, {}, {}
    for i, name in enumerate(names):
        if name in request.constants:
            signature[name] = "constexpr"
            constants[(i,)] = _constant(request.constants[name])
        else:
            aligned = name in request.aligned
            signature[name] = _typed(given[name], (i,), aligned, constants, attributes)
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=attributes)
    options = {"num_warps": request.num_warps, "num_stages": request.num_stages}
    if request.max_registers is not None and request.target.startswith("sm_"):
        options["maxnreg"] = request.max_registers
    target = GPUTarget(*ARCHITECTURES[request.target])
    if request.target.startswith("sm_"):
        made, registers, spill_bytes = _compile_nvidia(source, target, options)
        assembly = made.asm["ptx"]
    else:
        made = triton.compile(source, target=target, options=options)
        assembly = made.asm["amdgcn"]
        registers, spilled = (
            int(re.findall(rf"\.{name}:\s+(\d+)", assembly)[0])
            for name in ("vgpr_count", "vgpr_spill_count")
        )
        spill_bytes = 4 * spilled
    return Compilation(
        kernel=kernel.__name__,
        target=request.target,
        assembly=assembly,
        registers=registers,
        spill_bytes=spill_bytes,
        shared_bytes=made.metadata.shared,
        num_warps=made.metadata.num_warps,
    )


def _typed(
    kind: Any,
    path: tuple[int, ...],
    aligned: bool,
    constants: dict[tuple[int, ...], Any],
    attributes: dict[tuple[int, ...], Any],
) -> Any:
    """The type of an argument, or of a part of one; what is known of its value goes to the tables
    of constants and attributes."""
    if isinstance(kind, tuple):
        parts = enumerate(kind)
        return tuple(_typed(part, (*path, i), aligned, constants, attributes) for i, part in parts)
    if isinstance(kind, int):
        constants[path] = kind
        return "constexpr"
    if kind.startswith("*") or aligned:
        attributes[path] = [["tt.divisibility", 16]]
    return kind


def _constant(value: Any) -> Any:
    """A constant from the form in which it travels: an operation by its name."""
    if isinstance(value, str):
        module, name = value.split(":")
        return attrgetter(name)(importlib.import_module(module))
    return value


def _compile_nvidia(source: Any, target: Any, options: dict[str, Any]) -> tuple[Any, int, int]:
    """A compiled kernel, its registers per thread and bytes of spill stores.

    ptxas reports these two, so its report is kept beside the kernel in Triton's cache.
    """
    import triton
    from triton.runtime.cache import get_cache_manager

    name = "ptxas.txt"
    triton.knobs.nvidia.dump_ptxas_log = True
    report = io.StringIO()
    with contextlib.redirect_stdout(report):
        compiled = triton.compile(source, target=target, options=options)
        cache = get_cache_manager(compiled.hash)
        if not report.getvalue() and cache.get_file(name) is None:
            # The kernel was in the cache, by someone who did not ask for the report.
            triton.knobs.compilation.always_compile = True
            compiled = triton.compile(source, target=target, options=options)
            triton.knobs.compilation.always_compile = False
    if report.getvalue():
        path = cache.put(report.getvalue(), name, binary=False)
    else:
        path = cast("str", cache.get_file(name))
    with open(path) as file:
        text = file.read()
    registers = max(map(int, re.findall(r"Used (\d+) registers", text)))
    return compiled, registers, max(map(int, re.findall(r"(\d+) bytes spill stores", text)))
