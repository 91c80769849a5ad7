"""Every kernel through the compiler, for four architectures and without a device: what its loads
and stores become, and what it spills.

`CASES` lists every kernel of `triton_softmax.kernels`; a kernel that is not listed fails a test.
"""

from __future__ import annotations

import ast
import concurrent.futures
import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import triton

import triton_softmax
from softmax_bench.compilation import (
    ARCHITECTURES,
    Compilation,
    Request,
    access_bits,
    compile_ahead,
    compile_many,
)
from triton_softmax import dispatch
from triton_softmax.choose import Choice, Device, Traits
from triton_softmax.choose.split_rows import choose_split_rows

KERNELS = Path(triton_softmax.__file__).parent / "kernels"
CONSTRAINTS = Path(__file__).parents[3] / "constraints.txt"
ALSO_SPILLED = 0 if f"triton=={triton.__version__}" in CONSTRAINTS.read_text().split() else 96
"""Bytes that releases of the compiler other than the one in the constraints may spill beyond what
is promised of that."""
BITS = {"fp16": 16, "bf16": 16, "fp32": 32, "fp64": 64}


def per_vector(dtype: str) -> int:
    """Elements in 128 bits."""
    return 128 // BITS[dtype]


@dataclasses.dataclass(frozen=True)
class Case:
    """How one kernel is compiled, and what is promised of it."""

    kernel: str
    """`module:function` below `triton_softmax.kernels`."""
    constants: Callable[[str, str], dict] = lambda dtype, target: {}
    """Constants but LOG, from the element type and the target."""
    num_warps: int = 4
    types: Callable[[str], dict] = lambda dtype: {}
    """Types of arguments that are neither element pointers (`…_ptr`) nor int32."""
    aligned: tuple[str, ...] = ()
    """Integers that are multiples of 16 in this case."""
    bits: int = 128
    """Promised width of the widest load and the widest store; 0 promises nothing."""
    spill_bytes: int = 0
    """How much may spill."""
    dtypes: tuple[str, ...] = tuple(BITS)
    targets: tuple[str, ...] = tuple(ARCHITECTURES)
    max_registers: int | None = None

    @property
    def label(self) -> str:
        """The kernel without its module."""
        return self.kernel.split(":")[1].removesuffix("_kernel")

    def request(self, dtype: str, target: str, log: bool) -> Request:
        """The compilation for one element type and one target."""
        module, name = self.kernel.split(":")
        names = arguments(module, name)
        constants = dict(self.constants(dtype, target))
        if "LOG" in names:
            constants["LOG"] = log
        types = self.types(dtype)
        signature = {
            argument: types.get(argument, f"*{dtype}" if argument.endswith("_ptr") else "i32")
            for argument in names
            if argument not in constants
        }
        return Request(
            f"triton_softmax.kernels.{module}:{name}",
            signature,
            constants,
            target,
            self.num_warps,
            3,
            self.aligned,
            self.max_registers,
        )


def tile(rows: int, cols: int) -> Callable[[str, str], dict]:
    """Constants of a kernel over tiles of rows by columns."""
    return lambda dtype, target: {"BLOCK_ROWS": rows, "BLOCK_COLS": cols}


def vector_tile(rows: int, cols: int) -> Callable[[str, str], dict]:
    """The same with a vector of 128 bits, and 16-bit elements held as such where the target can."""
    return lambda dtype, target: {
        "BLOCK_ROWS": rows,
        "BLOCK_COLS": cols,
        "VECTOR": per_vector(dtype),
        "HOLD": BITS[dtype] == 16 and target.startswith("sm_"),
    }


def chunk(dtype: str, target: str) -> dict:
    """Constants of a kernel that holds a chunk of a row."""
    nvidia = target.startswith("sm_")
    sixteen = BITS[dtype] == 16 and nvidia
    constants = {
        "VECTOR": per_vector(dtype),
        "EDGES": False,
        "PAIRS": sixteen,
        "HOLD": sixteen,
        "AHEAD": nvidia,
        "LAG": False,
    }
    constants |= {"WAIT": nvidia, "NAP": 500 if nvidia else 0, "PUBLISH": nvidia, "WRITE": True}
    return constants | {"BLOCK": 4096, "WORDS": 128, "LOOKS": 1}


def chunk_forward(dtype: str, target: str) -> dict:
    """The same for the forward kernel, which keeps elements or exponentials."""
    return chunk(dtype, target) | {"EXP": False}


def columns(cols: int, inner: int, *tensors: str, **more) -> Callable[[str, str], dict]:
    """Constants of a kernel over columns whose neighbours lie side by side, in lines that are
    multiples of a vector."""

    def constants(dtype: str, target: str) -> dict:
        held = {
            "HOLD": target.startswith("sm_") and BITS[dtype] == 16,
            "WAIT": target.startswith("sm_"),
        }
        blocks = {
            "VECTOR": per_vector(dtype),
            "INDEX": "tl.int32",
            "BLOCK_COLS": cols,
            "BLOCK_INNER": inner,
        }
        strides = {f"{tensor}_inner_stride": 1 for tensor in tensors}
        return strides | blocks | {name: held.get(name, value) for name, value in more.items()}

    return constants


def accumulator(*names: str) -> Callable[[str], dict]:
    """Types of pointers to the statistics of rows."""
    return lambda dtype: dict.fromkeys(names, "*fp64" if dtype == "fp64" else "*fp32")


STRIDES = ("x_row_stride", "y_row_stride", "dy_row_stride", "dx_row_stride", "n_cols")
WAITING = tuple(target for target in ARCHITECTURES if target.startswith("sm_"))
"""Where programs wait for each other; elsewhere the chooser never picks a kernel that only
waits."""
CASES = [
    Case("three_loops:softmax_forward_three_loops_kernel", tile(1, 4096), 8, aligned=STRIDES),
    Case("two_loops:softmax_forward_two_loops_kernel", tile(1, 4096), 8, aligned=STRIDES),
    Case("two_loops:softmax_backward_two_loops_kernel", tile(1, 4096), 8, aligned=STRIDES),
    Case(
        "single_block:softmax_forward_single_block_kernel",
        lambda *_: {"BLOCK_SIZE": 4096},
        8,
        aligned=STRIDES,
    ),
    Case(
        "single_block:softmax_backward_single_block_kernel",
        lambda *_: {"BLOCK_SIZE": 4096},
        8,
        aligned=STRIDES,
    ),
    Case(
        "flash_attention:attention_forward_kernel",
        lambda *_: {"BLOCK_QUERIES": 64, "BLOCK_KEYS": 32},
        bits=0,
        spill_bytes=32,  # some releases of ptxas spill a few words on sm_100 with registers to spare
    ),
    Case("packed_rows:softmax_forward_packed_rows_kernel", vector_tile(4, 1024)),
    Case("packed_rows:softmax_backward_packed_rows_kernel", vector_tile(4, 512)),
    Case("aligned_rows:softmax_forward_aligned_rows_kernel", vector_tile(4, 1024)),
    Case("aligned_rows:softmax_backward_aligned_rows_kernel", vector_tile(4, 512)),
    Case(
        "split_rows:softmax_forward_split_rows_kernel",
        chunk_forward,
        types=lambda _: {"words_ptr": "*i64"},
        dtypes=("fp16", "bf16", "fp32"),
    ),
    Case(
        "split_rows:softmax_backward_split_rows_kernel",
        chunk,
        types=lambda _: {"words_ptr": "*i64"},
        dtypes=("fp16", "bf16", "fp32"),
    ),
    Case("strided:softmax_forward_strided_kernel", columns(64, 64, "x", "y", HOLD=True)),
    Case("strided:softmax_backward_strided_kernel", columns(64, 32, "y", "dy", "dx")),
    Case(
        "split_strided:softmax_forward_split_strided_kernel",
        columns(512, 32, "x", "y", HOLD=True, WAIT=True, VECTOR=1, CHUNKS=8, LOOKS=1),
        8,
        types=lambda _: {"words_ptr": "*i64"},
        aligned=("x_outer_stride", "x_col_stride", "y_outer_stride", "y_col_stride", "n_inner"),
        dtypes=("fp16", "bf16", "fp32"),
        targets=WAITING,
        max_registers=128,
    ),
    Case(
        "split_strided:softmax_backward_split_strided_kernel",
        columns(256, 32, "y", "dy", "dx", HOLD=True, WAIT=True, VECTOR=1, CHUNKS=8, LOOKS=1),
        8,
        types=lambda _: {"words_ptr": "*i64"},
        aligned=tuple(
            f"{tensor}_{dim}_stride" for tensor in ("y", "dy", "dx") for dim in ("outer", "col")
        )
        + ("n_inner",),
        dtypes=("fp16", "bf16", "fp32"),
        targets=WAITING,
        max_registers=128,
    ),
    Case(
        "strided_loops:softmax_forward_strided_loops_kernel",
        columns(64, 32, "x", "y", PUBLISH=True, WRITE=True),
        types=lambda _: {"words_ptr": "*i64"},
    ),
    Case(
        "strided_loops:softmax_backward_strided_loops_kernel",
        columns(64, 32, "y", "dy", "dx", PUBLISH=True, WRITE=True),
        types=lambda _: {"words_ptr": "*i64"},
    ),
    Case(
        "logsumexp:logsumexp_forward_kernel",
        lambda *_: {"FINISH": True, "BLOCK_ROWS": 1, "BLOCK_COLS": 4096},
        8,
        types=accumulator("m_ptr", "d_ptr"),
        bits=0,
    ),
    Case(
        "logsumexp:logsumexp_backward_kernel",
        lambda *_: {"BLOCK_SIZE": 4096},
        8,
        types=accumulator("dlse_ptr", "lse_ptr"),
        bits=0,
    ),
    Case(
        "logsumexp:logsumexp_merge_kernel",
        lambda *_: {"BLOCK_SIZE": 64},
        types=accumulator("m_ptr", "d_ptr"),
        bits=0,
        dtypes=("fp32",),
    ),
]


def functions(module: str) -> dict[str, list[str]]:
    """The functions of a module of kernels that `triton.jit` decorates, each with its arguments,
    without importing it."""
    found = {}
    for node in ast.parse((KERNELS / f"{module}.py").read_text()).body:
        if isinstance(node, ast.FunctionDef) and any(
            "triton.jit" in ast.unparse(d) for d in node.decorator_list
        ):
            found[node.name] = [argument.arg for argument in node.args.args]
    return found


def arguments(module: str, name: str) -> list[str]:
    """The arguments of one kernel."""
    return functions(module)[name]


def variants(case: Case) -> list[tuple[str, str, bool]]:
    """Every element type on one architecture, one of them on the others, and the logarithm once."""
    has_log = "LOG" in arguments(*case.kernel.split(":"))
    found = [(dtype, "sm_90", False) for dtype in case.dtypes]
    other = "bf16" if "bf16" in case.dtypes else case.dtypes[0]
    found += [(other, target, False) for target in case.targets if target != "sm_90"]
    return found + ([("fp32", "sm_90", True)] if has_log else [])


ALL = [(case, *variant) for case in CASES for variant in variants(case)]


@pytest.fixture(scope="module")
def compiled() -> dict[tuple, Compilation | Exception]:
    """All compilations, in two processes; a refusal is kept for the test that it concerns."""
    half = [ALL[0::2], ALL[1::2]]
    requests = [[case.request(*variant) for case, *variant in part] for part in half]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        results = list(pool.map(lambda part: compile_many(part, keep_errors=True), requests))
    return {
        (case.kernel, *variant): result
        for parts, done in zip(half, results)
        for (case, *variant), result in zip(parts, done)
    }


def test_every_kernel_is_listed():
    """A new kernel must be compiled here too."""
    modules = [path.stem for path in KERNELS.glob("*.py") if path.stem != "__init__"]
    present = {
        f"{module}:{name}"
        for module in modules
        for name in functions(module)
        if name.endswith("_kernel")
    }
    assert {case.kernel for case in CASES} == present


@pytest.mark.parametrize(
    "case, dtype, target, log",
    ALL,
    ids=[f"{c.label}{'-log' * log}-{dtype}-{target}" for c, dtype, target, log in ALL],
)
def test_kernel(compiled, case, dtype, target, log):
    """The kernel compiles, moves 128 bits per instruction where it promises to, and spills
    nothing."""
    result = compiled[case.kernel, dtype, target, log]
    if isinstance(result, Exception):
        raise result
    assert result.global_stores
    if case.bits:
        assert result.load_bits == case.bits, result.global_loads
        assert result.store_bits == case.bits, result.global_stores
    assert result.spill_bytes <= case.spill_bytes + ALSO_SPILLED
    if BITS[dtype] == 64:
        assert (
            "ex2.approx.f32" not in result.assembly and "ex2.approx.ftz.f32" not in result.assembly
        )


def test_float64_is_computed_with_the_whole_of_log2e(compiled):
    """log2(e) is 0x3FF71547652B82FE in float64; cut to float32 it would end in zeros."""
    case = next(case for case in CASES if case.label == "softmax_forward_single_block")
    ptx = compiled[case.kernel, "fp64", "sm_90", False].ptx.upper()
    assert "3FF71547652B82FE" in ptx
    assert "3FF7154760000000" not in ptx


# --- the configurations that the chooser picks


@dataclasses.dataclass(frozen=True)
class Shipped:
    """A split-row kernel as it is launched for some shape on an H200."""

    dtype: str
    backward: bool
    log: bool
    edges: bool
    choice: Choice
    constants: tuple[tuple[str, object], ...]

    @property
    def request(self) -> Request:
        name = f"softmax_{'backward' if self.backward else 'forward'}_split_rows_kernel"
        constants = dict(self.constants)
        types = {"words_ptr": "*i64"}
        signature = {
            argument: types.get(argument, f"*{self.dtype}" if argument.endswith("_ptr") else "i32")
            for argument in arguments("split_rows", name)
            if argument not in constants
        }
        kernel = f"triton_softmax.kernels.split_rows:{name}"
        return Request(
            kernel,
            signature,
            constants,
            "sm_90",
            self.choice.num_warps,
            max_registers=self.choice.max_registers,
        )


def shipped() -> list[Shipped]:
    """Each split-row kernel for lengths between the thresholds, few rows and many, with edges and
    without."""
    h200 = Device(132, nvidia=True)
    found = {}
    for dtype, backward, log, edges in itertools.product(
        ("bf16", "fp32"), (False, True), (False, True), (False, True)
    ):
        for n_rows, exponent in itertools.product((1, 8, 64, 10**5), range(15, 24)):
            n_cols = 2**exponent - edges
            vector = per_vector(dtype)
            if backward:
                traits = Traits(inputs=2, exp_in_finish=log)
            else:
                traits = Traits(inputs=1, keeps_terms=not log, exp_in_finish=not log)
            choice = choose_split_rows(
                n_rows, n_cols, BITS[dtype] // 8, vector, edges, traits, h200
            )
            for launch in dispatch._split_launches(
                None, choice, n_rows, n_cols, (n_cols,) * (2 + backward), log, not backward
            ):
                case = Shipped(dtype, backward, log, edges, choice, tuple(launch.constants.items()))
                found.setdefault(
                    (
                        case.dtype,
                        case.backward,
                        choice.num_warps,
                        choice.max_registers,
                        case.constants,
                    ),
                    case,
                )
    return list(found.values())


def test_shipped_configurations_of_split_rows():
    """128-bit accesses, odd rows included, and nothing spilled but at most six registers, most of
    them in the path without partners."""
    cases = shipped()
    assert len(cases) > 100
    with concurrent.futures.ThreadPoolExecutor() as pool:
        halves = list(
            pool.map(
                lambda half: compile_many([case.request for case in half]),
                (cases[0::2], cases[1::2]),
            )
        )
    spilling = 0
    for case, result in [
        pair for half, done in zip((cases[0::2], cases[1::2]), halves) for pair in zip(half, done)
    ]:
        assert result.load_bits == 128, case
        assert result.store_bits == (128 if dict(case.constants)["WRITE"] else 0), case
        assert result.registers <= case.choice.max_registers
        assert result.spill_bytes <= 24 + ALSO_SPILLED, case
        spilling += result.spill_bytes > 0
    assert ALSO_SPILLED or spilling <= len(cases) // 12


# --- what the pages say about the compiler


def single_block(n: int, **changes) -> Request:
    from triton_softmax.kernels.single_block import num_warps_for_block

    case = next(case for case in CASES if case.label == "softmax_forward_single_block")
    case = dataclasses.replace(
        case, constants=lambda *_: {"BLOCK_SIZE": n}, num_warps=num_warps_for_block(n), **changes
    )
    return case.request("fp32", "sm_90", False)


@pytest.fixture(scope="module")
def blocks() -> dict[int, Compilation]:
    sizes = (1024, 16384, 32768, 65536, 131072)
    return dict(zip(sizes, compile_many([single_block(size) for size in sizes])))


def test_a_long_row_spills_and_nothing_iterates(blocks):
    """The source says that past 65,536 columns "Triton breaks the input down and iterates". The
    kernel has no loop: it spills."""
    assert blocks[32768].spill_bytes == 0
    assert 0 < blocks[65536].spill_bytes < blocks[131072].spill_bytes
    for size, result in blocks.items():
        loads = sum(result.global_loads.values())
        assert loads * 4 * 32 * result.num_warps == size, (
            "each element is loaded by its own instruction, once"
        )


def test_unaligned_rows_are_loaded_element_by_element():
    """What the compiler cannot know to be a multiple of 16 bytes costs one instruction per
    element."""
    result = compile_many([single_block(1024, aligned=())])[0]
    assert (result.load_bits, result.store_bits) == (32, 32)


def test_the_cache_modifiers_reach_the_instructions(blocks):
    assert all(".ca." in name for name in blocks[1024].global_loads)
    assert all(".cs." in name for name in blocks[1024].global_stores)


# --- the function itself


def test_what_compile_ahead_refuses():
    kernel = "triton_softmax.kernels.single_block:softmax_forward_single_block_kernel"
    with pytest.raises(ValueError, match="not sm_20"):
        compile_ahead(kernel, {}, {}, "sm_20")
    with pytest.raises(ValueError, match="missing: \\['y_ptr'"):
        compile_ahead(kernel, {"x_ptr": "*fp32"}, {})


def test_access_bits():
    assert access_bits("ld.global.L1::evict_first.v4.b32") == 128
    assert access_bits("st.global.v8.b32") == 256
    assert access_bits("flat_store_dwordx2") == 64
    assert access_bits("buffer_load_ubyte") == 8
