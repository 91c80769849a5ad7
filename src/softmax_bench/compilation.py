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
import json
import re
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from softmax_bench import providers, recording
from softmax_bench.gpus import MEASURED
from softmax_bench.recording import Kernel, hashed, target_of


@dataclasses.dataclass(frozen=True)
class Compilation:
    """What one kernel became for one GPU."""

    kernel: str  # the name of the function
    constants: dict[str, Any]  # compile-time constants; of an operation its name
    gpu: str  # a key of `GPUS`
    ttir: str  # Triton's own language, in the order of the kernel's text; empty for Gluon
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


Counted = dict[tuple[str, int], collections.Counter[str]]
"""Instructions by file and line."""


@functools.cache
def compiled(call: str, gpu: str = MEASURED) -> list[Compilation]:
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
def machine_code(call: str, gpu: str = MEASURED) -> list[Counted]:
    """What each kernel that a call launches became for an NVIDIA GPU: how many instructions of
    which kind each line has, in their order. The arguments are those of `compiled`."""
    return _process(lines=True).submit(_machine_code, call, gpu).result()


@functools.cache
def _process(lines: bool = False) -> Executor:
    pool = recording.process(lines=lines)
    atexit.register(pool.shutdown)
    return pool


# --- in the process without the interpreter


def call_from(text: str) -> Callable[[], object]:
    """Statements as a call."""
    import torch

    import triton_softmax

    names = {name: getattr(triton_softmax, name) for name in triton_softmax.__all__}
    names |= {"torch": torch, "choosing": providers.choosing, "ranks": recording.ranks}
    return lambda: exec(text, names)


def _kernels(call: str) -> list[Kernel]:
    """The kernels that a call launches, by the choices that hold now."""
    providers.imported("triton_softmax.plan").plans.clear()
    return recording.recorder().kernels_of(call_from(call))


def _compiled(call: str, gpu: str) -> list[Compilation]:
    with recording.on(gpu):
        try:
            return list(map(compilation_of, _kernels(call)))
        except Exception as error:
            # The compiler's own errors hold what cannot be handed to another process.
            raise RuntimeError(f"{call} on {gpu}: {error}") from None


def compilation_of(kernel: Kernel) -> Compilation:
    """Compile a kernel, in this process; what came of it is kept in Triton's cache on disk."""
    from triton.runtime.cache import get_cache_manager

    cache, name = get_cache_manager(hashed(f"{kernel.gpu} {key_of(kernel)}")), "lowered.json"
    path = cache.get_file(name) or cache.put(json.dumps(_made(kernel)), name, binary=False)
    return Compilation(
        kernel=kernel.source.fn.__name__,
        constants=kernel.constants,
        gpu=kernel.gpu,
        num_warps=kernel.options.num_warps,
        max_registers=getattr(kernel.options, "maxnreg", None),
        **json.loads(Path(path).read_text()),
    )


def _made(kernel: Kernel) -> dict[str, Any]:
    """What only a compiler knows of a kernel: the other fields of `Compilation`."""
    import triton

    triton.knobs.nvidia.dump_ptxas_log = True
    with contextlib.redirect_stdout(io.StringIO()) as report:
        texts, noted = lowered(kernel)
    assembly = texts.get("ptx") or texts["amdgcn"]
    if "ptx" in texts:  # ptxas says how many
        said, patterns = report.getvalue(), (r"Used (\d+) registers", r"(\d+) bytes spill stores")
    else:
        said, patterns = assembly, (r"\.vgpr_count:\s+(\d+)", r"\.vgpr_spill_count:\s+(\d+)")
    registers, spilled = (max(map(int, re.findall(each, said))) for each in patterns)
    return {
        "ttir": texts.get("ttir", ""),
        "assembly": assembly,
        "registers": registers,
        "spill_bytes": spilled if "ptx" in texts else 4 * spilled,
        "shared_bytes": noted["shared"],
    }


BINARIES = ("cubin", "hsaco")


def lowered(kernel: Kernel, last: str | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """A kernel in each language on the way to machine code, by Triton's name of it, and what the
    compiler noted; what is no text is bytes.

    Args:
        kernel: what is compiled; nothing is read from a cache.
        last: the language to end with. The first, `ttir`, takes no code generator, and a tenth of
            the time.
    """
    from triton._C.libtriton import ir
    from triton.compiler.compiler import make_backend

    source, options, target = kernel.source, kernel.options, target_of(kernel.gpu)
    backend: Any = make_backend(target)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, source.language)
    metadata = {"target": target, **options.__dict__}
    functions = backend.get_codegen_implementation(options)
    module = source.make_ir(target, options, functions, backend.get_module_map(), context)
    texts: dict[str, Any] = {}
    for name, stage in stages.items():
        module = stage(module, metadata)
        # A module prints without places in files and names of variables.
        texts[name] = module.str_nodebug() if isinstance(module, ir.module) else module
        if name not in BINARIES:
            texts[name] = str(texts[name])
        if name == last:
            break
    return texts, metadata


def _machine_code(call: str, gpu: str) -> list[Counted]:
    import triton

    with recording.on(gpu), tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        found = []
        for kernel in _kernels(call):
            Path(file.name).write_bytes(lowered(kernel)[0]["cubin"])
            command = [triton.knobs.nvidia.nvdisasm.path, "-c", "-g", file.name]
            run = subprocess.run(command, capture_output=True, text=True, check=True)
            found.append(by_line(run.stdout))
    return found


def by_line(sass: str) -> Counted:
    """What nvdisasm prints, counted.

    >>> by_line('''//## File "/a/tile.py", line 3
    ...     /*0010*/    @!P0 LDG.E.128 R4, desc[UR4][R2.64] ;
    ...     /*0020*/         LDG.E.128 R8, desc[UR4][R2.64+0x800] ;''')
    {('/a/tile.py', 3): Counter({'LDG.E.128': 2})}
    """
    found: Counted = {}
    place = ("", 0)
    for line in sass.splitlines():
        if named := re.search(r'//## File "([^"]+)", line (\d+)', line):
            place = (named[1], int(named[2]))
        elif instruction := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ +)?([\w.]+)", line):
            if instruction[1] != "NOP":  # behind the end
                found.setdefault(place, collections.Counter())[instruction[1]] += 1
    return found


# --- by what kernels are told apart


def normal_ir(text: str) -> str:
    """Triton's intermediate language without names of kernels and functions.

    >>> normal_ir('tt.func public @f(%arg0: i32) { tt.call @"g.h"(%arg0) }')
    'tt.func public @name0(%arg0: i32) { tt.call @name1(%arg0) }'
    """
    names: dict[str, str] = {}
    return re.sub(
        r"@[\w.$]+|@\"[^\"]*\"",
        lambda found: names.setdefault(found[0], f"@name{len(names)}"),
        text,
    )


def normal_ptx(assembly: str) -> str:
    """PTX without what does not reach the machine: comments, names of kernels and of functions.

    >>> print(normal_ptx(".visible .entry f(\\n.param .u64 f_param_0) // why\\nret;"))
    .visible .entry name0(
    .param .u64 name0_param_0)
    ret;
    """
    text = re.sub(r"//[^\n]*", "", assembly)
    names = re.findall(r"\.(?:entry|func)\b\s*(?:\([^)]*\)\s*)?([\w$.]+)", text)
    for number, name in enumerate(dict.fromkeys(names)):
        text = re.sub(rf"(?<![\w$.]){re.escape(name)}(?=\b|_)", f"name{number}", text)
    return "\n".join(line for each in text.splitlines() if (line := each.strip()))


def key_of(kernel: Kernel) -> str:
    """Follows from all that machine code follows from: sources, constants, options, compiler."""
    import triton

    return hashed(f"{triton.__version__} {kernel.source.hash()} {kernel.options.hash()}")


def hash_of(kernel: Kernel, last: str) -> str:
    """A hash of what a kernel becomes: `ttir` with its options, from which the rest follows, or
    `ptx`, which ptxas turns into the same machine code every time."""
    import triton

    texts, noted = lowered(kernel, last)
    if last == "ptx":
        return hashed(f"{normal_ptx(texts['ptx'])} {noted['shared']}")
    return hashed(f"{triton.__version__} {kernel.options.hash()} {normal_ir(texts['ttir'])}")
