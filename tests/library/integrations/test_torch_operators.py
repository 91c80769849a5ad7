"""PyTorch's operators by our kernels: the same results, derivatives and errors, for every caller;
and as if nothing had been, once the last handle is removed."""

import os
import re
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.library import Library
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

import triton_softmax
from kernel_cases import DEVICE, drawn, small_tiles
from probe import Operators, kernels_of
from tests.library.test_matrix import CONTEXTS, FORMS
from triton_softmax import arguments, batch_invariant
from triton_softmax.integrations import aten, torch_operators

pytestmark = pytest.mark.filterwarnings("ignore")
SOFTMAX, LOG_SOFTMAX, LOGSUMEXP = "aten::_softmax", "aten::_log_softmax", "aten::logsumexp"
SOFTMAX_BACKWARD = "aten::_softmax_backward_data"
LOG_SOFTMAX_BACKWARD = "aten::_log_softmax_backward_data"
SOURCE = Path(triton_softmax.__file__).parents[1]
FUNCTIONS = {"softmax": torch.softmax, "log_softmax": torch.log_softmax}
FUNCTIONS["logsumexp"] = torch.logsumexp
KEY = "CPU" if DEVICE == "cpu" else "CUDA"
each_function = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)


def registered() -> list[str]:
    """All kernels that PyTorch's dispatcher has for our operators."""
    return [torch._C._dispatch_dump(name) for name in aten.OPERATORS]


@pytest.fixture(autouse=True)
def as_it_was():
    """No test leaves a handle, and none a kernel in PyTorch's table."""
    before = registered()
    yield
    left = aten.operators.handles
    for handle in left:
        handle.remove()
    assert not left and registered() == before


def close(got, wanted):
    """Results like PyTorch's, with its dtypes, shapes and strides, or the very same error."""
    if isinstance(wanted, (tuple, list)):
        for one, other in zip(got, wanted, strict=True):
            close(one, other)
    elif not isinstance(wanted, Tensor):
        assert got == wanted
    elif wanted.is_nested:
        close(got.unbind(), wanted.unbind())
    elif wanted.layout != torch.strided:
        close(got.to_dense(), wanted.to_dense())
    else:
        tolerance = {"rtol": 2e-2, "atol": 2e-2} if wanted.dtype.itemsize == 2 else {}
        torch.testing.assert_close(got, wanted, check_stride=True, equal_nan=True, **tolerance)


def compared(call):
    """A call gives the same with our kernels as before. Return how many of them it ran."""
    wanted = call()
    with torch_operators() as handle:
        got = call()
    close(got, wanted)
    return handle.calls


def outcome(call):
    """What a call gives: its result, or the type of its error and what it says; further lines list
    the kernels that there are."""
    try:
        return call()
    except Exception as error:
        return type(error), str(error).splitlines()[0]


def with_gradient(function, x: Tensor, *rest):
    x = x.detach().requires_grad_()
    y = function(x, *rest)
    g = drawn(*y.shape, dtype=y.dtype, seed=9).to(y.device)
    return y.detach(), *torch.autograd.grad(y, x, g)


CUBE = drawn(1, 3, 4, 10, dtype=torch.float32)
X, DY = (drawn(3, 8, dtype=torch.float32, seed=seed) for seed in (0, 1))
Y = X.softmax(1)
OUT, INF, NAN = torch.empty(3, 8, device=DEVICE), torch.inf, torch.nan
HOSTILE = torch.tensor([[0.0, -INF, 1], [-INF] * 3, [0, INF, 1], [NAN, 0, 1]], device=DEVICE)
ALL_FORMS = FORMS | {
    "as it is": lambda t: t,
    "channels last": lambda t: CUBE.to(memory_format=torch.channels_last),
    "hostile": lambda t: HOSTILE,
    "compressed": Tensor.to_sparse_csr,
}
PLAIN = """float16, bfloat16, float32, float64, one more, one dimension more, expanded, off by one,
gaps, transposed, negative, of a conjugate, subclass, as it is, channels last, hostile"""
OURS = re.split(r",\s", PLAIN)


@pytest.mark.parametrize("form", ALL_FORMS)
@each_function
def test_every_form(function, form):
    """Of what is not ours the result or the error is PyTorch's, to the letter; of what is made of
    tensors, such as jagged ones, the parts are ours."""
    try:
        x = ALL_FORMS[form](X)
    except (RuntimeError, TypeError):
        return  # there is no such tensor
    ours = form in OURS
    run = with_gradient if ours else lambda function, *rest: function(*rest)
    for dim in (-1, 0):
        calls = compared(lambda dim=dim: outcome(lambda: run(function, x, dim)))
        counted = [1, 1] if function is not torch.logsumexp else [1]
        assert form in ("two", "jagged") or [*calls.values()] == (counted if ours else [])


NOT_OURS = {
    "a dimension too far": lambda f: f(X, 2),
    "a negative one too far": lambda f: f(X, -3),
    "no dimension": lambda f: f(X, None),
    "out": lambda f: f(X, 1, out=OUT.clone()),
    "out of another dtype": lambda f: f(X, 1, out=OUT.double()),
    "several dimensions": lambda f: f(X, (0, 1)),
    "none of them": lambda f: f(X, ()),
    "a dimension twice": lambda f: f(X, (0, 0)),
    "keepdim of several": lambda f: f(X, (0, 1), True),
}
SOFT, LOG = torch.ops.aten._softmax_backward_data, torch.ops.aten._log_softmax_backward_data
MISFITS = [
    lambda _: SOFT(DY[:2], Y, 1, torch.float32),
    lambda _: SOFT(DY.double(), Y, 1, torch.float32),
    lambda _: LOG(DY, Y, 1, torch.int64),
    lambda _: LOG(DY, Y, 5, torch.float32),
]
"""Gradients that do not fit, of operators that are called by their names."""


@pytest.mark.parametrize(
    "function, call",
    [(f, call) for f in FUNCTIONS.values() for call in NOT_OURS.values()]
    + [(SOFT, call) for call in MISFITS],
)
def test_what_is_not_ours(function, call):
    assert not compared(lambda: outcome(lambda: call(function)))


@pytest.mark.parametrize("context", CONTEXTS)
@each_function
def test_every_context(function, context):
    """Derivatives of any order, transforms, autocast, traces and compiled functions."""

    def call():
        x = drawn(2, 9, dtype=torch.float32).requires_grad_()
        y = CONTEXTS[context](lambda input: function(input, -1), {"input": x})
        return y.shape if y.is_meta else y.detach()

    calls = compared(lambda: outcome(call))
    assert bool(calls) != context.startswith(("fake", "meta"))


LOGITS, TARGET = drawn(5, 37, dtype=torch.float32), torch.tensor([1, 36, 0, 4, -100])
TOKENS = drawn(2, 6, 8, dtype=torch.float32)
ATTENTION = torch.nn.MultiheadAttention(8, 2, batch_first=True).to(DEVICE)
MODULES = torch.nn.Sequential(torch.nn.LogSoftmax(1), torch.nn.Softmax2d())
MADE_OF_THEM = {
    "cross_entropy": (
        lambda: with_gradient(functional.cross_entropy, LOGITS, TARGET.to(DEVICE)),
        {LOG_SOFTMAX: 1, LOG_SOFTMAX_BACKWARD: 1},
    ),
    "attention": (lambda: ATTENTION(TOKENS, TOKENS, TOKENS), {SOFTMAX: 1}),
    "modules": (lambda: MODULES(TOKENS), {LOG_SOFTMAX: 1, SOFTMAX: 1}),
    "gumbel": (
        lambda: (torch.manual_seed(0), functional.gumbel_softmax(TOKENS, dim=1))[1],
        {SOFTMAX: 1},
    ),
    "safe": (lambda: torch.ops.aten._safe_softmax(TOKENS, 1), {SOFTMAX: 1}),
    "distribution": (
        lambda: torch.distributions.Categorical(logits=LOGITS).entropy(),
        {LOGSUMEXP: 1, SOFTMAX: 1},
    ),
    # `dtype=` is PyTorch's: on a GPU it fuses the one from float16.
    **{
        f"cast from {dtype}": (
            lambda dtype=dtype: torch.softmax((3 * X).to(dtype), 1, dtype=torch.float32),
            {SOFTMAX: 1},
        )
        for dtype in (torch.float16, torch.bfloat16, torch.int64)
    },
}


@pytest.mark.parametrize("what", MADE_OF_THEM)
def test_what_is_made_of_them(what):
    call, counts = MADE_OF_THEM[what]
    assert compared(call) == counts
    names = kernels_of(call)
    with torch_operators():
        ours = kernels_of(call)
    assert not names and len(ours) == sum(counts.values())
    assert all(name.endswith("tile_kernel") or "strided" in name for name in ours)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize(
    "op, function", [("_softmax", torch.softmax), ("_log_softmax", torch.log_softmax)]
)
def test_half_to_float(op, function, dtype):
    """On a CPU PyTorch has it under no name but the operator's, and refuses it there."""
    run, back = getattr(torch.ops.aten, op), getattr(torch.ops.aten, f"{op}_backward_data")
    x, dy = drawn(3, 35, dtype=dtype), drawn(3, 35, dtype=torch.float32, seed=1)
    call = lambda: outcome(lambda: run(x, 1, True))  # noqa: E731
    if dtype != torch.float16:
        assert not compared(call)
        return
    with torch_operators() as handle:
        y = call()
        wide, narrow = (back(dy, y, 1, to) for to in (torch.float32, torch.float16))
    close((y, narrow), (function(x.float(), 1), wide.half()))
    assert handle.calls == {f"aten::{op}": 1, f"aten::{op}_backward_data": 2}


@each_function
def test_modes_see_the_same_operators(function):
    """Of one mode within another, too; and what runs is counted once."""

    class Forwards(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), more=None):
            return function(*arguments, **(more or {}))

    x = drawn(3, 35, dtype=torch.float32)

    def seen():
        with Operators() as outer, Forwards(), Operators() as inner:
            with_gradient(function, x, 1)
        return outer.names, inner.names

    wanted = seen()
    with torch_operators() as handle:
        assert seen() == wanted
    assert {*handle.calls.values()} == {1}


def test_a_device_that_this_machine_may_lack():
    with torch_operators() as handle, torch._subclasses.FakeTensorMode():
        assert torch.softmax(torch.empty(2, 3, device="cuda"), 1).device.type == "cuda"
    assert not handle.calls


@pytest.mark.slow
def test_inductor_fuses_its_own():
    x = drawn(4, 35, dtype=torch.float32)
    wanted = with_gradient(torch.softmax, x, 1)
    torch._dynamo.reset()
    with torch_operators() as handle:
        close(with_gradient(torch.compile(torch.softmax), x, 1), wanted)
    assert not handle.calls


# What stands in PyTorch's table.


def override(name: str, answer, key: str = KEY) -> Library:
    """Another package's override of an operator. PyTorch warns of the first in a process."""
    library = Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*verrid", UserWarning)
        library.impl(name, answer, key)
    return library


def sevens(x, *_):
    return torch.full_like(x, 7.0)


def test_a_backward_pass_runs_what_is_installed_when_it_runs():
    x = drawn(3, 35, dtype=torch.float32).requires_grad_()
    y = torch.softmax(x, 1)
    with torch_operators() as handle:
        y.backward(x.detach(), retain_graph=True)
    assert handle.calls == {SOFTMAX_BACKWARD: 1}
    with torch_operators() as handle:
        y = torch.log_softmax(x, 1)
    y.backward(x.detach())
    assert handle.calls == {LOG_SOFTMAX: 1}


def test_an_override_from_before_comes_back():
    """And meanwhile answers what ours does not take."""
    x = drawn(3, 35, dtype=torch.float32)
    whole = x.long()
    theirs = override("_softmax", sevens)
    before = registered()
    with torch_operators() as handle:
        assert torch.softmax(x, 1).max() < 1
        assert torch.equal(torch.ops.aten._softmax(whole, 1, False), torch.full_like(whole, 7))
    assert handle.calls == {SOFTMAX: 1} and registered() == before
    assert torch.softmax(x, 1).min() == 7
    theirs._destroy()


def test_an_override_from_before_that_goes_meanwhile():
    x = drawn(3, 35, dtype=torch.float32)
    wanted = outcome(lambda: torch.softmax(x, 2))
    theirs = override("_softmax", sevens)
    with torch_operators() as handle:
        theirs._destroy()
        for _ in range(2):
            close(outcome(lambda: torch.softmax(x, 2)), wanted)
        torch.softmax(x, 1)
    assert handle.calls == {SOFTMAX: 1}


def test_an_override_from_after_stays():
    x = drawn(3, 35, dtype=torch.float32)
    with torch_operators() as handle:
        theirs = override("_softmax", sevens)
        assert torch.softmax(x, 1).min() == 7
        with torch_operators() as second:
            torch.log_softmax(x, 1)
    assert torch.softmax(x, 1).min() == 7
    theirs._destroy()
    assert torch.softmax(x, 1).max() < 1
    assert not handle.calls and second.calls == {LOG_SOFTMAX: 1}


ALONE = """
import sys, torch, warnings
from triton_softmax.integrations import torch_operators
names = [name for name in ("transformers", "trl", "kernels") if name in sys.modules]
x = torch.randn(3, 35)
wanted = torch.softmax(x, 1)
with torch_operators() as handle:
    got = torch.softmax(x, 1)
assert torch.allclose(got, wanted) and bool(handle.calls) == {interpreted} and not names
"""


@pytest.mark.slow
@pytest.mark.parametrize("interpreted", [0, 1])
def test_alone_it_imports_and_warns_of_nothing(interpreted):
    """In a process that turns warnings into errors: PyTorch has one for the first override."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(SOURCE)}
    environment["TRITON_INTERPRET"] = str(interpreted)
    code = ALONE.format(interpreted=bool(interpreted))
    command = [sys.executable, "-W", "error::UserWarning", "-c", code]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0 and not run.stderr, run.stderr


def test_a_cpu_without_the_interpreter_is_left_alone(monkeypatch):
    monkeypatch.setattr(arguments, "INTERPRETED", False)
    x = torch.randn(3, 35)
    assert not compared(lambda: with_gradient(torch.softmax, x, 1))


# The library itself.


@pytest.mark.parametrize("name", FUNCTIONS)
def test_nothing_recurses(name, monkeypatch):
    """The library's functions, in the ways that call PyTorch's."""
    ours, x = getattr(triton_softmax, name), drawn(2, 5)
    calls = [
        lambda: ours(x, 1),
        lambda: torch.func.jvp(lambda x: ours(x, 1), (x,), (x,)),
        lambda: torch.func.hessian(lambda x: ours(x, 1).sum())(x),
        lambda: triton_softmax.cross_entropy(x, torch.softmax(x, 1)),
    ]
    if name != "logsumexp":
        calls.append(lambda: torch.func.vjp(lambda x: ours(x, 1, scale=2.0, safe=True), x)[0])
    for way in ("kernels", "operators"):
        if way == "operators":
            monkeypatch.setattr(arguments, "INTERPRETED", False)
        compared(lambda: [call() for call in calls])


@pytest.mark.parametrize("invariant", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_bits_of_the_librarys_own(name, invariant, monkeypatch):
    small_tiles(monkeypatch, 128)
    x, ours = drawn(5, 1001, dtype=torch.float32), getattr(triton_softmax, name)
    wanted = with_gradient(lambda x: ours(x, 1, batch_invariant=invariant), x)
    with torch_operators(batch_invariant=invariant):
        got = with_gradient(FUNCTIONS[name], x, 1)
        if name != "logsumexp":  # the gradient of PyTorch's is made of other operators
            assert torch.equal(got[1], wanted[1])
        assert torch.equal(got[0], wanted[0])
        if invariant:
            assert torch.equal(FUNCTIONS[name](x[3:4].clone(), 1)[0], got[0][3])


def test_the_last_handle_and_the_context_say_whether_it_is_batch_invariant():
    x = drawn(5, 3001, dtype=torch.float32, scale=3.0)
    plain = triton_softmax.softmax(x)
    wanted = triton_softmax.softmax(x, batch_invariant=True)
    assert not torch.equal(plain, wanted)
    with torch_operators():
        with torch_operators(batch_invariant=True):
            assert torch.equal(torch.softmax(x, 1), wanted)
            with torch_operators():
                assert torch.equal(torch.softmax(x, 1), plain)
        with batch_invariant():
            assert torch.equal(torch.softmax(x, 1), wanted)
        assert torch.equal(torch.softmax(x, 1), plain)


# Threads.


def test_threads_that_install_and_remove_while_others_compute():
    """PyTorch frees a kernel that is taken out, though a thread may be about to call it."""
    x = drawn(2, 5, dtype=torch.float32)
    wanted, done = with_gradient(torch.softmax, x, 1), threading.Event()
    start = threading.Barrier(4)

    def work():
        start.wait()
        while not done.is_set():
            close(with_gradient(torch.softmax, x, 1), wanted)

    with ThreadPoolExecutor(3) as pool:
        others = [pool.submit(work) for _ in range(3)]
        start.wait()
        for i in range(300):
            with torch_operators():
                done.wait(0.001 * (i % 3))
        done.set()
    assert [each.result() for each in others] == [None] * 3
