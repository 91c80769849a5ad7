"""Kernels through the compiler, without a device: what their loads and stores become, and what they
spill. The interpreter accepts what the compiler refuses.

Every kernel is compiled for sm_90, and some for other architectures: those that are spelled out as
`RUNGS` lists them, geometries as the library launches them for `SHAPES`.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import triton

import softmax_tutorial
import triton_softmax
from softmax_bench.compilation import (
    H200,
    Request,
    access_bits,
    choose,
    compiled,
    launch_requests,
)
from softmax_tutorial.single_block import num_warps_for_block
from triton_softmax.config import Choice, Device
from triton_softmax.operations import OPERATIONS
from triton_softmax.plan import GEOMETRIES

pytestmark = pytest.mark.slow
KERNELS = Path(triton_softmax.__file__).parent / "kernels"
TUTORIAL = Path(softmax_tutorial.__file__).parent
CONSTRAINTS = Path(__file__).parents[3] / "constraints.txt"
PINNED = f"triton=={triton.__version__}" in CONSTRAINTS.read_text().split()
ALSO_SPILLED = 0 if PINNED else 96
"""Bytes that releases of the compiler other than the one in the constraints may spill beyond what
is promised of that."""


def functions(path: Path) -> dict[str, list[str]]:
    """The functions of a module that `triton.jit` decorates, each with its arguments, without
    importing it."""
    return {
        node.name: [argument.arg for argument in node.args.args]
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
        and any("triton.jit" in ast.unparse(each) for each in node.decorator_list)
    }


# --- kernels that spell out what they compute

TILE = {"LOG": False, "BLOCK_ROWS": 1, "BLOCK_COLS": 4096}
BLOCK = {"LOG": False, "BLOCK_SIZE": 4096}
STRIDES = ("x_row_stride", "y_row_stride", "dy_row_stride", "dx_row_stride", "n_cols")
ATTENTION = {"BLOCK_QUERIES": 64, "BLOCK_KEYS": 32}
RUNGS = [
    ("three_loops:softmax_forward_three_loops_kernel", TILE, "bf16", "sm_90"),
    ("two_loops:softmax_forward_two_loops_kernel", TILE, "bf16", "sm_90"),
    ("two_loops:softmax_backward_two_loops_kernel", TILE, "fp32", "sm_90"),
    ("single_block:softmax_forward_single_block_kernel", BLOCK, "bf16", "sm_90"),
    ("single_block:softmax_forward_single_block_kernel", BLOCK | {"LOG": True}, "fp32", "sm_100"),
    ("single_block:softmax_forward_single_block_kernel", BLOCK, "fp64", "sm_90"),
    ("single_block:softmax_backward_single_block_kernel", BLOCK, "fp32", "sm_90"),
    ("single_block:softmax_backward_single_block_kernel", BLOCK, "bf16", "gfx942"),
    ("flash_attention:attention_forward_kernel", ATTENTION, "bf16", "sm_90"),
    ("flash_attention:attention_forward_kernel", ATTENTION, "fp32", "gfx942"),
    ("split_rows_simple:split_rows_simple_kernel", {"BLOCK": 4096}, "bf16", "sm_90"),
]


def rung_request(kernel: str, constants: dict, dtype: str, target: str, **options) -> Request:
    """The compilation of a rung."""
    module, name = kernel.split(":")
    names = functions(TUTORIAL / f"{module}.py")[name]
    constants = {name: value for name, value in constants.items() if name in names}
    signature = {
        argument: f"*{dtype}" if argument.endswith("_ptr") else "i32"
        for argument in names
        if argument not in constants
    }
    if "words_ptr" in signature:
        signature["words_ptr"] = "*i64"
    options = {"num_warps": 4 if "attention" in name else 8, "aligned": STRIDES} | options
    return Request(f"softmax_tutorial.{kernel}", signature, constants, target, **options)


def is_float32_free(assembly: str) -> bool:
    return not any(name in assembly for name in ("ex2.approx.f32", "ex2.approx.ftz.f32"))


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: "-".join((rung[0], *rung[2:])))
def test_rung(rung):
    """128 bits per instruction where rows are contiguous, and nothing spilled."""
    result = compiled(rung_request(*rung))
    assert result.global_stores
    if "attention" not in rung[0]:
        assert result.load_bits == 128, result.global_loads
        assert result.store_bits == 128, result.global_stores
    assert result.spill_bytes <= ALSO_SPILLED
    if "fp64" in rung:
        assert is_float32_free(result.assembly)
        # log2(e) is 0x3FF71547652B82FE in float64; cut to float32 it would end in zeros
        assert "3FF71547652B82FE" in result.ptx.upper()
        assert "3FF7154760000000" not in result.ptx.upper()


# --- geometries, as the library launches them

SHAPES: dict[str, tuple[int, ...]] = {
    "packed_rows": (100_000, 4096),
    "aligned_rows": (100_000, 4097),
    "split_rows": (100_000, 2**17),
    "split_rows, few and odd": (8, 2**20 - 1),
    "strided": (64, 128, 256),
    "split_strided": (16, 4096, 64),
    "two_pass": (4, 200_000, 64),
}
"""(n_rows, n_cols), or (n_outer, n_cols, n_inner), by the geometry that is chosen for it on an
H200."""
GPUS = {
    "sm_80": Device(108, True),
    "sm_90": H200,
    "sm_100": Device(148, True),
    "gfx942": Device(304, False),
}
"""An A100, an H200, a B200; an MI300X."""
LAUNCHED = [
    *((shape, "softmax", "bf16", "sm_90") for shape in SHAPES),
    *((shape, "softmax_backward", "fp32", "sm_90") for shape in SHAPES),
    ("packed_rows", "logsumexp", "bf16", "sm_90"),
    ("aligned_rows", "softmax", "fp64", "sm_90"),
    ("packed_rows", "log_softmax_backward", "fp32", "sm_80"),
    ("split_rows", "log_softmax", "bf16", "sm_100"),
    ("strided", "logsumexp_backward", "bf16", "sm_100"),
    ("aligned_rows", "softmax_backward", "bf16", "gfx942"),
    ("split_rows", "softmax", "fp32", "gfx942"),
    ("strided", "softmax", "bf16", "gfx942"),
]
"""(a key of `SHAPES`, operation, dtype, architecture)."""
SPILLED = {
    # geometry and operation: bytes per thread, where longer chunks were worth it when timed
    ("split_rows", "softmax_backward"): 92,
    ("split_rows, few and odd", "softmax_backward"): 24,
}


def launched(shape: str, operation: str, dtype: str, target: str) -> Choice:
    """What is launched for contiguous tensors of one of the shapes."""
    return choose(operation, dtype, SHAPES[shape], GPUS[target])


@pytest.mark.parametrize("case", LAUNCHED, ids="-".join)
def test_geometry(case):
    """Whole vectors, few spills, and no more registers than the launch may have; an operation that
    reduces stores numbers and no vectors."""
    shape, operation, dtype, target = case
    found = launched(*case)
    least = 128 if target.startswith("sm_") else 64  # of rows that start anywhere
    for request in launch_requests(found, operation, dtype, target):
        how = request.constants["HOW"]
        result = compiled(request)
        if getattr(how, "publish", True) or not OPERATIONS[operation].reduces:
            assert result.load_bits >= least, result.global_loads
        if not OPERATIONS[operation].reduces and getattr(how, "write", True):
            assert result.store_bits >= least, result.global_stores
        assert result.spill_bytes <= SPILLED.get((shape, operation), 0) + ALSO_SPILLED
        assert result.registers <= (found.max_registers or 512)
        assert dtype != "fp64" or is_float32_free(result.assembly)


def test_every_kernel_is_listed():
    """A new kernel must be compiled here too."""
    paths = [*KERNELS.glob("*.py"), *TUTORIAL.glob("*.py")]
    present = {
        f"{path.stem}:{name}"
        for path in paths
        for name in functions(path)
        if name.endswith("_kernel")
    }
    # The GPU tests of the losses and of scores that are modified run the others.
    elsewhere = {"masked_rows:masked_rows_kernel"}
    for name in ("count_targets", "targets", "scale_rows", "finish_rows"):
        elsewhere.add(f"row_scalars:{name}_kernel")
    launches = [launch_requests(launched(*case), *case[1:])[0] for case in LAUNCHED]
    listed = {each.kernel.rpartition(".")[2] for each in launches}
    listed |= {rung[0] for rung in RUNGS}
    assert listed == present - elsewhere
    assert {launched(*case).kernel for case in LAUNCHED} == set(GEOMETRIES)


# --- what the pages say about the compiler


def single_block(n: int, aligned: tuple[str, ...] = STRIDES) -> Request:
    return rung_request(
        "single_block:softmax_forward_single_block_kernel",
        {"LOG": False, "BLOCK_SIZE": n},
        "fp32",
        "sm_90",
        num_warps=num_warps_for_block(n),
        aligned=aligned,
    )


def test_unaligned_rows_are_loaded_element_by_element():
    """What the compiler cannot know to be a multiple of 16 bytes costs one instruction per
    element."""
    result = compiled(single_block(1024, aligned=()))
    assert (result.load_bits, result.store_bits) == (32, 32)


def test_the_cache_modifiers_reach_the_instructions():
    result = compiled(single_block(1024))
    assert all(".ca." in name for name in result.global_loads)
    assert all(".cs." in name for name in result.global_stores)


# --- the function itself


def test_what_is_not_compiled():
    kernel = "softmax_tutorial.single_block:softmax_forward_single_block_kernel"
    with pytest.raises(ValueError, match="not sm_20"):
        compiled(Request(kernel, {}, {}, "sm_20"))
    with pytest.raises(ValueError, match="missing: \\['y_ptr'"):
        compiled(Request(kernel, {"x_ptr": "*fp32"}, {}))


@pytest.mark.parametrize(
    ("instruction", "bits"),
    [
        ("ld.global.L1::evict_first.v4.b32", 128),
        ("st.global.v8.b32", 256),
        ("flat_store_dwordx2", 64),
        ("buffer_load_ubyte", 8),
    ],
)
def test_access_bits(instruction, bits):
    assert access_bits(instruction) == bits
