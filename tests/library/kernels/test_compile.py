"""Kernels through the compiler, without a device: what their loads and stores become, and what they
spill. The interpreter accepts what the compiler refuses.

Every kernel of the tutorial is compiled for sm_90 as `RUNGS` lists it, and some for other GPUs;
geometries as the library launches them for `SHAPES`, and rows with maps. All other kernels of the
library, on all GPUs, are in a data file (`softmax_bench.everywhere`).
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import triton

import softmax_tutorial
from softmax_bench.compilation import Compilation, compiled
from triton_softmax.operations import OPERATIONS
from triton_softmax.plan import GEOMETRIES

pytestmark = pytest.mark.slow
TUTORIAL = Path(softmax_tutorial.__file__).parent
CONSTRAINTS = Path(__file__).parents[3] / "constraints.txt"
PINNED = f"triton=={triton.__version__}" in CONSTRAINTS.read_text().split()
ALSO_SPILLED = 0 if PINNED else 96
"""Bytes that releases of the compiler other than the one in the constraints may spill beyond what
is promised of that."""


JITS = ("triton.jit", "gluon.jit")


def functions(path: Path) -> dict[str, list[str]]:
    """The functions of a module that Triton compiles, each with its arguments, without importing
    it."""
    return {
        node.name: [argument.arg for argument in node.args.args]
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
        and any(ast.unparse(each).startswith(JITS) for each in node.decorator_list)
    }


# --- kernels that spell out what they compute

TILE = {"LOG": False, "BLOCK_ROWS": 1, "BLOCK_COLS": 4096}
PACKED = {"BLOCK_ROWS": 4, "BLOCK_COLS": 4096}
BLOCK = {"LOG": False, "BLOCK_SIZE": 4096}
ATTENTION = {"BLOCK_QUERIES": 64, "BLOCK_KEYS": 32}
RUNGS = [
    ("three_loops:softmax_forward_three_loops_kernel", TILE, "bfloat16", "sm_90"),
    ("two_loops:softmax_forward_two_loops_kernel", TILE, "bfloat16", "sm_90"),
    ("two_loops:softmax_backward_two_loops_kernel", TILE, "float32", "sm_90"),
    ("single_block:softmax_forward_single_block_kernel", BLOCK, "bfloat16", "sm_90"),
    (
        "single_block:softmax_forward_single_block_kernel",
        BLOCK | {"LOG": True},
        "float32",
        "sm_100",
    ),
    ("single_block:softmax_forward_single_block_kernel", BLOCK, "float64", "sm_90"),
    ("single_block:softmax_backward_single_block_kernel", BLOCK, "float32", "sm_90"),
    ("single_block:softmax_backward_single_block_kernel", BLOCK, "bfloat16", "gfx942"),
    ("flash_attention:attention_forward_kernel", ATTENTION, "bfloat16", "sm_90"),
    ("flash_attention:attention_forward_kernel", ATTENTION, "float32", "gfx942"),
    ("packed_rows_simple:packed_rows_simple_kernel", PACKED, "bfloat16", "sm_90"),
    ("split_rows_simple:split_rows_simple_kernel", {"BLOCK": 4096}, "bfloat16", "sm_90"),
]


def rung(kernel: str, constants: dict, dtype: str, gpu: str) -> Compilation:
    """A rung, launched as it is in its module; what tunes a kernel wraps it."""
    module, name = kernel.split(":")
    names = functions(TUTORIAL / f"{module}.py")[name]
    given = {
        each: "words" if each == "words_ptr" else "x" if each.endswith("_ptr") else "4096"
        for each in names
    }
    given |= {each: value for each, value in constants.items() if each in names}
    arguments = ", ".join(f"{each}={value}" for each, value in given.items())
    (found,) = compiled(
        f"""
from softmax_tutorial.{module} import {name} as kernel
x, words = torch.empty(8, 4096, dtype=torch.{dtype}), torch.empty(8, dtype=torch.int64)
kernel = getattr(kernel.fn, "fn", None) and kernel.fn or kernel
kernel[(8,)]({arguments}, num_warps={4 if "attention" in name else 8})
""",
        gpu,
    )
    return found


def is_float32_free(assembly: str) -> bool:
    return not any(name in assembly for name in ("ex2.approx.f32", "ex2.approx.ftz.f32"))


@pytest.mark.parametrize("given", RUNGS, ids=lambda given: "-".join((given[0], *given[2:])))
def test_rung(given):
    """128 bits per instruction where rows are contiguous, and nothing spilled."""
    result = rung(*given)
    assert result.global_stores
    if "attention" not in given[0]:
        assert result.load_bits == 128, result.global_loads
        assert result.store_bits == 128, result.global_stores
    assert result.spill_bytes <= ALSO_SPILLED
    if "float64" in given:
        assert is_float32_free(result.assembly)
        # log2(e) is 0x3FF71547652B82FE in float64; cut to float32 it would end in zeros
        assert "3FF71547652B82FE" in result.assembly.upper()
        assert "3FF7154760000000" not in result.assembly.upper()


# --- geometries, as the library launches them

SHAPES: dict[str, tuple[int, ...]] = {
    "packed_rows": (100_000, 4096),
    "aligned_rows": (100_000, 4097),
    "split_rows": (4000, 2**17),
    "split_rows, few and odd": (8, 2**20 - 1),
    "strided": (64, 128, 256),
    "split_strided": (16, 4096, 64),
    "two_pass": (4, 200_000, 64),
}
"""(n_rows, n_cols), or (n_outer, n_cols, n_inner), by the geometry that is chosen for it on an
H200."""
LAUNCHED = [
    *((shape, "softmax", "bfloat16", "sm_90") for shape in SHAPES),
    *((shape, "softmax_backward", "float32", "sm_90") for shape in SHAPES),
    ("packed_rows", "logsumexp", "bfloat16", "sm_90"),
    ("aligned_rows", "softmax", "float64", "sm_90"),
    ("packed_rows", "log_softmax_backward", "float32", "sm_80"),
    ("split_rows", "log_softmax", "bfloat16", "sm_100"),
    ("strided", "logsumexp_backward", "bfloat16", "sm_100"),
    ("aligned_rows", "softmax_backward", "bfloat16", "gfx942"),
    ("split_rows", "softmax", "float32", "gfx942"),
    ("strided", "softmax", "bfloat16", "gfx942"),
]
"""(a key of `SHAPES`, operation, dtype, GPU)."""
SPILLED = {
    # geometry and operation: bytes per thread, where longer chunks were worth it when timed
    ("split_rows", "softmax_backward"): 92,
    ("split_rows, few and odd", "softmax_backward"): 24,
}


def launched(shape: str, operation: str, dtype: str, gpu: str) -> list[Compilation]:
    """What is launched for a contiguous tensor of one of the shapes."""
    call = f"""
x = torch.empty(*{SHAPES[shape]}, dtype=torch.{dtype}, requires_grad=True)
y = {operation.removesuffix("_backward")}(x, 1)
"""
    if "backward" in operation:
        call += "torch.autograd.grad(y, x, y.detach())"
    found = compiled(call, gpu)
    return [each for each in found if ("vjp" in each.constants["OP"]) == ("backward" in operation)]


@pytest.mark.parametrize("case", LAUNCHED, ids="-".join)
def test_geometry(case):
    """Whole vectors, few spills, and no more registers than the launch may have; an operation that
    reduces stores numbers and no vectors."""
    shape, operation, dtype, gpu = case
    least = 128 if gpu.startswith("sm_") else 64  # of rows that start anywhere
    results = launched(*case)
    assert results
    for result in results:
        how = result.constants["HOW"]
        if getattr(how, "publish", True) or not OPERATIONS[operation].reduces:
            assert result.load_bits >= least, result.global_loads
        if not OPERATIONS[operation].reduces and getattr(how, "write", True):
            assert result.store_bits >= least, result.global_stores
        assert result.spill_bytes <= SPILLED.get((shape, operation), 0) + ALSO_SPILLED
        assert result.registers <= (result.max_registers or 512)
        assert dtype != "float64" or is_float32_free(result.assembly)


@pytest.mark.parametrize("shape", ["4096, 128_256", "2048, 50_257", "8192, 16_384", "8, 700, 999"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_three_sums_stay_in_registers(shape, dtype):
    x = f"x = torch.empty({shape}, dtype=torch.{dtype}, requires_grad=True)"
    call = "cross_entropy(x, x.select(1, 0).detach().long(), label_smoothing=0.1)"
    result = compiled(f"{x}\n{call}")[-1]
    assert "smoothed" in result.constants["OP"] and result.spill_bytes <= 8 + ALSO_SPILLED


OUT_OF_STEP = {
    # columns of a slice and dtype: bytes per thread that softmax and its gradient may spill
    (150_001, "bfloat16"): (48, 16),
    (150_001, "float32"): (0, 80),
    (150_002, "bfloat16"): (0, 24),
    (150_002, "float32"): (0, 0),
    (150_004, "bfloat16"): (0, 0),
}
"""Rows of a matrix of 150,016 columns, which start elsewhere than those of a contiguous result.
What spills does so by choice: its registers are those that were fastest when timed."""


@pytest.mark.parametrize("case", OUT_OF_STEP, ids=lambda case: f"{case[0]}-{case[1]}")
def test_addresses_of_narrow_accesses_stay_in_registers(case):
    """A thread has dozens of them, since no whole vector fits both tensors."""
    n_cols, dtype = case
    found = compiled(
        f"""
x = torch.empty(300, 150_016, dtype=torch.{dtype}, requires_grad=True)[:, :{n_cols}]
torch.autograd.grad(softmax(x, 1), x, x.detach())
"""
    )
    assert [result.kernel for result in found] == ["split_rows_kernel"] * 2
    for result, allowed in zip(found, OUT_OF_STEP[case], strict=True):
        assert result.constants["HOW"].vector < (8 if dtype == "bfloat16" else 4)
        assert result.spill_bytes <= allowed + ALSO_SPILLED


def test_every_kernel_is_listed():
    """A new kernel of the tutorial must be compiled here too, and so must a geometry."""
    present = {
        f"{path.stem}:{name}"
        for path in TUTORIAL.glob("*.py")
        for name in functions(path)
        if name.endswith("_kernel")
    }
    assert {given[0] for given in RUNGS} == present
    found = {result.kernel for case in LAUNCHED for result in launched(*case)}
    tiles = {"packed_rows", "aligned_rows"}
    own = {f"{name}_kernel" for name in {*GEOMETRIES} - tiles}
    assert found == {"tile_kernel", "merge_chunks_kernel", *own}
    edges = [launched(each, *LAUNCHED[0][1:])[0].constants["HOW"].edges for each in sorted(tiles)]
    assert edges == [True, False]


# --- attention

ATTENTION_CALLS = {
    # what is called: statements, and bytes per thread that its kernels may spill
    "vectors": ("vectors.attention_vectors(q, k, v, True, 0.1)", 0),
    "diagonal": ("diagonal.attention_diagonal(q, k, v, True, 0.1)", 0),
    "descriptors": ("descriptors.attention_descriptors(q, k, v, True, 0.1)", 0),
    # Between tasks, not in a loop.
    "warp_groups": ("warp_groups.attention_warp_groups(q, k, v, True, 0.1)", 16),
    "split_keys": ("split_keys.attention_split(q[:, :, :1], k, v, True, 0.1, 1024)", 0),
    "backward": ("backward.attention_backward((q, k, v, q, lse), q, lse, True, 0.1)", 100),
    "warp_groups_backward": (
        "warp_groups_backward.attention_warp_groups_backward((q, k, v, q, lse), q, lse, True, 0.1)",
        1800,  # where tiles of queries meet the diagonal, which is a small part of them
    ),
}


def of_attention(name: str, gpu: str, dims: int = 128, dtype: str = "bfloat16"):
    """The kernels of a rung of attention, for four batches of 16 heads of 4,096 queries."""
    call, _ = ATTENTION_CALLS[name]
    return compiled(
        f"""
from softmax_tutorial.attention import {name}
q = torch.empty(4, 16, 4096, {dims}, dtype=torch.{dtype})
k, v, lse = q[:, :4], q[:, :4], torch.empty(q.shape[:3])
{call}
""",
        gpu,
    )


@pytest.mark.parametrize("name", ATTENTION_CALLS)
def test_attention(name):
    """Nothing is spilled where most of the time goes, and every kernel is compiled."""
    kernels = functions(TUTORIAL / "attention" / f"{name}.py")
    found = of_attention(name, "sm_90")
    assert {each for each in kernels if each.endswith("_kernel")} <= {each.kernel for each in found}
    for result in found:
        assert result.spill_bytes <= ATTENTION_CALLS[name][1] + ALSO_SPILLED
    if name in ("descriptors", "warp_groups"):
        assert (
            "wgmma.mma_async" in found[0].assembly and "cp.async.bulk.tensor" in found[0].assembly
        )
    if name.startswith("warp_groups"):
        assert of_attention(name, "sm_90", 64, "float16")


@pytest.mark.parametrize("gpu", ["sm_80", "sm_100", "gfx942"])
@pytest.mark.parametrize("name", ["descriptors", "split_keys", "backward"])
def test_attention_on_other_gpus(name, gpu):
    assert of_attention(name, gpu, 64)


def test_every_kernel_of_attention_is_called():
    files = {path.stem for path in (TUTORIAL / "attention").glob("*.py") if functions(path)}
    assert files == set(ATTENTION_CALLS)


# --- rows with maps

SCORES = """
x = torch.empty(2, 4, {n_cols}, {n_cols}, dtype=torch.bfloat16, requires_grad={gradient})
"""
LOSS = """
x = {x}.requires_grad_()
t = torch.zeros(len(x), dtype=torch.int64)
cross_entropy(x, t, scale=0.5, softcap=30.0)
"""
EVERYTHING = """
mask = torch.ones(1, 1, 4096, 4096, dtype=torch.bool)
scale, sink = torch.ones(2, 4, 4096, 1, requires_grad=True), torch.ones(4, requires_grad=True)
y = softmax(x, scale=scale, softcap=30.0, where=mask, {more}safe=True, sink=sink)
"""


def of_scores(call: str, n_cols: int, gradient: bool = False) -> list[Compilation]:
    """The kernels of masked rows that a call launches."""
    found = compiled(SCORES.format(n_cols=n_cols, gradient=gradient) + call)
    return [each for each in found if each.kernel == "modified_rows_kernel"]


def test_whole_vectors_and_no_spills():
    gradient = "torch.autograd.grad(y, (x, scale, sink), y.detach())"
    (causal,) = of_scores("softmax(x, scale=0.5, causal=True)", 1024)
    (everything,) = of_scores(EVERYTHING.format(more="causal=True, "), 4096)
    _, back = of_scores(EVERYTHING.format(more="") + gradient, 4096, gradient=True)
    for result in (causal, everything, back):
        assert result.load_bits == result.store_bits == 128
        assert result.spill_bytes == 0 and result.registers <= 128
    _, walked = compiled(LOSS.format(x="torch.empty(2000, 128_256, dtype=torch.bfloat16)"))
    assert walked.constants["OP"] == "cross_entropy_gradient"
    assert "cp.async.cg" in walked.assembly  # moves 16 bytes, while the tile before is computed
    # 64 registers in Triton 3.7, 72 in 3.6 and 75 in 3.9.
    assert walked.store_bits == 128 and walked.spill_bytes == 0 and walked.registers <= 75


def test_a_mask_is_read_in_the_vectors_of_x_and_remembered_by_nobody():
    """Places that are remembered take registers; threads that hold other elements than they write
    exchange them, by way of shared memory where there are several warps."""
    mask = "softmax(x, scale=0.5, where=torch.ones(1, 1, *x.shape[2:], dtype=torch.bool){more})"
    expanded = "[..., :1].expand(1, 1, *x.shape[2:])"
    (masked,) = of_scores(mask.format(more=""), 1024)
    (by_element,) = of_scores(mask.format(more=expanded), 1024)
    (causal,) = of_scores("softmax(x, scale=0.5, causal=True)", 1024)
    (three,) = of_scores(mask.format(more=""), 3000)
    for result in (masked, causal, three):
        assert result.registers <= 72 and result.shared_bytes <= 64
    # Four each, and again for a row without a sum.
    assert masked.global_loads == {"ld.global.v2.b32": 8, "ld.global.v4.b32": 8}
    assert by_element.global_loads == {"ld.global.b8": 64, "ld.global.v4.b32": 8}
    assert three.num_warps == 4


@pytest.mark.parametrize("shape", ["(1024, 2**21 + 8).T", "(128_256, 2**15).T", "(1, 2**31 + 8)"])
@pytest.mark.parametrize("gpu", ["sm_90", "gfx942"])
def test_wide_indices_compile(shape, gpu):
    """With rows of which a program has several, and with chunks of rows whose columns 31 bits do
    not count: in one launch or two."""
    x = "torch.empty" + shape.replace(")", ", dtype=torch.bfloat16)", 1)
    found = [each for each in compiled(LOSS.format(x=x), gpu) if "MODIFIERS" in each.constants]
    assert len(found) == (2 if "31" in shape else 1)
    for result in found:
        assert result.constants["HOW"].wide_index and result.spill_bytes == 0


def test_how_rows_are_cut_compiles_nothing():
    """Whether 16 divides the number of chunks or their columns. An element of a tuple would tell
    Triton, whatever `do_not_specialize` says."""
    lengths = 16_794, 17_057, 61_666, 62_978
    found = compiled(f"for n in {lengths}: softmax(torch.empty(256, n), 1)")
    assert [each.kernel for each in found] == ["split_rows_kernel"]


# --- the function itself


def test_what_is_not_compiled():
    with pytest.raises(ValueError, match="not sm_20"):
        compiled("", "sm_20")
    with pytest.raises(RuntimeError, match="nobody"):
        compiled("softmax(torch.empty(8, 8), 1, nobody=1)")
    assert compiled("torch.empty(8)") == []
