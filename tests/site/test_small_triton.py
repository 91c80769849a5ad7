"""The small Triton runs the library's kernels, and its results have the bits of Triton's own
interpreter."""

import contextlib
import dataclasses
import functools
import importlib
import inspect
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from geometries import FORMS
from kernel_cases import HOSTILE, INF, INTERPRETED, NAN, quiet
from site_build import ROOT, python
from softmax_playground import cells, small_triton
from softmax_playground.kernel_source import needed
from softmax_playground.small_triton import Tensor, library, session
from softmax_tutorial import (
    flash_attention,
    single_block,
    split_rows_simple,
    three_loops,
    two_loops,
)
from triton_softmax import plan
from triton_softmax.operations import OPERATIONS, cross_entropy, logsumexp, softmax
from triton_softmax.operations.operation import Operation, in_any_order

pytestmark = [
    quiet,
    pytest.mark.skipif(not INTERPRETED, reason="compares with Triton's interpreter"),
]


# ---- Both at once ----


def memory(tensor: torch.Tensor) -> torch.Tensor:
    """All elements between a tensor's first and its last, in their order."""
    length = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((length,), (1,))


def small(value):
    """An argument of a launch as the small Triton takes it."""
    if isinstance(value, torch.Tensor):
        to = getattr(small_triton, str(value.dtype).removeprefix("torch."))
        return Tensor(memory(value).tolist(), to)
    if isinstance(value, Operation):
        return small_operation(value)
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(map(small, value))
    return value


def small_operation(op: Operation):
    """The operation of the same name, made of the library's own text."""
    if op.any_order:
        base = next(each for each in OPERATIONS.values() if in_any_order(each) is op)
        changes = {"name": str(op), "finish_terms": None, "any_order": True}
        return library.replace(small_operation(base), **changes)
    return loaded(*DEFINED[op])


DEFINED = {
    op: (module.__name__, name)
    for module in (cross_entropy, logsumexp, softmax)
    for name, op in vars(module).items()
    if isinstance(op, Operation)
}
"""Where an operation is defined: the modules that import it come before."""


@functools.cache
def loaded(module: str, name: str):
    """A definition of the library's, run by the small Triton."""
    return library.load(needed(ROOT / "src", [(module, name)]))[module][name]


class Both:
    """A kernel whose every launch is also run by the small Triton, and compared."""

    def __init__(self, kernel):
        self.kernel = kernel
        function = kernel
        while not callable(getattr(function, "__wrapped__", None)) and hasattr(function, "fn"):
            function = function.fn
        self.small = loaded(function.__module__, function.__name__)
        self.launches = 0

    def __getitem__(self, grid):
        def launch(*arguments, **constants):
            copies = [small(each) for each in arguments]
            named = {name: small(constants[name]) for name in constants if name.isupper()}
            self.kernel[grid](*arguments, **constants)
            self.small[grid](*copies, **named)
            assert_same(arguments, copies)
            self.launches += 1

        return launch


def assert_same(tensors, copies) -> None:
    """All memory is the same, bit for bit; a NaN is a NaN. Doubles may be a rounding apart, since
    their exponentials come from two libraries."""
    for tensor, copy in zip(tensors, copies, strict=True):
        if isinstance(tensor, tuple):
            assert_same(tensor, copy)
        elif isinstance(tensor, torch.Tensor):
            copy.view(small(tensor).dtype)
            expected = memory(tensor).contiguous()
            actual = torch.tensor(copy.data, dtype=tensor.dtype)
            if tensor.dtype == torch.float64:
                torch.testing.assert_close(actual, expected, rtol=1e-15, atol=0, equal_nan=True)
            else:
                numbers = (actual == actual) | (expected == expected)
                width = getattr(torch, f"int{8 * tensor.element_size()}")
                assert torch.equal(actual.view(width)[numbers], expected.view(width)[numbers])


@pytest.fixture(autouse=True)
def rounded_once(monkeypatch):
    """Exponentials and logarithms of the interpreter, computed in double precision: NumPy's own in
    float32 are some bits off, and on every machine others."""
    from triton.runtime.interpreter import interpreter_builder as builder

    for name, function in (("exp2", np.exp2), ("exp", np.exp), ("log", np.log)):

        def create(arg, function=function):
            return builder.unary_op(arg, lambda x: function(x.astype(np.float64)).astype(x.dtype))

        monkeypatch.setattr(builder, f"create_{name}", create, raising=False)


def rows(n_rows: int, n_cols: int) -> torch.Tensor:
    """Random rows, with two elements between them."""
    generator = torch.Generator().manual_seed(n_cols)
    return 4 * torch.randn(n_rows, n_cols + 2, generator=generator)[:, :n_cols]


# ---- Every kernel ----


HOSTILE_ROWS = torch.tensor(HOSTILE)
RUNGS = {three_loops: {"block_rows": 2, "block_cols": 16}, two_loops: {"block_rows": 2}}
TUTORIAL = [
    *((rung, x, log) for rung in (*RUNGS, single_block) for x in (HOSTILE_ROWS, rows(3, 37))
      for log in (False, True)),
    (single_block, rows(3, 37).half(), False),
    (single_block, rows(3, 37).double(), False),
    (split_rows_simple, rows(2, 37), False),
    (flash_attention, rows(3, 11), False)
]  # fmt: skip


@pytest.mark.parametrize("module, x, log", TUTORIAL)
def test_kernels_of_the_tutorial(module, x, log, monkeypatch):
    used = []
    for home in (module, two_loops):
        for name in [name for name in vars(home) if name.endswith("_kernel")]:
            if not isinstance(getattr(home, name), Both):
                monkeypatch.setattr(home, name, Both(getattr(home, name)))
                used.append(getattr(home, name))
    options = RUNGS.get(module, {})
    if module is flash_attention:
        module.attention_forward(*x, block_queries=4, block_keys=4)
    elif module is split_rows_simple:
        module.softmax_forward(x, block=16, max_polls=2)
    else:
        y = module.softmax_forward(x, log=log, **options)
        module.softmax_backward(y, rows(*x.shape).to(x.dtype), log=log)
    assert sum(each.launches for each in used) == 1 + hasattr(module, "softmax_backward")


# Every operation where a page can run it, and one each way where programs exchange words.
CASES = [
    pytest.param(form, operation, id=f"{label}-{operation}")
    for label, form in FORMS.items()
    for operation in OPERATIONS
    if not form.exchanges or operation in ("softmax", "softmax_backward")
]


@pytest.fixture
def both(monkeypatch) -> dict[str, Both]:
    """Every geometry's kernel and the small Triton's, launched at once."""
    made = {name: Both(kernel) for name, kernel in plan.GEOMETRIES.items()}
    for name, each in made.items():
        monkeypatch.setitem(plan.GEOMETRIES, name, each)
    yield made
    assert any(each.launches for each in made.values())


@pytest.mark.parametrize("form, operation", CASES)
def test_geometries(form, operation, both):
    op = OPERATIONS[operation]
    x = torch.randn(2, 43, generator=torch.Generator().manual_seed(1))
    x.view(-1)[::11] = -INF if op.shifted else 0.0
    inputs = (x, torch.randn(2, 43))[: op.inputs] + (torch.randn(2),) * op.numbers
    form(operation, form.lay_out(inputs))


@pytest.mark.parametrize("op", [*cross_entropy.PLAIN, *cross_entropy.SMOOTHED])
@pytest.mark.parametrize("label", ["packed_rows", "split_rows-two-launches", "strided"])
def test_losses(label, op, both):
    """Numbers of the row go in and come out, and a target that is none is among them."""
    form = FORMS[label]
    x = 4 * torch.randn(2, 43, generator=torch.Generator().manual_seed(1))
    numbers = [torch.tensor([-1, 42]), *torch.rand(5, 2)][: op.numbers]
    outs = [torch.full_like(x, NAN)] * (not op.reduces)
    outs += [torch.full((2,), NAN) for _ in range(op.row_results)]
    outs = form.lay_out(tuple(outs))
    form.launch(op, form.lay_out((x, *numbers)), outs)
    assert not any(out.isnan().any() for out in outs)


def test_sums_in_any_order(both):
    for operation in ("softmax", "log_softmax_backward"):
        op = in_any_order(OPERATIONS[operation])
        FORMS["packed_rows"](op, (torch.randn(2, 43), torch.randn(2, 43))[: op.inputs])


# ---- What is recorded, and what is refused ----


def test_assembly_is_refused():
    with pytest.raises(NotImplementedError, match="inline assembly"):
        small_triton.language.inline_asm_elementwise("mov", "=r,r", [])


def test_a_name_of_triton_means_this_while_code_runs_and_not_after():
    import triton

    found = small_triton.run("import triton\nimport triton.language as tl\nx = tl.arange(0, 4)")
    assert found["x"].data == [0, 1, 2, 3] and found["triton"] is small_triton
    import triton as after

    assert after is triton


# ---- What a kernel calls ----

CALLS = """
@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def merge(m1, d1, m2, d2):
    m = tl.maximum(m1, m2)
    return m, d1 * tl.exp(m1 - m) + d2 * tl.exp(m2 - m)


@triton.jit
def kernel(x_ptr, out_ptr):
    x = tl.load(x_ptr + tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :])
    row = tl.sum(x, axis=0)
    found = CALL
    tl.store(out_ptr + tl.arange(0, COUNT), tl.reshape(found, (COUNT,)))
"""
CALLED = {
    "tl.cumsum(x, axis=1)": 32, "tl.cumsum(x, 0)": 32, "tl.cumsum(row, 0, reverse=True)": 8,
    "tl.cumsum((x > 0).to(tl.int32), axis=1).to(tl.float32)": 32, "tl.sigmoid(x)": 32,
    "tl.softmax(row)": 8, "tl.softmax(x, 1, keep_dims=True)": 32, "tl.sort(x)": 32,
    "tl.sort(row, descending=True)": 8, "tl.topk(x, 4)": 16, "tl.topk(row, 2)": 2,
    "tl.trans(x)": 32, "tl.associative_scan(x, 1, larger)": 32,
    "tl.associative_scan(row, 0, larger, reverse=True)": 8,
    "tl.associative_scan((x, x * 0 + 1), 1, merge)[1]": 32,
    "tl.associative_scan((x, x * 0 + 1), 0, merge)[0]": 32, "tl.dot(x, tl.trans(x))": 16,
    "tl.dot(x, tl.trans(x), tl.zeros((4, 4), tl.float32) + 1)": 16,
    "x.sum(axis=1) + x.max(axis=1)": 4, "tl.log(row.cumsum(0).abs())": 8,
    "row + max(min(tl.max(row, 0), 2.0), 0.5)": 8,
}  # fmt: skip
"""Calls, and how many numbers they answer."""


@pytest.mark.parametrize("call", CALLED)
def test_a_function_answers_as_triton_s_interpreter(call, tmp_path):
    """Bit for bit, but for products of matrices, whose sums NumPy takes in an order of its own."""
    import triton
    import triton.language as tl

    text = CALLS.replace("CALL", call).replace("COUNT", str(CALLED[call]))
    file = tmp_path / "kernel.py"
    file.write_text(text)
    names = {"triton": triton, "tl": tl, "__name__": "kernel"}
    exec(compile(text, str(file), "exec"), names)
    x = rows(4, 8).contiguous()
    out = torch.full((CALLED[call],), NAN)
    names["kernel"][(1,)](x, out)
    copies = small(x), small(torch.full((CALLED[call],), NAN))
    small_triton.run(text)["kernel"][(1,)](*copies)
    if "dot" in call:
        torch.testing.assert_close(torch.tensor(copies[1].data), out)
    else:
        assert_same((x, out), copies)


NAMES = {
    "dot_scaled": "tl.dot_scaled is Triton's; it does not run in the page",
    "gather": "tl.gather is Triton's; it does not run in the page",
    "sotfmax": "there is no tl.sotfmax; did you mean tl.softmax?",
    "summ": "there is no tl.summ; did you mean tl.sum?",
    "loag": "there is no tl.loag; did you mean tl.load or tl.log?",
    "int46": "there is no tl.int46; did you mean tl.int16 or tl.int64?",
    "rsqt": "there is no tl.rsqt; did you mean tl.rsqrt?",
    "logsumexp": "there is no tl.logsumexp, in Triton neither",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_not_here_is_tritons_or_misspelt_or_nobodys(name):
    with pytest.raises(AttributeError) as error:
        small_triton.run(f"tl.{name}")
    assert str(error.value) == NAMES[name]


def test_names_of_triton_are_known():
    import triton.language as tl

    language = small_triton.language
    listed = language.TRITONS.split()
    assert {*listed} <= {*dir(tl)} and not {*listed} & {*dir(language)}
    functions = {name for name in dir(tl) if inspect.isfunction(getattr(tl, name))}
    internals = {*"add sub mul to_tensor bitonic_merge philox_impl str_to_ty".split()}
    internals |= {"uint_to_uniform_float", "pair_uniform_to_normal", "map_elementwise"}
    internals |= {*"rand4x randint4x randn4x".split()}
    missing = functions - {*dir(language)} - {*listed} - internals
    assert not [name for name in missing if not name.startswith("_")], missing


def test_what_is_not_here_says_so():
    answer = session.run_cell({"texts": ["import not_installed"]})
    assert "Only plain Python runs here" in answer["html"]


# ---- The values of every name, beside those of Triton's interpreter ----


def theirs(value, tensors: dict[str, torch.Tensor]):
    """What a local variable of an interpreted kernel holds, as nested tuples of arrays; a pointer
    as (name of the tensor, offsets). None for what a trace does not show."""
    import triton.language as tl

    if isinstance(value, tl.constexpr):
        value = value.value
    if isinstance(value, tuple | tl.tuple) and not hasattr(value, "_fields"):
        return tuple(theirs(each, tensors) for each in value)
    if isinstance(value, bool | int | float):
        return np.asarray(value)
    if not isinstance(value, tl.tensor):
        return None
    data = value.handle.data.copy()
    data = data.reshape(()) if not value.shape else data
    if not value.type.scalar.is_ptr():
        return data
    for name, tensor in tensors.items():
        places = (data.astype(np.int64) - tensor.data_ptr()) // tensor.element_size()
        if 0 <= places.min() <= tensor.numel():  # masked ones may lie beyond
            return name, places
    raise AssertionError("a pointer to none of the tensors")


def ours(value):
    """The same of a value of a step."""
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(map(ours, value))
    if isinstance(value, small_triton.Pointer):
        return value.tensor.name, ours(value.offsets)
    if isinstance(value, small_triton.Tile):
        return np.asarray(value.data).reshape(value.shape)
    value = getattr(value, "value", value)
    return np.asarray(value) if isinstance(value, bool | int | float) else None


def assert_equal(mine, wanted, where, within=0.0) -> None:
    if isinstance(wanted, tuple):
        assert isinstance(mine, tuple) and len(mine) == len(wanted), where
        for pair in zip(mine, wanted, strict=True):
            assert_equal(*pair, where, within)
    elif isinstance(wanted, str):
        assert mine == wanted, where
    elif wanted is not None:
        assert mine is not None, where
        mine = np.broadcast_to(mine.astype(np.float64), wanted.shape)
        np.testing.assert_allclose(mine, wanted, within, within, err_msg=str(where))


class Watch:
    """Every line of some files as it ends, with the local variables of its function."""

    def __init__(self, files, tensors):
        self.files, self.tensors = files, tensors
        self.lines: list[tuple[int, str, int, dict]] = []  # frame, file, line, names
        self.frames: list = []  # kept, so that their numbers stay different

    def __enter__(self):
        self.before = sys.gettrace()
        sys.settrace(self.call)
        return self

    def __exit__(self, *_):
        sys.settrace(self.before)
        self.lines.append((0, "", 0, {}))  # after which nothing comes

    def call(self, frame, event, _):
        if frame.f_code.co_filename not in self.files or frame.f_code.co_name == "<module>":
            return None
        self.frames.append(frame)
        last = frame.f_lineno

        def line(frame, event, argument):
            nonlocal last
            if event in ("line", "return"):
                found = {**frame.f_locals}
                if event == "return":
                    found["returned"] = argument
                found = {name: theirs(each, self.tensors) for name, each in found.items()}
                self.lines.append((id(frame), frame.f_code.co_filename, last, found))
            last = frame.f_lineno
            return line

        return line


def real(cell, folder) -> Watch:
    """A cell's texts, run by Triton's interpreter with torch's tensors, and what was seen there."""
    import triton
    import triton.language as tl
    from triton.tools.tensor_descriptor import TensorDescriptor

    tensors: dict[str, torch.Tensor] = {}

    def tensor(values, dtype=torch.float32, name="x", strides=None):
        assert strides is None
        tensors[name] = torch.tensor(values, dtype=dtype)
        return tensors[name]

    def empty(shape, dtype=torch.float32, name="y", strides=None):
        return tensor(torch.full(shape, NAN).tolist(), dtype, name)

    names = {name: getattr(importlib.import_module(at), name) for name, at in cell.given.items()}
    names |= {"triton": triton, "tl": tl, "Tensor": tensor, "empty": empty, "inf": INF, "nan": NAN}
    names |= {
        "__name__": "cell",
        "int64": torch.int64,
        "replace": dataclasses.replace,
        "print": lambda *_: None,
    }
    names |= {"TensorDescriptor": TensorDescriptor, "order": contextlib.nullcontext}
    files = {}
    for number, text in enumerate(cell.texts()):  # without tuning, which asks for no constants
        file = folder / f"text{number}.py"
        file.write_text(text.replace("@triton.autotune(", "# ("))
        files[str(file)] = number
    with Watch(files, tensors) as watch:
        for file in files:
            exec(compile(Path(file).read_text(), file, "exec"), names)
    return watch


TRACED = [
    name
    for name in cells.names(ROOT)
    if "/" not in name and "@triton.jit" in "".join(cells.read(ROOT, name).texts())
]


@pytest.mark.parametrize("name", TRACED)
def test_a_trace_has_the_values_of_triton_s_interpreter(name, tmp_path):
    """Statement by statement, each name's value as it is then, every lane; no name is missing. A
    product of matrices may be a rounding apart, since NumPy adds in an order of its own."""
    cell = cells.read(ROOT, name)
    within = 2e-6 if "tl.dot(" in "".join(cell.texts()) or "chunk" in "".join(cell.given) else 0.0
    watch = real(cell, tmp_path)
    session.provide(cells.library(ROOT))
    names = {**session.NAMES, "show": lambda *_: None, "print": lambda *_: None}
    names |= {each: session._library[home][each] for each, home in cell.given.items()}
    with small_triton.record() as trace:
        for number, text in enumerate(cell.texts()):
            names |= small_triton.run(text, str(tmp_path / f"text{number}.py"), True, **names)
    at, seen = -1, {}
    compared = 0
    for step in (each for each in trace.steps if each.at):
        first, last, path = step.at
        inside = lambda line: line[1] == path and first <= line[2] <= last  # noqa: B023, E731
        at = next(i for i in range(at + 1, len(watch.lines)) if inside(watch.lines[i]))
        frame = watch.lines[at][0]
        while first < last and inside(after := watch.lines[at + 1]) and after[0] == frame:
            at += 1
        found = watch.lines[at][3]
        for key, value in step.names:
            if key != "condition":
                assert_equal(ours(value), found[key], (name, first, key), within)
                compared += 1
            seen.setdefault(frame, set()).add(key)
        if "returned" in found:
            shown = {key for key, value in found.items() if value is not None}
            assert shown - {"returned"} <= seen.get(frame, shown), (name, first)
    assert compared > 5
    ends = sum("returned" in line[3] for line in watch.lines)
    assert len({step.frame for step in trace.steps if step.at}) <= ends


MASKS = """
@triton.jit
def kernel(x_ptr):
    rows, cols = tl.arange(0, 2)[:, None], tl.arange(0, 4)[None, :]
    mask = (rows < 1) & (cols < 3)
    x = tl.load(x_ptr + rows * 4 + cols, mask=mask, other=float("-inf"))
    before = tl.full((2, 4), 0.0, tl.float32)
    running = tl.maximum(before, x)
    second = tl.load(x_ptr + rows * 4 + cols, mask=cols < 2, other=float("-inf"))
    both = tl.maximum(x, second)
    m = tl.max(x, axis=1)
    e = tl.exp(x - m[:, None])
    kept = tl.where(mask, e, 0.0)
    d = tl.sum(kept, axis=1)
    total = tl.sum(d, axis=0)
"""


def test_a_lane_is_masked_where_all_that_it_comes_from_is():
    """An element is masked with the one it is made of, a row with all of its elements; a running
    maximum is not, for it has met other tiles before."""
    trace = small_triton.run(MASKS, probes=True)["kernel"][(1,)](Tensor([[1.0] * 4] * 2))
    masked = {name: getattr(v, "masked", None) for step in trace.steps for name, v in step.names}
    lanes = [False, False, False, True] + [True] * 4
    assert masked["x"] == masked["e"] == masked["kept"] == lanes
    assert masked["both"] == [False, False, False, True, False, False, True, True]
    assert masked["m"] == masked["d"] == [False, True]
    for name in ("mask", "cols", "before", "running", "total"):
        assert not any(masked[name] or []), name


# ---- What Python runs and Triton refuses ----

REFUSES = {
    "z = tl.zeros((6,), tl.float32)": "Triton's shapes are powers of 2, and 6 is none",
    "z = tl.zeros([n], tl.float32)": "Triton's shapes are powers of 2, and 5 is none",
    "z = tl.broadcast_to(x[:, None], (8, 3))": "powers of 2, and 3 is none",
    "z = tl.arange(0, n)": "a power of 2, and 5 is not",
    "z = x // 2.0": "Triton divides no floats by //",
    "z = tl.exp(cols)": "Triton takes this of float32 only, not of int32",
    "z = tl.log(x.to(tl.bfloat16))": "not of bfloat16: x.to(tl.float32)",
    "z = x_ptr + y_ptr": "a pointer is not a number",
    "z = x if mask else 0.0": "use tl.where",
    "z = 0 <= cols < n": "use tl.where",
    "z = x + FOUR": "Triton reads no global FOUR in a kernel: hand it over",
    "z = plain(x)": "write @triton.jit above it",
    "z = [i for i in range(4)]": "Triton takes no list made by for in a kernel.",
    "z = {'x': x}": "takes no dictionary or set",
    "z = (w := x) + 1": "takes no :=",
    "z = (lambda a: a + 1)(x)": "takes no lambda",
    "z = sum(x)": "Triton takes no sum in a kernel: use tl.sum.",
    "z = max(x)": "tl.max",
    "z = abs(n)": "Triton takes no abs in a kernel: use tl.abs.",
    "z = round(1.5)": "takes no round",
    "for a, b in zip((1, 2), (3, 4)):\n        x += a": "takes no zip",
    "for i in range(n):\n        if i > 2:\n            break": "takes no break",
    "for i in range(n):\n        if i > 2:\n            continue": "takes no continue",
    "try:\n        z = x\n    except ValueError:\n        z = 0": "takes no try",
    "def inner(a):\n        return a\n    z = inner(x)": "takes no def",
    "import math\n    z = x * math.pi": "takes no import",
    "del x": "takes no del",
}
"""What stands in a kernel, and what a cell says of it."""
TAKES = [
    "z = x + GIVEN + tl.exp(x).sum(axis=0) + math.pi",
    "print('abs of x, for n', x)",
    "for i in tl.static_range(2):\n        plain = x + i",
    "z = tl.where(mask, x, 0.0) if n > 3 else x",
]
AROUND = """
import math

import triton
import triton.language as tl

FOUR, x = 4, 1
GIVEN = tl.constexpr(4)


def plain(a):
    return a


@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + cols, mask=mask, other=0.0)
    BODY
    tl.store(y_ptr + cols, cols, mask=mask)
"""
COMPILED = """
import runpy, sys
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler.compiler import make_backend
from triton._C.libtriton import ir
target = GPUTarget("cuda", 90, 32)
backend = make_backend(target)
options, types = backend.parse_options({}), dict(x_ptr="*fp32", y_ptr="*fp32", n="i32")
for path in sys.argv[1:]:
    kernel = runpy.run_path(path)["kernel"]
    source = ASTSource(kernel, {**types, "BLOCK": "constexpr"}, {(3,): 8})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    try:
        generated = backend.get_codegen_implementation(options), backend.get_module_map()
        source.make_ir(target, options, *generated, context)
        print("taken")
    except Exception:
        print("refused")
"""


def test_what_triton_s_compiler_refuses_is_said_so(tmp_path):
    """Each is refused by both, in words by the page, and none of what Triton takes is."""
    launch = "kernel[(1,)](Tensor([1.0, 2, 3, 4, 5]), empty((8,)), 5, BLOCK=8)\n"
    files = []
    for body in [*REFUSES, *TAKES]:
        text = AROUND.replace("BODY", body)
        answer = session.run_cell({"texts": [text + launch]})
        said = answer["error"] and answer["error"]["message"]
        assert REFUSES[body] in said if body in REFUSES else not said, (body, said)
        assert not said or answer["error"]["line"] in (20, 21, 22), (body, answer["error"])
        files.append(tmp_path / f"kernel{len(files)}.py")
        files[-1].write_text(text)
    result = python("-c", COMPILED, *map(str, files), TRITON_INTERPRET=None)
    wanted = ["refused"] * len(REFUSES) + ["taken"] * len(TAKES)
    assert result.stdout.split() == wanted, result.stderr
