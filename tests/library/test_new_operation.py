"""An operation is added in one file: every kernel takes it, and Triton's cache sees its text."""

import ast
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from geometries import EVERY_FORM, FORMS
from kernel_cases import DEVICE, assert_near, matrix, quiet
from power_softmax import LOG_BASE, POWER_SOFTMAX, POWER_SOFTMAX_VJP
from triton_softmax import plan
from triton_softmax.arguments import Modifiers
from triton_softmax.operations.softmax import SOFTMAX_VJP
from triton_softmax.plan.modified import run_modified

PACKAGE = Path(__file__).resolve().parents[2] / "src/triton_softmax"


def test_every_geometry_takes_part():
    """A kernel that takes an operation and a geometry's constants is launched here."""
    geometries = set()
    for path in sorted((PACKAGE / "kernels").glob("*.py")):
        for node in ast.parse(path.read_text("utf8")).body:
            if isinstance(node, ast.FunctionDef) and node.name == f"{path.stem}_kernel":
                if {"OP", "HOW"} <= {argument.arg for argument in node.args.args}:
                    geometries.add(path.stem)
    geometries.remove("modified_rows")  # which has a test of its own
    launched = {kernel.__name__ for kernel in plan.GEOMETRIES.values()}
    assert {f"{name}_kernel" for name in geometries} == launched
    assert {form.choose.__name__ for form in FORMS.values()} == set(plan.GEOMETRIES)


@quiet
@EVERY_FORM
def test_a_new_operation_runs_on_every_geometry(form):
    """And so does its gradient."""
    x, dy = matrix(2, 43, torch.float32), matrix(2, 43, torch.float32, scale=1.0, seed=1)
    x[0, :20] = float("-inf")  # a whole chunk of nothing, and a whole tile
    exact = x.double().requires_grad_()
    y = torch.softmax(exact * LOG_BASE.value, dim=1)
    assert_near(form(POWER_SOFTMAX, form.lay_out((x,))), y.detach())
    (expected,) = torch.autograd.grad(y, exact, dy.double())
    actual = form(POWER_SOFTMAX_VJP, form.lay_out((y.detach().float(), dy)))
    assert_near(actual, expected, atol=1e-6)


@pytest.mark.parametrize("n_cols", [50, 9000])
def test_it_takes_maps(n_cols):
    """Scaled, and masked but for the first elements; in one tile, and along a row."""
    x = matrix(5, n_cols, torch.float32)
    where = torch.arange(n_cols, device=DEVICE) < 40
    way = Modifiers(scale=0.5, where=where)
    (y,) = run_modified(POWER_SOFTMAX, (x,), (), way, 1, torch.float32)
    expected = torch.softmax(0.5 * x[:, :40].double() * LOG_BASE.value, dim=1)
    assert_near(y[:, :40], expected, dtype=torch.float32)
    assert not y[:, 40:].any()


# --- the compiler's cache -------------------------------------------------------------------------

TOY = """
import triton
import triton.language as tl

from triton_softmax.operations.operation import Operation, same


@triton.jit
def _called(x):
    return x * {called}


@triton.jit
def _terms(values, m, EXACT: tl.constexpr):
    return (_called(values[0]) + {own},)


@triton.jit
def _finish(values, terms, m, totals):
    return terms[0] / totals[0]


TOY = Operation(
    "toy", inputs=1, padding=0.0, shifted=False, terms=_terms, rescale=same, finish=_finish
)
"""

FOUND = """
import importlib
import importlib.util
import json
import pkgutil
import sys
from types import SimpleNamespace

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from triton_softmax import operations
from triton_softmax.config.constants import RowTile
from triton_softmax.kernels.tile import tile_kernel as kernel
from triton_softmax.operations.operation import Operation

signature = {
    "in_ptrs": ("*fp32",), "out_ptrs": ("*fp32",), "in_strides": ("i32",), "out_strides": ("i32",),
    "n_rows": "i32", "n_cols": "i32", "OP": "constexpr", "HOW": "constexpr",
}
hashes = {}
for path in sys.argv[1:]:
    spec = importlib.util.spec_from_file_location("toy", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    op, how = module.TOY, RowTile(block_rows=1, block_cols=128, vector=4, barrier=False)
    constants = {(kernel.arg_names.index("OP"),): op, (kernel.arg_names.index("HOW"),): how}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    hashes[path] = [op.cache_key, source.hash()]

library = {}
for module in pkgutil.iter_modules(operations.__path__):
    members = vars(importlib.import_module(f"triton_softmax.operations.{module.name}"))
    for op in members.values():
        if isinstance(op, Operation):
            functions = [each for each in vars(op).values() if isinstance(each, triton.JITFunction)]
            assert len(functions) >= 3, op
            library[op.name] = [op.cache_key, [function.cache_key for function in functions]]

target = GPUTarget("cuda", 90, 32)
triton.runtime.driver.set_active(  # a device that is not there
    SimpleNamespace(
        get_current_target=lambda: target,
        get_current_device=lambda: 0,
        get_current_stream=lambda device: 0,
    )
)
seen = []


def hook(**given):
    constants = json.loads(given["compile"]["specialization_data"])["constant_vals"]
    seen.append([str(given["fn"].name), constants])


triton.knobs.runtime.jit_cache_hook = hook
triton.knobs.runtime.jit_post_compile_hook = hook
x, out = torch.empty(2, 10, 50)
how = RowTile(block_rows=4, block_cols=64, vector=1, barrier=False)
for op in operations.OPERATIONS.values():
    inputs = (x,) * (op.inputs + op.numbers)
    numbers = (50,) * len(inputs), (50,), 10, 50
    kernel.warmup(inputs, (out,), *numbers, op, how, grid=(3,))
hooks = [seen, list(how), [op.name for op in operations.OPERATIONS.values()]]
print(json.dumps({"hashes": hashes, "library": library, "hooks": hooks}))
"""


TEXTS = {
    "first": TOY.format(own=2.0, called=5.0),
    "same": TOY.format(own=2.0, called=5.0),
    "own": TOY.format(own=3.0, called=5.0),
    "called": TOY.format(own=2.0, called=6.0),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict:
    """What a process finds in which Triton compiles: only there are there keys."""
    paths = []
    for name, text in TEXTS.items():
        paths.append(tmp_path_factory.mktemp(name) / "toy.py")
        paths[-1].write_text(text, "utf8")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(PACKAGE.parent)
    command = [sys.executable, "-c", FOUND, *map(str, paths)]
    process = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def test_the_cache_sees_the_text_of_an_operation(found):
    """Both keys follow one digit in a function of an operation, or in one that it calls; and they
    follow nothing else, such as the name of the file."""
    keys = dict(zip(TEXTS, map(tuple, found["hashes"].values()), strict=True))
    assert keys["same"] == keys["first"]
    for which in range(2):  # of the operation, and of the kernel that is compiled for it
        assert len({keys[name][which] for name in ("first", "own", "called")}) == 3


def test_every_operation_of_the_library_is_known_by_the_text_of_its_functions(found):
    found = found["library"]
    assert {"softmax", "softmax_vjp", "log_softmax", "log_softmax_vjp", "logsumexp"} <= set(found)
    for name, (key, functions) in found.items():
        assert all(function in key for function in functions), name
    assert len({key for key, _ in found.values()}) == len(found)


def test_hooks_on_compilation_are_told_the_name_of_an_operation(found):
    """Both hooks, on the whole path of a launch but the driver's part: Triton hands them the
    constants as JSON."""
    seen, how, names = found["hooks"]
    each = [["tile_kernel", [name, how]] for name in names]
    assert seen == [one for pair in zip(each, each, strict=True) for one in pair]


def test_an_operation_is_its_name_and_equal_to_itself_alone():
    """Else one of two operations with the same name would run in the place of the other."""
    twin = replace(SOFTMAX_VJP, name=POWER_SOFTMAX_VJP.name)
    assert json.dumps([twin]) == '["power_softmax_vjp"]' == json.dumps([POWER_SOFTMAX_VJP])
    assert twin != POWER_SOFTMAX_VJP and not twin == POWER_SOFTMAX_VJP
    assert len({twin, POWER_SOFTMAX_VJP, twin}) == 2
    assert str(twin) == twin.name == "power_softmax_vjp"
    assert twin.name in repr(twin) and twin.cache_key in repr(twin)


def test_long_float64_rows_are_walked_in_two_passes():
    x = torch.randn(66, 8193, dtype=torch.float64, device=DEVICE)
    kernels = plan.plan_of(POWER_SOFTMAX, (x,), 1).kernels
    assert kernels == ("two_pass_kernel", "merge_chunks_kernel", "two_pass_kernel")
