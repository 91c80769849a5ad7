"""Ask the compiler what a kernel becomes, without a GPU.

Triton compiles for a device that is not there: what the kernel's loads and stores turned into, how
many registers it takes and what it spills are facts on any Linux machine, for NVIDIA and AMD alike.

>>> integers = ("x_row_stride", "y_row_stride", "n_cols")
>>> result = compile_ahead(
...     "triton_softmax.kernels.single_block:softmax_forward_single_block_kernel",
...     {"x_ptr": "*fp32", "y_ptr": "*fp32", **dict.fromkeys(integers, "i32")},
...     {"LOG": False, "BLOCK_SIZE": 1024},
...     aligned=integers,
... )
>>> result.global_loads, result.global_stores
({'ld.global.ca.v4.b32': 2}, {'st.global.cs.v4.b32': 2})
>>> result.load_bits, result.store_bits, result.spill_bytes
(128, 128, 0)
"""

from __future__ import annotations

import collections
import dataclasses
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from typing import Any, cast

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
        return _count(
            r"\b(ld\.(?:volatile\.)?global[\w.:]*|(?:global|buffer|flat)_load_\w+)", self.assembly
        )

    @property
    def global_stores(self) -> dict[str, int]:
        """How often each store to global memory occurs in the text, by instruction."""
        return _count(
            r"\b(st\.(?:volatile\.)?global[\w.:]*|(?:global|buffer|flat)_store_\w+)", self.assembly
        )

    @property
    def load_bits(self) -> int:
        """Width of the widest load of global memory, in bits per thread."""
        return max(map(access_bits, self.global_loads), default=0)

    @property
    def store_bits(self) -> int:
        """Width of the widest store to global memory, in bits per thread."""
        return max(map(access_bits, self.global_stores), default=0)


def _count(pattern: str, text: str) -> dict[str, int]:
    counts = collections.Counter(re.findall(pattern, text))
    return dict(sorted(counts.items()))


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
    signature: dict[str, str]
    """Triton type of each argument that is not a constant, `*fp32` or `i32`."""
    constants: dict[str, Any]
    """Value of each `tl.constexpr` argument; a dtype as `"tl.float32"`."""
    target: str = "sm_90"
    """A key of `ARCHITECTURES`."""
    num_warps: int = 4
    """Warps per program."""
    num_stages: int = 3
    """Stages of software pipelining."""
    aligned: tuple[str, ...] = ()
    """Integer arguments that are multiples of 16, as Triton notices at a launch. Pointers always
    are."""
    max_registers: int | None = None
    """Registers per thread that an NVIDIA target may use."""


def compile_ahead(
    kernel: str,
    signature: dict[str, str],
    constants: dict[str, Any],
    target: str = "sm_90",
    *,
    num_warps: int = 4,
    num_stages: int = 3,
    aligned: tuple[str, ...] = (),
    max_registers: int | None = None,
) -> Compilation:
    """Compile one kernel for a target that need not be there.

    Args:
        kernel: `module:function`.
        signature: Triton type of each argument that is not a constant.
        constants: value of each `tl.constexpr` argument.
        target: "sm_80", "sm_90", "sm_100" or "gfx942".
        num_warps: warps per program.
        num_stages: stages of software pipelining.
        aligned: integer arguments that are multiples of 16.
        max_registers: registers per thread that an NVIDIA target may use.

    Returns:
        The assembly and what it needs.

    Raises:
        ValueError: the target is not one of `ARCHITECTURES`, or an argument has neither a type nor
            a value.
        RuntimeError: the compiler refuses the kernel; its message is in the error.
    """
    return compile_many(
        [
            Request(
                kernel,
                signature,
                constants,
                target,
                num_warps,
                num_stages,
                tuple(aligned),
                max_registers,
            )
        ]
    )[0]


def compile_many(requests: list[Request], *, keep_errors: bool = False) -> list[Compilation]:
    """Compile several kernels in one process, with the interpreter off whether or not it is on
    here.

    Args:
        requests: what to compile.
        keep_errors: put the error of a refused kernel in its place in the list, instead of raising
            it.

    Raises:
        ValueError: as `compile_ahead`.
        RuntimeError: the compiler refuses a kernel.
    """
    for request in requests:
        if request.target not in ARCHITECTURES:
            raise ValueError(
                f"the target is one of {', '.join(ARCHITECTURES)}, not {request.target}"
            )
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    process = subprocess.run(
        [sys.executable, "-m", "softmax_bench.compilation"],
        input=json.dumps([dataclasses.asdict(request) for request in requests]),
        capture_output=True,
        text=True,
        env=environment,
    )
    if process.returncode:
        raise RuntimeError(f"the compiler process failed:\n{process.stderr}")
    results = [_result(answer) for answer in json.loads(process.stdout.splitlines()[-1])]
    for result in results:
        if isinstance(result, Exception) and not keep_errors:
            raise result
    return cast("list[Compilation]", results)  # errors too, for those who asked to keep them


def _result(answer: dict[str, Any]) -> Compilation | Exception:
    if "error" in answer:
        return (ValueError if answer["kind"] == "ValueError" else RuntimeError)(answer["error"])
    return Compilation(**answer)


# --- in the process without the interpreter -------------------------------------------------------


def _compile(request: Request) -> Compilation:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    module, name = request.kernel.split(":")
    kernel = getattr(importlib.import_module(module), name)
    while not isinstance(
        kernel, triton.runtime.JITFunction
    ):  # tuned kernels and heuristics wrap it
        kernel = kernel.fn
    names = kernel.arg_names
    missing = [
        name for name in names if name not in request.signature and name not in request.constants
    ]
    unknown = [name for name in (*request.signature, *request.constants) if name not in names]
    if missing or unknown:
        raise ValueError(
            f"{request.kernel} takes {', '.join(names)}; missing: {missing}, unknown: {unknown}"
        )
    source = ASTSource(
        fn=kernel,
        signature={name: request.signature.get(name, "constexpr") for name in names},
        constexprs={
            (names.index(name),): _constant(value) for name, value in request.constants.items()
        },
        attrs={
            (i,): [["tt.divisibility", 16]]
            for i, name in enumerate(names)
            if name in request.aligned or request.signature.get(name, "").startswith("*")
        },
    )
    options = {"num_warps": request.num_warps, "num_stages": request.num_stages}
    if request.max_registers is not None and request.target.startswith("sm_"):
        options["maxnreg"] = request.max_registers
    compiled = triton.compile(
        source, target=GPUTarget(*ARCHITECTURES[request.target]), options=options
    )
    if request.target.startswith("sm_"):
        assembly = compiled.asm["ptx"]
        registers, spill_bytes = _resources_nvidia(assembly)
    else:
        assembly = compiled.asm["amdgcn"]
        registers = int(_found(r"\.vgpr_count:\s+(\d+)", assembly))
        spill_bytes = 4 * int(_found(r"\.vgpr_spill_count:\s+(\d+)", assembly))
    return Compilation(
        kernel=name,
        target=request.target,
        assembly=assembly,
        registers=registers,
        spill_bytes=spill_bytes,
        shared_bytes=compiled.metadata.shared,
        num_warps=compiled.metadata.num_warps,
    )


def _found(pattern: str, text: str) -> str:
    """The first group of the first match."""
    match = re.search(pattern, text)
    if match is None:
        raise RuntimeError(f"nothing matches {pattern} in what the compiler wrote")
    return match[1]


def _constant(value: Any) -> Any:
    """A constant from its JSON form: a dtype travels as its name."""
    import triton.language as tl

    if isinstance(value, str) and value.startswith("tl."):
        return getattr(tl, value[3:])
    return value


def _resources_nvidia(ptx: str) -> tuple[int, int]:
    """Registers per thread and bytes of spill stores, from ptxas itself."""
    from triton.backends.nvidia.compiler import get_ptxas

    architecture = _found(r"(?m)^\.target (\w+)", ptx)
    ptxas = get_ptxas(int(_found(r"(\d+)", architecture))).path
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(ptx)
        file.flush()
        process = subprocess.run(
            [ptxas, "-v", f"--gpu-name={architecture}", file.name, "-o", os.devnull],
            capture_output=True,
            text=True,
        )
    if process.returncode:
        raise RuntimeError(f"ptxas: {process.stderr}")
    registers = max(map(int, re.findall(r"Used (\d+) registers", process.stderr)))
    spill_bytes = max(map(int, re.findall(r"(\d+) bytes spill stores", process.stderr)))
    return registers, spill_bytes


def _main() -> None:
    answers = []
    for request in json.load(sys.stdin):
        try:
            answers.append(dataclasses.asdict(_compile(Request(**request))))
        except Exception as error:
            kind = "ValueError" if isinstance(error, ValueError) else "RuntimeError"
            answers.append(
                {"error": f"{request['kernel']} for {request['target']}: {error}", "kind": kind}
            )
    print()
    print(json.dumps(answers))


if __name__ == "__main__":
    _main()
