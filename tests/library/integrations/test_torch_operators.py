"""PyTorch's operators by our kernels: the same results, derivatives and errors, for every caller;
and as if nothing had been, once the last handle is removed."""

import contextlib
import functools
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.library import Library
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

import triton_softmax
from kernel_cases import DEVICE, DTYPES, INTERPRETED, drawn, dtype_name, quiet, small_tiles
from probe import Operators, kernels_of
from triton_softmax import arguments, batch_invariant
from triton_softmax.integrations import aten, torch_operators

pytestmark = quiet
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
    """Results like PyTorch's, with its dtypes, shapes and strides."""
    if isinstance(wanted, (tuple, list)):
        for one, other in zip(got, wanted, strict=True):
            close(one, other)
        return
    narrow = isinstance(wanted, torch.Tensor) and wanted.dtype.itemsize == 2
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if narrow else {}
    torch.testing.assert_close(got, wanted, check_stride=True, equal_nan=True, **tolerance)


def compared(call, alike=close):
    """A call gives the same with our kernels as before. Return how many of them it ran."""
    wanted = call()
    with torch_operators() as handle:
        got = call()
    alike(got, wanted)
    return handle.calls


def outcome(call):
    """What a call gives: its result, or the type of its error and what it says; further lines list
    the kernels that there are."""
    try:
        return call()
    except Exception as error:
        return type(error), str(error).splitlines()[0]


def with_gradient(function, x: torch.Tensor, *rest):
    x = x.detach().requires_grad_()
    y = function(x, *rest)
    g = drawn(*y.shape, dtype=y.dtype, seed=9).to(y.device)
    return y.detach(), *torch.autograd.grad(y, x, g)


LAYOUTS = {
    "rows": lambda x: x,
    "columns": lambda x: x.transpose(0, 2),
    "gaps": lambda x: x[:, :, 1:-1],
    "expanded": lambda x: x[:1].expand(3, -1, -1),
    "backwards": lambda x: x.flip(2)[..., ::2],
    "channels last": lambda x: x[None].to(memory_format=torch.channels_last),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_name)
@each_function
def test_every_dtype(function, dtype):
    x = drawn(3, 35, dtype=dtype, scale=3.0)
    for dim in (-1, 0):
        calls = compared(lambda dim=dim: with_gradient(function, x, dim))
        backward = function is not torch.logsumexp
        assert [*calls.values()] == [1, 1] if backward else calls == {LOGSUMEXP: 1}


@pytest.mark.parametrize("layout", LAYOUTS)
@each_function
def test_every_layout(function, layout):
    x = LAYOUTS[layout](drawn(3, 4, 10, dtype=torch.float32))
    for dim in range(x.dim()):
        assert compared(lambda dim=dim: with_gradient(function, x, dim))


def test_rows_of_infinities_and_of_what_is_no_number():
    inf, nan = torch.inf, torch.nan
    x = torch.tensor([[0.0, -inf, 1], [-inf] * 3, [0, inf, 1], [nan, 0, 1]], device=DEVICE)
    for function in FUNCTIONS.values():
        assert sum(compared(lambda function=function: function(x, 1)).values()) == 1


def test_the_kernels_run():
    x = drawn(3, 35, dtype=torch.float32)
    assert not kernels_of(lambda: torch.softmax(x, 1))
    with torch_operators():
        (name,) = kernels_of(lambda: torch.softmax(x, 1))
    assert name.endswith("tile_kernel")  # on a GPU after the operation


def test_what_is_made_of_them():
    logits, target = drawn(5, 37, dtype=torch.float32), torch.tensor([1, 36, 0, 4, -100])
    x = drawn(2, 6, 8, dtype=torch.float32)
    attention = torch.nn.MultiheadAttention(8, 2, batch_first=True).to(DEVICE)
    calls = {
        "cross_entropy": lambda: with_gradient(functional.cross_entropy, logits, target.to(DEVICE)),
        "attention": lambda: attention(x, x, x),
        "modules": lambda: torch.nn.Sequential(torch.nn.LogSoftmax(1), torch.nn.Softmax2d())(x),
        "gumbel": lambda: (torch.manual_seed(0), functional.gumbel_softmax(x, dim=1))[1],
        "safe": lambda: torch.ops.aten._safe_softmax(x, 1),
        "distribution": lambda: torch.distributions.Categorical(logits=logits).entropy(),
    }
    assert {name: compared(call) for name, call in calls.items()} == {
        "cross_entropy": {LOG_SOFTMAX: 1, LOG_SOFTMAX_BACKWARD: 1},
        "attention": {SOFTMAX: 1},
        "modules": {LOG_SOFTMAX: 1, SOFTMAX: 1},
        "gumbel": {SOFTMAX: 1},
        "safe": {SOFTMAX: 1},
        "distribution": {LOGSUMEXP: 1, SOFTMAX: 1},
    }


def test_half_to_float():
    """On a CPU PyTorch has it under no name but the operator's, and refuses it there."""
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        x = drawn(3, 35, dtype=dtype)
        for op, function in (("_softmax", torch.softmax), ("_log_softmax", torch.log_softmax)):
            run = getattr(torch.ops.aten, op)
            plain = outcome(lambda run=run, x=x: run(x, 1, True))
            with torch_operators() as handle:
                got = outcome(lambda run=run, x=x: run(x, 1, True))
                if dtype == torch.float16:
                    close(got, function(x.float(), 1))
                    y, dy = got, drawn(3, 35, dtype=torch.float32, seed=1)
                    back = getattr(torch.ops.aten, f"{op}_backward_data")
                    wide = back(dy, y, 1, torch.float32)
                    close(back(dy, y, 1, torch.float16), wide.half())
            if dtype == torch.float16:
                assert handle.calls[f"aten::{op}"] == 2
                assert handle.calls[f"aten::{op}_backward_data"] == 2
            else:
                same(got, plain)
                assert not handle.calls


def test_a_cast_before_softmax():
    """`dtype=` is PyTorch's: on a GPU it fuses the one from float16."""
    for dtype in (torch.float16, torch.bfloat16, torch.int64):
        x = drawn(3, 35, scale=3.0).to(dtype)
        assert compared(lambda x=x: torch.softmax(x, 1, dtype=torch.float32)) == {SOFTMAX: 1}


def same(got, wanted):
    """The very same result, or the very same error."""
    if not isinstance(wanted, torch.Tensor):
        assert got == wanted
        return
    assert (got.dtype, got.shape, got.layout) == (wanted.dtype, wanted.shape, wanted.layout)
    if wanted.layout == torch.jagged or wanted.is_nested:
        pairs = zip(got.unbind(), wanted.unbind(), strict=True)
    elif wanted.layout == torch.sparse_coo:
        pairs = [(got.to_dense(), wanted.to_dense())]
    else:
        pairs = [(got, wanted)]
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


X = drawn(3, 8, dtype=torch.float32)
OUT = torch.empty(3, 8, device=DEVICE)
OTHERS = {
    "complex": lambda f: f(X.to(torch.complex64), 1),
    "integers": lambda f: f(X.long(), 1),
    "bools": lambda f: f(X > 0, 1),
    "8-bit floats": lambda f: f(X.to(torch.float8_e4m3fn), 1),
    "empty rows": lambda f: f(X[:, :0], 1),
    "no rows": lambda f: f(X[:0], 1),
    "a scalar": lambda f: f(X[0, 0], 0),
    "a dimension too far": lambda f: f(X, 2),
    "a negative one too far": lambda f: f(X, -3),
    "no dimension": lambda f: f(X, None),
    "text": lambda f: f("x", 1),
    "sparse": lambda f: f(X.to_sparse(), 1),
    "compressed": lambda f: f(X.to_sparse_csr(), 1),
    "out": lambda f: f(X, 1, out=OUT.clone()),
    "out of another dtype": lambda f: f(X, 1, out=OUT.double()),
    "several dimensions": lambda f: f(X, (0, 1)),
    "none of them": lambda f: f(X, ()),
    "a dimension twice": lambda f: f(X, (0, 0)),
    "keepdim of several": lambda f: f(X, (0, 1), True),
}


@pytest.mark.parametrize("what", OTHERS)
@each_function
def test_what_is_not_ours(function, what):
    """Its result or its error is PyTorch's, to the bit and to the letter."""
    with quietly():
        assert not compared(lambda: outcome(lambda: OTHERS[what](function)), same)


@contextlib.contextmanager
def quietly():
    """Without PyTorch's warnings of beta states and resized results, which both calls give."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse|An output|The PyTorch API of nested|.*nested")
        yield


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
def test_nested_tensors(layout):
    parts = [drawn(n, 8, dtype=torch.float32, seed=n) for n in (2, 3)]
    with quietly():
        x = torch.nested.nested_tensor(parts, layout=layout)
        compared(lambda: torch.softmax(x, -1).unbind())


def test_operators_called_by_name_with_what_does_not_fit():
    """Gradients of another shape or dtype."""
    y, dy = X.softmax(1), drawn(3, 8, dtype=torch.float32, seed=1)
    calls = [
        lambda: torch.ops.aten._softmax_backward_data(dy[:2], y, 1, torch.float32),
        lambda: torch.ops.aten._softmax_backward_data(dy.double(), y, 1, torch.float32),
        lambda: torch.ops.aten._log_softmax_backward_data(dy, y, 1, torch.int64),
        lambda: torch.ops.aten._log_softmax_backward_data(dy, y, 5, torch.float32),
    ]
    for call in calls:
        assert not compared(lambda call=call: outcome(call), same)


@each_function
def test_derivatives_of_any_order(function):
    x = drawn(2, 5).requires_grad_()
    v = drawn(2, 5, seed=1)

    def each_one():
        first = torch.autograd.grad((function(x, 1) ** 2).sum(), x, create_graph=True)[0]
        second = torch.autograd.grad((first * v).sum(), x, create_graph=True)[0]
        third = torch.autograd.grad((second**2).sum(), x)[0]
        value, tangent = torch.func.jvp(lambda x: function(x, 1), (x.detach(),), (v,))
        hessian = torch.func.hessian(lambda x: (function(x, 1) ** 2).sum())(x.detach())
        jacobian = torch.autograd.functional.jacobian(lambda x: function(x, 1), x, vectorize=True)
        return first.detach(), second.detach(), third, value, tangent, hessian, jacobian

    assert compared(each_one, torch.testing.assert_close)
    with torch_operators():
        assert torch.autograd.gradcheck(lambda x: function(x, 1), x, check_forward_ad=True)
        assert torch.autograd.gradgradcheck(lambda x: function(x, 1), x)


@each_function
def test_vmap(function):
    x = drawn(4, 3, 7, dtype=torch.float32)
    g = drawn(4, 3, 7, dtype=torch.float32, seed=1)
    calls = [
        lambda: torch.vmap(lambda x: function(x, -1))(x),
        lambda: torch.vmap(lambda x: function(x, 0), in_dims=1)(x),
        lambda: torch.vmap(torch.vmap(lambda x: function(x, 0)))(x),
        lambda: torch.vmap(torch.func.grad(lambda x, g: (function(x, 0)).mul(g[0, 0]).sum()))(x, g),
    ]
    for call in calls:
        assert compared(call, torch.testing.assert_close)


@each_function
def test_autocast(function):
    x = drawn(3, 35, dtype=torch.bfloat16)
    kind = torch.device(DEVICE).type
    with torch.autocast(kind, dtype=torch.bfloat16):
        assert compared(lambda: with_gradient(function, x, 1))


def test_inference_mode_negative_views_and_a_default_device():
    x = drawn(3, 35, dtype=torch.float32)
    negative = torch.complex(x, x).conj().imag
    assert negative.is_neg()
    with torch_operators() as handle:
        with torch.inference_mode():
            assert torch.softmax(x, 1).is_inference()
        close(torch.softmax(negative, 1), torch.softmax(-x, 1))
        with torch.device("meta"):
            close(torch.softmax(x, 1), torch.softmax(x, 1))
    assert handle.calls == {SOFTMAX: 5}


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


@each_function
def test_fake_and_meta_tensors_run_nothing(function):
    x = drawn(3, 35, dtype=torch.float32)
    with torch_operators() as handle:
        meta = with_gradient(function, x.to("meta"), 1)
        assert all(each.is_meta for each in meta)
        with torch._subclasses.FakeTensorMode() as mode:
            assert function(mode.from_tensor(x), 1).shape == meta[0].shape
            assert function(torch.empty(2, 3, device="cuda"), 1).device.type == "cuda"
    assert not handle.calls


@each_function
def test_graphs_name_the_same_operators(function):
    x = drawn(3, 35, dtype=torch.float32)

    class Module(torch.nn.Module):
        def forward(self, x):
            return function(x, 1)

    def squared(x):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(function(x, 1).pow(2).sum(), x)

    def graphs():
        traced = make_fx(squared, tracing_mode="fake")(x)
        real = make_fx(squared)(x)
        program = torch.export.export(Module(), (x,))
        return traced.code, real.code, str(program.graph), torch.jit.trace(Module(), x).code

    wanted = graphs()
    with torch_operators():
        assert graphs() == wanted
        close(torch.export.export(Module(), (x,)).module()(x), function(x, 1))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled(backend):
    x, target = drawn(4, 35, dtype=torch.float32), torch.tensor([0, 1, 2, 34], device=DEVICE)

    def loss(x):
        return functional.cross_entropy(torch.softmax(x, 1) * 3, target) + x.logsumexp(1).sum()

    wanted = with_gradient(loss, x)
    torch._dynamo.reset()
    compiled = torch.compile(loss, backend=backend, fullgraph=True)
    for _ in range(2):
        with torch_operators():
            close(with_gradient(compiled, x), wanted)
        close(with_gradient(compiled, x), wanted)


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


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)])
def test_handles_go_in_any_order(order):
    x, before = drawn(3, 35, dtype=torch.float32), registered()
    handles = [torch_operators() for _ in range(3)]
    counted = [0, 0, 0]
    left = [0, 1, 2]
    for number in order:
        torch.softmax(x, 1)
        counted[left[-1]] += 1
        handles[number].remove()
        left.remove(number)
        assert [sum(handle.calls.values()) for handle in handles] == counted
        assert (registered() == before) == (not left)
    torch.softmax(x, 1)
    assert [sum(handle.calls.values()) for handle in handles] == counted


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
            same(outcome(lambda: torch.softmax(x, 2)), wanted)
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
assert torch.equal(got, wanted) and handle.calls == {} and not names
"""


@pytest.mark.slow
def test_a_cpu_outside_the_interpreter_has_pytorchs_bits():
    """In a process that turns warnings into errors: PyTorch has one for the first override."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(SOURCE)}
    environment.pop("TRITON_INTERPRET", None)
    command = [sys.executable, "-W", "error::UserWarning", "-c", ALONE]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0 and not run.stderr, run.stderr
    environment["TRITON_INTERPRET"] = "1"
    command[-1] = ALONE.replace("handle.calls == {}", "handle.calls").replace("equal", "allclose")
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0 and not run.stderr, run.stderr


def test_a_cpu_without_the_interpreter_is_left_alone(monkeypatch):
    monkeypatch.setattr(arguments, "INTERPRETED", False)
    x = torch.randn(3, 35)
    exactly = functools.partial(torch.testing.assert_close, rtol=0, atol=0)
    assert not compared(lambda: with_gradient(torch.softmax, x, 1), exactly)


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
        compared(lambda: [call() for call in calls], torch.testing.assert_close)


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


def in_threads(work, n: int = 4) -> list:
    """The errors of several threads that do this at once."""
    start, errors = threading.Barrier(n), []

    def run(number):
        start.wait()
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def test_threads_count_exactly():
    inputs = [drawn(3, 35 + i, dtype=torch.float32, seed=i) for i in range(4)]
    wanted = [with_gradient(torch.log_softmax, x, 1) for x in inputs]
    n = 10 if INTERPRETED else 200

    def work(number):
        for _ in range(n):
            close(with_gradient(torch.log_softmax, inputs[number], 1), wanted[number])

    with torch_operators() as handle:
        assert in_threads(work) == []
    assert handle.calls == {LOG_SOFTMAX: 4 * n, LOG_SOFTMAX_BACKWARD: 4 * n}


def test_threads_that_install_and_remove_while_others_compute():
    """PyTorch frees a kernel that is taken out, though a thread may be about to call it."""
    x = drawn(2, 5, dtype=torch.float32)
    wanted, done = with_gradient(torch.softmax, x, 1), threading.Event()

    def work(number):
        if number:
            while not done.is_set():
                close(with_gradient(torch.softmax, x, 1), wanted)
            return
        for i in range(300):
            with torch_operators():
                done.wait(0.001 * (i % 3))
        done.set()

    assert in_threads(work) == []
