"""Ask the compiler what the kernels of a call become, without a GPU.

Triton compiles for a device that is not there: what the kernels' loads and stores turned into, how
many registers they take and what they spill are facts on any Linux machine, for NVIDIA and AMD
alike. Which kernels a call launches on that device is seen by `recording`.

>>> (result,) = compiled("softmax(torch.empty(8, 1024), 1)")
>>> result.kernel, result.constants["OP"], result.constants["HOW"].block_cols
('tile_kernel', 'softmax', 1024)
>>> result.global_loads, result.load_bits, result.store_bits, result.spill_bytes
({'ld.global.v4.b32': 2}, 128, 128, 0)
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import dataclasses
import functools
import io
import multiprocessing
import os
import re
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from typing import Any, cast

from softmax_bench import providers, recording
from softmax_bench.gpus import GPUS, H200
from softmax_bench.recording import Kernel


@dataclasses.dataclass(frozen=True)
class Compilation:
    """What one kernel became for one GPU."""

    kernel: str  # the name of the function
    constants: dict[str, Any]  # compile-time constants; of an operation its name
    gpu: str  # a key of `GPUS`
    assembly: str  # PTX for NVIDIA, GCN assembly for AMD
    registers: int  # per thread; vector registers on AMD
    # Bytes per thread stored to memory because the registers ran out; on AMD four for each spilled
    # vector register.
    spill_bytes: int
    shared_bytes: int  # per program
    num_warps: int  # of a program
    max_registers: int | None  # per thread, that the launch allows, if it says so

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


@functools.cache
def compiled(call: str, gpu: str = H200) -> list[Compilation]:
    """Compile each kernel that a call launches, in a process with the interpreter off whether or
    not it is on here. Triton's own cache on disk keeps what has not changed.

    Args:
        call: statements, which have torch, the library's public functions, `choosing` and `ranks`
            by name.
        gpu: a key of `GPUS`.

    Raises:
        DataError: the GPU is not one of these.
        RuntimeError: the call fails, or the compiler refuses a kernel; the message is in the error.
    """
    return _process().submit(_compiled, call, gpu).result()


@functools.cache
def _process() -> Executor:
    """Triton decides when it is imported whether it interprets, so the process is a new one."""
    interpret = os.environ.pop("TRITON_INTERPRET", None)
    try:
        start = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(1, start, initializer=recording.recorder)
        pool.submit(os.getpid).result()
        atexit.register(pool.shutdown)
    finally:
        if interpret is not None:
            os.environ["TRITON_INTERPRET"] = interpret
    return pool


# --- in the process without the interpreter


def call_from(text: str) -> Callable[[], object]:
    """Statements as a call."""
    import torch

    import triton_softmax
    from softmax_bench.problem import choosing

    names = {name: getattr(triton_softmax, name) for name in triton_softmax.__all__}
    names |= {"torch": torch, "choosing": choosing, "ranks": recording.ranks}
    return lambda: exec(text, names)


def _compiled(call: str, gpu: str) -> list[Compilation]:
    providers.imported("triton_softmax.plan").plans.clear()  # choices may be others now
    with recording.on(gpu):
        try:
            kernels = recording.recorder().kernels_of(call_from(call))
            return list(map(compilation_of, kernels))
        except Exception as error:
            # The compiler's own errors hold what cannot be handed to another process.
            raise RuntimeError(f"{call} on {gpu}: {error}") from None


def compilation_of(kernel: Kernel) -> Compilation:
    """Compile a kernel, in this process."""
    import triton
    from triton.backends.compiler import GPUTarget

    target, options = GPUTarget(*GPUS[kernel.gpu][:3]), dict(vars(kernel.options))
    arguments = {"target": target, "options": options}
    if target.backend == "cuda":
        made, registers, spill_bytes = _compiled_by_ptxas(kernel.source, arguments)
        assembly = made.asm["ptx"]
    else:
        made = triton.compile(kernel.source, **arguments)
        assembly = made.asm["amdgcn"]
        registers, spilled = (
            int(re.findall(rf"\.{name}:\s+(\d+)", assembly)[0])
            for name in ("vgpr_count", "vgpr_spill_count")
        )
        spill_bytes = 4 * spilled
    return Compilation(
        kernel=kernel.source.fn.__name__,
        constants=kernel.constants,
        gpu=kernel.gpu,
        assembly=assembly,
        registers=registers,
        spill_bytes=spill_bytes,
        shared_bytes=made.metadata.shared,
        num_warps=made.metadata.num_warps,
        max_registers=options.get("maxnreg"),
    )


def _compiled_by_ptxas(source: Any, arguments: dict[str, Any]) -> tuple[Any, int, int]:
    """A compiled kernel, its registers per thread and bytes of spill stores.

    ptxas reports these two, so its report is kept beside the kernel in Triton's cache.
    """
    import triton
    from triton.runtime.cache import get_cache_manager

    name = "ptxas.txt"
    triton.knobs.nvidia.dump_ptxas_log = True
    report = io.StringIO()
    with contextlib.redirect_stdout(report):
        compiled = triton.compile(source, **arguments)
        cache = get_cache_manager(compiled.hash)
        if not report.getvalue() and cache.get_file(name) is None:
            # The kernel was in the cache, by someone who did not ask for the report.
            triton.knobs.compilation.always_compile = True
            compiled = triton.compile(source, **arguments)
            triton.knobs.compilation.always_compile = False
    if report.getvalue():
        path = cache.put(report.getvalue(), name, binary=False)
    else:
        path = cast("str", cache.get_file(name))
    with open(path) as file:
        text = file.read()
    registers = max(map(int, re.findall(r"Used (\d+) registers", text)))
    return compiled, registers, max(map(int, re.findall(r"(\d+) bytes spill stores", text)))


def lowered(kernel: Kernel, last: str) -> tuple[Any, dict[str, Any]]:
    """A kernel in one of the languages on the way to machine code, by Triton's name of it, and what
    the compiler noted.

    Nothing is read from a cache. The first, `ttir`, takes no code generator, and a tenth of the
    time.
    """
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import make_backend

    source, options = kernel.source, kernel.options
    target = GPUTarget(*GPUS[kernel.gpu][:3])
    backend: Any = make_backend(target)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, source.language)
    metadata = {"target": target, **options.__dict__}
    functions = backend.get_codegen_implementation(options)
    module = source.make_ir(target, options, functions, backend.get_module_map(), context)
    for name, stage in stages.items():
        module = stage(module, metadata)
        if name == last:
            break
    # The text lives as long as the context does.
    return str(module), metadata
