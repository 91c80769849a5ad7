"""Every kernel through the compiler, for four architectures and without a device: what its loads
and stores become, and what it spills.

`RUNGS` and `GEOMETRIES` list every kernel of `triton_softmax.kernels`; a kernel that is not listed
fails a test.
"""

from __future__ import annotations

import ast
import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import triton

import known
import triton_softmax
from softmax_bench import registers
from softmax_bench.compilation import (
    ARCHITECTURES,
    Compilation,
    Request,
    access_bits,
    compile_ahead,
    geometry_request,
)
from softmax_site.computed import compiled as computed
from softmax_site.computed import spills
from triton_softmax.choose import Choice, Device
from triton_softmax.choose.constants import (
    RowTile,
    SplitRows,
    SplitStrided,
    StridedLoops,
    StridedTile,
)
from triton_softmax.choose.split_rows import choose_split_rows
from triton_softmax.kernels.single_block import num_warps_for_block
from triton_softmax.plan import OPERATIONS

KERNELS = Path(triton_softmax.__file__).parent / "kernels"
CONSTRAINTS = Path(__file__).parents[3] / "constraints.txt"
PINNED = f"triton=={triton.__version__}" in CONSTRAINTS.read_text().split()
ALSO_SPILLED = 0 if PINNED else 96
"""Bytes that releases of the compiler other than the one in the constraints may spill beyond what
is promised of that."""
WORD = 64
"""Bits of what the first of two launches stores."""
BITS = {"fp16": 16, "bf16": 16, "fp32": 32, "fp64": 64}


def per_vector(dtype: str) -> int:
    """Elements in 128 bits."""
    return 128 // BITS[dtype]


# --- kernels that spell out what they compute


@dataclasses.dataclass(frozen=True)
class Case:
    """How one such kernel is compiled, and what is promised of it."""

    kernel: str
    """`module:function` below `triton_softmax.kernels`."""
    constants: dict[str, int]
    """Constants but LOG."""
    num_warps: int = 4
    aligned: tuple[str, ...] = ()
    """Integers that are multiples of 16 in this case."""
    bits: int = 128
    """Promised width of the widest load and the widest store; 0 promises nothing."""
    spill_bytes: int = 0
    """How much may spill."""
    float64: bool = True
    """Whether the kernel takes float64."""
    pointers: dict[str, str] = dataclasses.field(default_factory=dict)
    """Types of pointers that do not point to elements."""

    def request(self, dtype: str, target: str, log: bool) -> Request:
        """The compilation for one element type and one target."""
        module, name = self.kernel.split(":")
        names = functions(module)[name]
        constants = self.constants | ({"LOG": log} if "LOG" in names else {})
        signature = {
            argument: f"*{dtype}" if argument.endswith("_ptr") else "i32"
            for argument in names
            if argument not in constants
        } | self.pointers
        kernel = f"triton_softmax.kernels.{module}:{name}"
        return Request(kernel, signature, constants, target, self.num_warps, aligned=self.aligned)


STRIDES = ("x_row_stride", "y_row_stride", "dy_row_stride", "dx_row_stride", "n_cols")
TILE = {"BLOCK_ROWS": 1, "BLOCK_COLS": 4096}
BLOCK = {"BLOCK_SIZE": 4096}
RUNGS = [
    Case("three_loops:softmax_forward_three_loops_kernel", TILE, 8, aligned=STRIDES),
    Case("two_loops:softmax_forward_two_loops_kernel", TILE, 8, aligned=STRIDES),
    Case("two_loops:softmax_backward_two_loops_kernel", TILE, 8, aligned=STRIDES),
    Case("single_block:softmax_forward_single_block_kernel", BLOCK, 8, aligned=STRIDES),
    Case("single_block:softmax_backward_single_block_kernel", BLOCK, 8, aligned=STRIDES),
    Case(
        "flash_attention:attention_forward_kernel",
        {"BLOCK_QUERIES": 64, "BLOCK_KEYS": 32},
        bits=0,
        spill_bytes=32,  # some releases of ptxas spill a few words on sm_100
    ),
    Case(
        "split_rows_simple:split_rows_simple_kernel",
        {"BLOCK": 4096},
        8,
        pointers={"words_ptr": "*i64"},
        aligned=("n_cols",),
        float64=False,
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


def rung_variants(case: Case) -> dict[str, tuple[str, str, bool]]:
    """Every size of element on one architecture, one of them on the other backend, and the
    logarithm once. The last rung, and the one that multiplies matrices, on every architecture."""
    module, name = case.kernel.split(":")
    everywhere = name in ("softmax_forward_single_block_kernel", "attention_forward_kernel")
    found = [(dtype, "sm_90", False) for dtype in BITS if case.float64 or dtype != "fp64"]
    found = [each for each in found if each[0] != "fp16" or everywhere]
    found += [
        ("bf16", target, False)
        for target in (ARCHITECTURES if everywhere else ("gfx942",))
        if target != "sm_90"
    ]
    if "LOG" in functions(module)[name]:
        found.append(("fp32", "sm_90", True))
    label = name.removesuffix("_kernel")
    return {
        f"{label}{'-log' * log}-{dtype}-{target}": (dtype, target, log)
        for dtype, target, log in found
    }


# --- geometries, which take every operation


def row_tile(rows: int, cols: int) -> Callable[[str, bool], RowTile]:
    """Whole rows, with 16-bit elements behind a barrier where the target has one; half as many of
    float64, which takes two registers an element."""
    return lambda dtype, nvidia: RowTile(
        rows // 2 if dtype == "fp64" else rows,
        cols,
        per_vector(dtype),
        barrier=nvidia and BITS[dtype] == 16,
    )


def split_rows(dtype: str, nvidia: bool) -> SplitRows:
    """Chunks of rows: a pipeline and waiting where the target can wait."""
    sixteen = nvidia and BITS[dtype] == 16
    return SplitRows(
        block=4096,
        vector=per_vector(dtype),
        edges=False,
        pairs=sixteen,
        barrier=sixteen,
        keep_terms=False,
        depth=int(nvidia),
        wait=nvidia,
        backoff=500 if nvidia else 0,
        publish=True,
        write=nvidia,
        words=128,
        polls=1,
    )


@dataclasses.dataclass(frozen=True)
class Geometry:
    """How the kernel of a geometry is compiled."""

    how: Callable[[str, bool], object]
    """Its constants, from the element type and whether the target is NVIDIA's."""
    num_warps: int = 4
    dtypes: tuple[str, ...] = tuple(BITS)
    targets: tuple[str, ...] = tuple(ARCHITECTURES)
    max_registers: int | None = None
    aligned: bool = False


WAITING = tuple(target for target in ARCHITECTURES if target.startswith("sm_"))
"""Where programs wait for each other; elsewhere the chooser never picks a kernel that only
waits."""
IN_WORDS = ("fp16", "bf16", "fp32")
"""What fits a word."""
GEOMETRIES = {
    "packed_rows": Geometry(row_tile(4, 512)),
    "aligned_rows": Geometry(row_tile(4, 512)),
    "split_rows": Geometry(split_rows, dtypes=IN_WORDS),
    "strided": Geometry(
        lambda dtype, nvidia: StridedTile(
            64, 32, per_vector(dtype), barrier=nvidia and BITS[dtype] == 16, wide_index=False
        )
    ),
    "split_strided": Geometry(
        lambda dtype, nvidia: SplitStrided(
            256,
            32,
            1,
            barrier=BITS[dtype] == 16,
            wide_index=False,
            wait=True,
            chunks=8,
            polls=1,
        ),
        num_warps=8,
        dtypes=IN_WORDS,
        targets=WAITING,
        max_registers=128,
        aligned=True,
    ),
    "strided_loops": Geometry(
        lambda dtype, nvidia: StridedLoops(
            64, 32, per_vector(dtype), wide_index=False, publish=True, write=True
        )
    ),
}


def geometry_variants(name: str) -> dict[str, tuple[str, str, str]]:
    """Softmax both ways in every size of element on one architecture, and in float16 one way; of
    the others, one way on each of NVIDIA's, and both and log-sum-exp on the other backend. What
    other operations become is in the table of registers."""
    geometry = GEOMETRIES[name]
    both = ("softmax", "softmax_backward")
    found = [
        (operation, dtype, "sm_90")
        for operation in both
        for dtype in geometry.dtypes
        if dtype != "fp16" or operation == "softmax"
    ]
    found += [
        (operation, "bf16", target)
        for operation, target in [
            ("logsumexp", "sm_90"),
            ("softmax", "sm_80"),
            ("softmax_backward", "sm_100"),
            *((operation, "gfx942") for operation in (*both, "logsumexp")),
        ]
        if target in geometry.targets
    ]
    return {"-".join((name, *each)): each for each in found}


def geometry_case(name: str, operation: str, dtype: str, target: str) -> Request:
    """The compilation of one of these variants."""
    geometry = GEOMETRIES[name]
    return geometry_request(
        name,
        operation,
        dtype,
        geometry.how(dtype, target.startswith("sm_")),
        target,
        num_warps=geometry.num_warps,
        aligned=geometry.aligned,
        max_registers=geometry.max_registers,
    )


# --- the configurations that the chooser picks


@dataclasses.dataclass(frozen=True)
class Shipped:
    """Split rows as they are launched for some shape on an H200."""

    operation: str
    dtype: str
    choice: Choice
    how: SplitRows

    @property
    def request(self) -> Request:
        return geometry_request(
            "split_rows",
            self.operation,
            self.dtype,
            self.how,
            num_warps=self.choice.num_warps,
            max_registers=self.choice.max_registers,
        )


def shipped() -> list[Shipped]:
    """Split rows for lengths between the thresholds: with edges, few rows and many; many of whole
    vectors and, where a single launch can, of single elements. Softmax both ways in two element
    types; the other operations, whose device functions the table of registers compiles in both, in
    one. Of configurations that differ in the number of words alone, the one that polls most."""
    found: dict[tuple, Shipped] = {}
    classes = [(operation, "bf16") for operation in OPERATIONS]
    classes += [("softmax", "fp32"), ("softmax_backward", "fp32")]
    with_edges = [(n_rows, 2**k - 1) for n_rows in (1, 8, 64, 10**5) for k in range(15, 24)]
    without = [(10**5, 2**k * parts) for k in range(15, 21) for parts in (2, 3)]
    for operation, dtype in classes:
        traits, itemsize, whole = (
            registers.traits_of(operation),
            BITS[dtype] // 8,
            per_vector(dtype),
        )
        lines = [(*shape, whole, True) for shape in with_edges]
        lines += [(*shape, vector, False) for shape in without for vector in (whole, 1)]
        for n_rows, n_cols, vector, edges in lines:
            choice = choose_split_rows(
                n_rows, n_cols, itemsize, vector, edges, traits, registers.H200
            )
            for how in choice.launches if vector > 1 or not choice.two_launches else ():
                options = (choice.num_warps, choice.max_registers)
                key = (operation, dtype, *options, how._replace(words=0, polls=0))
                if key not in found or found[key].how.words < how.words:
                    found[key] = Shipped(operation, dtype, choice, how)
    return list(found.values())


SPILLED = {
    # (tensors read, columns of a chunk, warps, depth): bytes per thread, where longer chunks or
    # more programs were worth it when they were timed
    (1, 4096, 8, 0): 28,
    (2, 16384, 16, 1): 156,
    (2, 16384, 8, 1): 92,
    (2, 8192, 4, 0): 64,  # in the path without partners
    (2, 4096, 4, 2): 88,
}


# --- what a model chooses for GPUs that nobody has tuned on


UNTUNED = {"sm_80": Device(108, True), "sm_90": Device(114, True), "sm_100": Device(148, True)}
"""An A100, an H100 in a slot, a B200."""
MODELLED_SHAPES = (
    (10**5, 100),
    (10**5, 1000),
    (10**4, 12_001),
    (10**3, 100_001),
    (8, 2**20),
    (64, 100, 256),
    (16, 4096, 64),
)
"""As in `registers.SHAPES`."""


def modelled() -> list[tuple[Choice, Request]]:
    """Choices for every shape, in two element types and for three operations, on each GPU in
    turn."""
    found = []
    targets = itertools.cycle(UNTUNED)
    operations = ("softmax", "log_softmax_backward", "logsumexp")
    for operation, dtype, shape in itertools.product(operations, ("fp32", "bf16"), MODELLED_SHAPES):
        target = next(targets)
        choice = registers.choose(operation, dtype, shape, UNTUNED[target])
        request = geometry_request(
            choice.kernel,
            operation,
            dtype,
            choice.launches[-1],
            target,
            num_warps=choice.num_warps,
            aligned="strided" in choice.kernel,
            max_registers=choice.max_registers,
        )
        found.append((choice, request))
    return found


# --- all of them, compiled once

SIZES = (1024, 16384, 32768, 65536, 131072)


def single_block(n: int, **changes) -> Request:
    case = next(case for case in RUNGS if "forward_single_block" in case.kernel)
    case = dataclasses.replace(
        case, constants={"BLOCK_SIZE": n}, num_warps=num_warps_for_block(n), **changes
    )
    return case.request("fp32", "sm_90", False)


RUNG_IDS = {
    label: (case, variant) for case in RUNGS for label, variant in rung_variants(case).items()
}
GEOMETRY_IDS = {
    label: (name, *variant)
    for name in GEOMETRIES
    for label, variant in geometry_variants(name).items()
}
TABLE = [(case, request) for case in registers.cases() for request in case.requests]
SHIPPED = shipped()
MODELLED = modelled()


@pytest.fixture(scope="module")
def requests() -> dict[str, Request]:
    """Each different one once, by its key."""
    found = [case.request(*variant) for case, variant in RUNG_IDS.values()]
    found += [geometry_case(*each) for each in GEOMETRY_IDS.values()]
    found += [request for _, request in TABLE] if PINNED else []
    found += [case.request for case in SHIPPED]
    found += [request for _, request in MODELLED]
    found += [*map(single_block, SIZES), single_block(1024, aligned=())]
    found += [*spills.requests(), *map(computed.request, (True, False))]
    return {known.key(request): request for request in found}


@pytest.fixture(scope="module")
def compilations(requests):
    """Answers by the key of their request, and which of them are not what is committed."""
    return known.answers(requests)


@pytest.fixture(scope="module")
def compiled(compilations) -> Callable[[Request], Compilation]:
    """The result for a request; a refusal is kept for the test that it concerns."""

    def result_of(request: Request) -> Compilation:
        result = compilations[0][known.key(request)]
        if isinstance(result, Exception):
            raise result
        return result

    return result_of


def test_the_compiler_answers_what_it_is_known_to(compilations):
    """A tenth of what is committed, each day another, or everything with `RECOMPILE=1`."""
    _, wrong = compilations
    assert not wrong, "\n".join(wrong)


def test_what_is_committed_is_looked_at_again(requests):
    """Within ten days all of it, and each day some."""
    days = [{key for key in requests if known.is_due(key, day)} for day in range(known.DAYS)]
    assert set.union(*days) == set(requests)
    assert min(map(len, days)) > len(requests) / 30


def test_a_changed_kernel_is_compiled(requests, monkeypatch):
    """Its key changes with its code, with the code of an operation or of a device function, with
    the version of Triton and with how it is compiled, but not with a comment."""
    request = geometry_case("packed_rows", "softmax", "bf16", "sm_90")
    before, read = known.key(request), known.sources.read

    def changed(name, old, new):
        def read_changed(path, package):
            code, imported = read(path, package)
            if path.name != name:
                return code, imported
            assert old in path.read_text("utf8"), old
            return known.sources.code(path.read_text("utf8").replace(old, new)), imported

        known.code_of.cache_clear()
        monkeypatch.setattr(known.sources, "read", read_changed)
        return known.key(request)

    assert changed("packed_rows.py", "tl.load", "tl.load ") != before
    assert changed("softmax.py", "return", "return  ") != before
    assert changed("monoid.py", "return", "return  ") != before
    assert changed("packed_rows.py", "# --8<--", "# another comment --8<--") == before
    monkeypatch.setattr(known.sources, "read", read)
    known.code_of.cache_clear()
    assert known.key(request) == before
    monkeypatch.setattr(known, "HOW", "")
    assert known.key(request) != before
    monkeypatch.undo()
    monkeypatch.setattr(known.triton, "__version__", "0")
    assert known.key(request) != before


def test_every_kernel_is_listed():
    """A new kernel must be compiled here too."""
    modules = [path.stem for path in KERNELS.glob("*.py") if path.stem != "__init__"]
    present = {
        f"{module}:{name}"
        for module in modules
        for name in functions(module)
        if name.endswith("_kernel")
    }
    listed = {case.kernel for case in RUNGS} | {f"{name}:{name}_kernel" for name in GEOMETRIES}
    # The GPU tests of the losses run three, and two have a file of their own.
    elsewhere = ("scale_rows", "targets", "mapped_rows", "finish_rows")
    elsewhere = {*(f"{name}:{name}_kernel" for name in elsewhere), "targets:count_targets_kernel"}
    assert listed == present - elsewhere


def has_no_float32_exponential(result: Compilation) -> bool:
    return not any(name in result.assembly for name in ("ex2.approx.f32", "ex2.approx.ftz.f32"))


@pytest.mark.parametrize("label", RUNG_IDS)
def test_rung(compiled, label):
    """The kernel compiles, moves 128 bits per instruction where it promises to, and spills
    nothing."""
    case, (dtype, target, log) = RUNG_IDS[label]
    result = compiled(case.request(dtype, target, log))
    assert result.global_stores
    if case.bits:
        assert result.load_bits == case.bits, result.global_loads
        assert result.store_bits == case.bits, result.global_stores
    assert result.spill_bytes <= case.spill_bytes + ALSO_SPILLED
    assert dtype != "fp64" or has_no_float32_exponential(result)


@pytest.mark.parametrize("label", GEOMETRY_IDS)
def test_geometry(compiled, label):
    """Likewise for every geometry; an operation that reduces stores numbers and no vectors."""
    name, operation, dtype, target = GEOMETRY_IDS[label]
    request = geometry_case(name, operation, dtype, target)
    result = compiled(request)
    writes = getattr(request.constants["HOW"], "write", True)
    assert result.load_bits == 128, result.global_loads
    if not OPERATIONS[operation].reduces:
        assert result.store_bits == (128 if writes else WORD), result.global_stores
    assert result.spill_bytes <= ALSO_SPILLED
    assert dtype != "fp64" or has_no_float32_exponential(result)


def test_shipped_configurations_of_split_rows(compiled):
    """128-bit accesses, odd rows included, where rows are in step; and nothing spilled but at most
    six registers, most of them in the path without partners, or what is listed."""
    assert len(SHIPPED) > 100
    spilling = 0
    for case in SHIPPED:
        result = compiled(case.request)
        if case.how.vector > 1:
            if case.how.publish or not reduces(case):  # else it reads words alone
                assert result.load_bits == 128, case
            if not reduces(case):
                assert result.store_bits == (128 if case.how.write else WORD), case
        assert result.registers <= case.choice.max_registers
        inputs = OPERATIONS[case.operation].inputs
        most = SPILLED.get((inputs, case.how.block, case.choice.num_warps, case.how.depth), 24)
        assert result.spill_bytes <= most + ALSO_SPILLED, case
        spilling += result.spill_bytes > 0
    # Of configurations that differ in the number of words alone, the one with the most is here.
    assert ALSO_SPILLED or spilling <= len(SHIPPED) // 5


def test_what_a_model_chooses_fits_the_registers(compiled):
    """On every GPU: whole vectors, and nothing spilled but at most nine registers."""
    assert len({choice.kernel for choice, _ in MODELLED}) >= 5
    for choice, request in MODELLED:
        result = compiled(request)
        assert result.spill_bytes <= 36 + ALSO_SPILLED, request
        assert result.registers <= (choice.max_registers or 255)
        assert result.load_bits >= 64, request


def reduces(case: Shipped) -> bool:
    return OPERATIONS[case.operation].reduces


@pytest.mark.skipif(not PINNED, reason="the table is the pinned compiler's")
def test_the_table_of_registers(compiled):
    """What a change of a device function costs is seen as a change of the committed table:
    `python -m softmax_bench registers --write`."""
    rows = [registers.row(case, request, compiled(request)) for case, request in TABLE]
    assert {row["geometry"].split(",")[0] for row in rows} == set(GEOMETRIES)
    assert registers.text(rows) == registers.PATH.read_text("utf8")


def test_the_table_holds_each_geometry_under_its_own_name():
    for case, request in TABLE:
        assert case.geometry.split(",")[0] == case.choice.kernel
        assert request.max_registers == case.choice.max_registers


def test_float64_is_computed_with_the_whole_of_log2e(compiled):
    """log2(e) is 0x3FF71547652B82FE in float64; cut to float32 it would end in zeros."""
    case = next(case for case in RUNGS if "forward_single_block" in case.kernel)
    requests = [case.request("fp64", "sm_90", False)]
    requests.append(geometry_case("packed_rows", "softmax", "fp64", "sm_90"))
    for request in requests:
        ptx = compiled(request).ptx.upper()
        assert "3FF71547652B82FE" in ptx
        assert "3FF7154760000000" not in ptx


# --- what the pages say about the compiler


@pytest.fixture(scope="module")
def blocks(compiled) -> dict[int, Compilation]:
    return {size: compiled(single_block(size)) for size in SIZES}


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


def test_unaligned_rows_are_loaded_element_by_element(compiled):
    """What the compiler cannot know to be a multiple of 16 bytes costs one instruction per
    element."""
    result = compiled(single_block(1024, aligned=()))
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
